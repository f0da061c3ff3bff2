//! Validation of Gateway, and of TLS settings for client connections.

use std::collections::BTreeSet;

use names::CIPHER_SUITES;

use crate::diagnostic::FieldPath;
use crate::istio::{Gateway, Port, Server, ServerTlsMode, ServerTlsSettings, TlsProtocol};
use crate::object::Meta;
use crate::validate::hosts::Owner;
use crate::validate::{Report, common, hosts};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &Gateway) {
    let path = FieldPath::spec();
    if !hosts::is_label(&meta.name) {
        let at = FieldPath::root().field("metadata").field("name");
        r.error(&at, "bad-name", "the name of a Gateway must not contain dots");
    }
    if spec.servers.is_empty() {
        r.error(
            &path.field("servers"),
            "missing-field",
            "a Gateway requires at least one server",
        );
    }
    let mut names = BTreeSet::new();
    for (index, server) in spec.servers.iter().enumerate() {
        let at = path.field("servers").index(index);
        self::server(r, &at, server);
        let Some(port) = &server.port else {
            continue;
        };
        if !port.name.is_empty() && !names.insert(&port.name) {
            let message = format!("duplicate port {:?}", &*port.name);
            r.error(&at.field("port").field("name"), "duplicate", message);
        }
    }
}

fn server(r: &mut Report, path: &FieldPath, server: &Server) {
    if server.hosts.is_empty() {
        r.error(
            &path.field("hosts"),
            "missing-field",
            "a server requires at least one host",
        );
    }
    for (index, host) in server.hosts.iter().enumerate() {
        hosts::namespaced_host(r, &path.field("hosts").index(index), host, Owner::Gateway);
    }
    let socket = server.bind.strip_prefix(common::UNIX);
    if let Some(socket) = socket {
        common::unix_path(r, &path.field("bind"), socket);
    } else if !server.bind.is_empty() {
        common::ip_address(r, &path.field("bind"), &server.bind);
    }
    if let Some(tls) = &server.tls {
        server_tls(r, &path.field("tls"), tls);
    }
    match &server.port {
        None => r.error(path, "missing-field", "a server requires a port"),
        Some(port) => {
            self::port(r, &path.field("port"), port, socket.is_some());
            tls_fits_port(r, path, server, port);
        }
    }
}

fn port(r: &mut Report, path: &FieldPath, port: &Port, on_socket: bool) {
    if port.protocol.is_empty() {
        r.error(&path.field("protocol"), "missing-field", "a port requires a protocol");
    }
    common::protocol(r, &path.field("protocol"), &port.protocol);
    match (port.number, on_socket) {
        (0, true) => {}
        (_, true) => r.error(
            &path.field("number"),
            "exclusive-fields",
            "the port number must be 0 for a Unix domain socket",
        ),
        (number, false) => common::port(r, &path.field("number"), number),
    }
    if port.name.is_empty() {
        r.error(&path.field("name"), "missing-field", "a port requires a name");
    }
    if port.target_port != 0 {
        r.error(
            &path.field("targetPort"),
            "no-effect",
            "targetPort has no effect on Gateways",
        );
    }
}

/// Checks that TLS settings are present if the protocol is TLS or HTTPS. For HTTP, only a redirect is allowed.
fn tls_fits_port(r: &mut Report, path: &FieldPath, server: &Server, port: &Port) {
    let protocol = port.kind();
    let at = path.field("tls");
    let Some(tls) = &server.tls else {
        if protocol.is_tls() {
            r.error(
                path,
                "missing-field",
                format!("a server with protocol {protocol} requires tls"),
            );
        }
        return;
    };
    if tls.https_redirect && !protocol.is_http() {
        r.warning(
            &at.field("httpsRedirect"),
            "no-effect",
            "httpsRedirect applies to HTTP servers only",
        );
    }
    if protocol.is_http() {
        let passes = matches!(tls.mode, ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough);
        let files = [&tls.ca_certificates, &tls.private_key, &tls.server_certificate];
        if !passes || files.iter().any(|file| !file.is_empty()) {
            let message = "tls settings other than httpsRedirect must not be set for protocol HTTP";
            r.error(&at, "exclusive-fields", message);
        }
    } else if !protocol.is_tls() && !protocol.is_unsupported() {
        r.error(
            &at,
            "exclusive-fields",
            format!("tls must not be set for protocol {protocol}"),
        );
    }
}

