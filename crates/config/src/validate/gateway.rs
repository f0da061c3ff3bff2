//! Gateway, and TLS settings for client connections.

use std::collections::BTreeSet;

use names::Protocol;

use crate::decode::{Relations, Report};
use crate::form;
use crate::istio::{Server, ServerTlsMode, ServerTlsSettings, TlsProtocol};
use crate::problem::FieldPath;

impl Relations for Server {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let Some(port) = &self.port else {
            return;
        };
        let at = path.field("port").field("number");
        match (port.number, self.bind.starts_with(form::UNIX)) {
            (0, false) => r.error(&at, "out-of-range", "a port must be between 1 and 65535, not 0"),
            (0, true) | (_, false) => {}
            (_, true) => {
                let message = "the port number must be 0 for a Unix domain socket";
                r.error(&at, "exclusive-fields", message);
            }
        }
        tls_fits(r, path, self.tls.as_ref(), port.kind());
    }
}

/// Checks that TLS settings are present if the protocol is TLS or HTTPS. For HTTP, only a redirect is allowed.
fn tls_fits(r: &mut Report, path: &FieldPath, tls: Option<&ServerTlsSettings>, protocol: Protocol) {
    let at = path.field("tls");
    let Some(tls) = tls else {
        if protocol.is_tls() {
            let message = format!("a server with protocol {protocol} requires tls");
            r.error(path, "missing-field", message);
        }
        return;
    };
    if tls.https_redirect && !protocol.is_http() {
        let message = "httpsRedirect applies to HTTP servers only";
        r.warning(&at.field("httpsRedirect"), "no-effect", message);
    }
    if protocol.is_http() {
        let files = [&tls.ca_certificates, &tls.private_key, &tls.server_certificate];
        if tls.mode.terminates() || files.iter().any(|file| !file.is_empty()) {
            let message = "tls settings other than httpsRedirect must not be set for protocol HTTP";
            r.error(&at, "exclusive-fields", message);
        }
    } else if !protocol.is_tls() && !protocol.is_unsupported() {
        let message = format!("tls must not be set for protocol {protocol}");
        r.error(&at, "exclusive-fields", message);
    }
}

impl ServerTlsMode {
    fn terminates(self) -> bool {
        !matches!(self, ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough)
    }
}

/// TLS settings for client connections, of a Gateway or of a Sidecar's ingress listener.
impl Relations for ServerTlsSettings {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        ciphers(r, path, self);
        let sources = sources(self);
        if self.mode == ServerTlsMode::IstioMutual {
            let message = "the mode ISTIO_MUTUAL uses the workload certificates of the mesh; no others can be set";
            return r.none_of(path, &sources, "exclusive-fields", |_| message.to_owned());
        }
        let crl = !self.ca_crl.is_empty();
        if !self.mode.terminates() {
            for (field, _) in sources.iter().chain(&[("caCrl", crl)]).filter(|(_, set)| *set) {
                let message = "TLS is not terminated in this mode, so certificates have no effect";
                r.warning(&path.field(*field), "no-effect", message);
            }
        }
        let files = !self.server_certificate.is_empty() && !self.private_key.is_empty();
        if let Some((other, _)) = sources[3..].iter().find(|(_, set)| *set && files) {
            r.one_of(path, &[("serverCertificate", true), (other, true)]);
        }
        let from_secret = !self.credential_name.is_empty() || !self.credential_names.is_empty();
        if self.mode.terminates() && !from_secret {
            certificates(r, path, self);
        }
        if crl {
            revocation_list(r, &path.field("caCrl"), self, self.mode.terminates() && from_secret);
        }
    }
}

/// Checks the path of a revocation list, which can only be combined with paths of certificates.
fn revocation_list(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings, from_secret: bool) {
    if from_secret {
        let message = "caCrl has no effect if certificates come from a Secret; add the revocation list to the Secret";
        return r.warning(path, "no-effect", message);
    }
    if !tls.credential_name.is_empty() {
        let message = "with credentialName, the revocation list must be in the Secret";
        r.error(path, "exclusive-fields", message);
    }
    if tls.mode == ServerTlsMode::Simple {
        let message = "the mode SIMPLE does not verify client certificates";
        r.error(path, "exclusive-fields", message);
    }
}

/// Fields that are sources of certificates, and whether they are set: three files, then other sources.
fn sources(tls: &ServerTlsSettings) -> [(&'static str, bool); 6] {
    [
        ("serverCertificate", !tls.server_certificate.is_empty()),
        ("privateKey", !tls.private_key.is_empty()),
        ("caCertificates", !tls.ca_certificates.is_empty()),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ]
}

/// Checks the certificate files of a server that terminates TLS.
fn certificates(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    let mode = tls.mode.name();
    let needed = |r: &mut Report, at: &FieldPath, field: &str, value: &str| {
        if value.is_empty() {
            let message = format!("the mode {mode} requires {field} or credentialName");
            r.error(at, "missing-field", message);
        }
    };
    if tls.mode != ServerTlsMode::Simple {
        needed(r, path, "caCertificates", &tls.ca_certificates);
    }
    if tls.tls_certificates.is_empty() {
        needed(r, path, "serverCertificate", &tls.server_certificate);
        needed(r, path, "privateKey", &tls.private_key);
    }
    for (index, pair) in tls.tls_certificates.iter().enumerate() {
        let at = path.field("tlsCertificates").index(index);
        needed(r, &at, "serverCertificate", &pair.server_certificate);
        needed(r, &at, "privateKey", &pair.private_key);
    }
}

fn ciphers(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    let mut seen = BTreeSet::new();
    for (index, suite) in tls.cipher_suites.iter().enumerate() {
        if !seen.insert(suite) {
            let at = path.field("cipherSuites").index(index);
            r.warning(&at, "duplicate", format!("duplicate cipher suite {suite:?}"));
        }
    }
    let old = matches!(tls.min_protocol_version, TlsProtocol::V1_0 | TlsProtocol::V1_1);
    if old && tls.cipher_suites.is_empty() {
        let message = "versions below TLSV1_2 require cipherSuites that support them";
        r.warning(&path.field("minProtocolVersion"), "no-effect", message);
    }
}