/// Checks TLS settings for client connections, of a Gateway or of a Sidecar's ingress listener.
pub(super) fn server_tls(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    ciphers(r, path, tls);
    hashes(r, path, tls);
    let sources = sources(tls);
    let crl = !tls.ca_crl.is_empty();
    match tls.mode {
        ServerTlsMode::IstioMutual => {
            for (field, _) in sources.iter().filter(|(_, set)| *set) {
                let message = "the mode ISTIO_MUTUAL uses the workload certificates of the mesh; no others can be set";
                r.error(&path.field(*field), "exclusive-fields", message);
            }
            return;
        }
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough => {
            for (field, _) in sources.iter().chain(&[("caCrl", crl)]).filter(|(_, set)| *set) {
                let message = "TLS is not terminated in this mode, so certificates have no effect";
                r.warning(&path.field(*field), "no-effect", message);
            }
        }
        ServerTlsMode::Simple | ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual => {}
    }
    one_source(r, path, tls);
    if tls.credential_names.len() > 2 {
        r.error(
            &path.field("credentialNames"),
            "out-of-range",
            "at most two Secrets are supported",
        );
    }
    let from_secret = !tls.credential_name.is_empty() || !tls.credential_names.is_empty();
    let terminates = !matches!(tls.mode, ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough);
    if terminates && !from_secret {
        certificates(r, path, tls);
    }
    if crl {
        revocation_list(r, &path.field("caCrl"), tls, terminates && from_secret);
    }
}

/// Checks the lengths of certificate hashes, which are all that Envoy validates: 32 bytes each.
fn hashes(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    for (index, hash) in tls.verify_certificate_hash.iter().enumerate() {
        if !(64..=95).contains(&hash.len()) {
            let message = "a hash must have 64 hexadecimal digits, optionally with colons between the bytes";
            r.error(&path.field("verifyCertificateHash").index(index), "bad-value", message);
        }
    }
    for (index, hash) in tls.verify_certificate_spki.iter().enumerate() {
        if hash.len() != 44 {
            let message = "the hash of a public key must have 44 base64 characters";
            r.error(&path.field("verifyCertificateSpki").index(index), "bad-value", message);
        }
    }
}

/// Checks the path of a revocation list, which can only be combined with paths of certificates.
fn revocation_list(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings, from_secret: bool) {
    if from_secret {
        return r.warning(
            path,
            "no-effect",
            "caCrl has no effect if certificates come from a Secret; add the revocation list to the Secret",
        );
    }
    if !tls.credential_name.is_empty() {
        let message = "with credentialName, the revocation list must be in the Secret";
        r.error(path, "exclusive-fields", message);
    }
    if tls.mode == ServerTlsMode::Simple {
        r.error(
            path,
            "exclusive-fields",
            "the mode SIMPLE does not verify client certificates",
        );
    }
}

/// Fields that are sources of certificates, and whether they are set.
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

fn one_source(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    let files = !tls.server_certificate.is_empty() && !tls.private_key.is_empty();
    let sources = [
        ("serverCertificate", files),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];
    let set: Vec<&str> = sources.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    if let [first, second, ..] = set[..] {
        let message = format!("only one of {first} and {second} may be set");
        r.error(&path.field(second), "exclusive-fields", message);
    }
}

/// Checks the certificate files of a server that terminates TLS.
fn certificates(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    let mode = tls.mode.name();
    let mutual = matches!(tls.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual);
    if mutual && tls.ca_certificates.is_empty() {
        let message = format!("the mode {mode} requires caCertificates or credentialName");
        r.error(path, "missing-field", message);
    }
    if tls.tls_certificates.len() > 2 {
        r.warning(
            &path.field("tlsCertificates"),
            "no-effect",
            "only two certificates are supported",
        );
    }
    let needed = |r: &mut Report, at: &FieldPath, certificate: &str, key: &str| {
        for (field, value) in [("serverCertificate", certificate), ("privateKey", key)] {
            if value.is_empty() {
                r.error(
                    at,
                    "missing-field",
                    format!("the mode {mode} requires {field} or credentialName"),
                );
            }
        }
    };
    if tls.tls_certificates.is_empty() {
        needed(r, path, &tls.server_certificate, &tls.private_key);
    }
    for (index, pair) in tls.tls_certificates.iter().enumerate() {
        let at = path.field("tlsCertificates").index(index);
        needed(r, &at, &pair.server_certificate, &pair.private_key);
    }
}

/// Cipher suite that Istio accepts but Envoy no longer supports.
const OLD_CIPHER: &str = "DES-CBC3-SHA";

/// Whether a text is the name of a cipher suite, `ALL`, or an expression such as `-ALL`, which Envoy interprets.
fn is_cipher(suite: &str) -> bool {
    let is_expression = !suite.starts_with(char::is_alphanumeric);
    is_expression || suite == "ALL" || suite == OLD_CIPHER || CIPHER_SUITES.contains(&suite)
}

fn ciphers(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings) {
    let at = path.field("cipherSuites");
    let mut seen = BTreeSet::new();
    for (index, suite) in tls.cipher_suites.iter().enumerate() {
        if !is_cipher(suite) {
            r.warning(
                &at.index(index),
                "no-effect",
                format!("unknown cipher suite {suite:?} is ignored"),
            );
        } else if !seen.insert(suite) {
            r.warning(
                &at.index(index),
                "duplicate",
                format!("duplicate cipher suite {suite:?}"),
            );
        }
    }
    let old = matches!(tls.min_protocol_version, TlsProtocol::V1_0 | TlsProtocol::V1_1);
    if old && tls.cipher_suites.is_empty() {
        let message = "versions below TLSV1_2 require cipherSuites that support them";
        r.warning(&path.field("minProtocolVersion"), "no-effect", message);
    }
}
