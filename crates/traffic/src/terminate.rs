//! TLS contexts that a listener terminates, of Gateway servers and of Sidecar ingress listeners.

use std::sync::Arc;

use config::istio::{ServerTlsMode, ServerTlsSettings, TlsProtocol};
use model::tls::{
    Authorities, Certificate, ClientCheck, OwnFiles, ServerContext, TlsDefaults, Version, known_cipher_suites,
    known_curves,
};

/// ALPN of HTTP servers, most preferred first.
const HTTP: &[&str] = &["h2", "http/1.1"];

/// The mesh's mutual TLS at a workload.
pub(crate) fn of_workload(files: &OwnFiles) -> ServerContext {
    let (certificate, authorities) = own(files);
    ServerContext {
        certificates: vec![certificate],
        client: Some(ClientCheck {
            required: true,
            authorities,
            revoked: None,
            names: Vec::new(),
            of_mesh: true,
            keys: Vec::new(),
            hashes: Vec::new(),
            untrusted: false,
        }),
        // Sidecars add protocols of their own to ALPN; they are not selected here, because the other offered protocols
        // tell the content.
        alpn: HTTP,
        min_version: None,
        max_version: None,
        cipher_suites: Vec::new(),
        curves: Vec::new(),
        defaults: TlsDefaults::Workloads,
    }
}

/// The workload's certificate and the mesh's CA certificates.
fn own(files: &OwnFiles) -> (Certificate, Authorities) {
    let pair = files.pair.as_ref();
    let roots = files.authorities.as_ref();
    (
        pair.map_or_else(Certificate::of_workload, |(certificate, key)| Certificate::files(certificate, key, true)),
        roots.map_or_else(Authorities::of_mesh, |path| Authorities::file(path, true)),
    )
}

/// The context of a server. None if its mode does not terminate TLS, if it names no certificate, or if it needs the
/// workload's certificate and no agent provides it.
pub(crate) fn context(settings: &ServerTlsSettings, agent: bool, files: &OwnFiles) -> Option<ServerContext> {
    let mode = settings.mode;
    let (of_mesh, asks, required) = match mode {
        ServerTlsMode::Passthrough | ServerTlsMode::AutoPassthrough => return None,
        ServerTlsMode::Simple => (false, false, false),
        ServerTlsMode::Mutual => (false, true, true),
        ServerTlsMode::OptionalMutual => (false, true, false),
        ServerTlsMode::IstioMutual => (true, true, true),
    };
    if of_mesh && !agent {
        return None;
    }
    let (certificates, authorities) = match of_mesh {
        true => {
            let (certificate, authorities) = own(files);
            (vec![certificate], Some(authorities))
        }
        false => sources(settings, agent),
    };
    if certificates.is_empty() {
        return None;
    }
    let client = match asks {
        true => Some(ClientCheck {
            required,
            // A server whose client check cannot be evaluated would accept every client.
            authorities: authorities?,
            revoked: Some(&settings.ca_crl).filter(|path| !path.is_empty()).cloned(),
            names: settings.subject_alt_names.clone(),
            of_mesh: false,
            keys: settings.verify_certificate_spki.clone(),
            hashes: settings.verify_certificate_hash.clone(),
            untrusted: settings.insecure_skip_verify.unwrap_or(false),
        }),
        false => None,
    };
    // The mesh's TLS has its own versions and cipher suites.
    let (least, most) = match of_mesh {
        true => (TlsProtocol::Auto, TlsProtocol::Auto),
        false => (settings.min_protocol_version, settings.max_protocol_version),
    };
    Some(ServerContext {
        certificates,
        client,
        alpn: HTTP,
        min_version: version(least),
        max_version: version(most),
        cipher_suites: match of_mesh {
            true => Vec::new(),
            false => known_cipher_suites(&settings.cipher_suites),
        },
        curves: match of_mesh {
            true => Vec::new(),
            false => known_curves(&settings.ecdh_curves),
        },
        defaults: if of_mesh { TlsDefaults::Envoy } else { TlsDefaults::Mesh },
    })
}

/// Certificates, and the CA certificates that verify clients.
fn sources(settings: &ServerTlsSettings, agent: bool) -> (Vec<Certificate>, Option<Authorities>) {
    let single = Some(&settings.credential_name).filter(|name| !name.is_empty());
    let names: Vec<&Arc<str>> = match &settings.credential_names[..] {
        [] => single.into_iter().collect(),
        // Istio's API allows two: one per key type. Of more, Envoy selects one by SNI.
        several => several.iter().collect(),
    };
    if let Some(first) = names.first() {
        let authorities = match &*settings.ca_cert_credential_name {
            "" => Authorities::named(first),
            name => Authorities::of_credential(name),
        };
        let certificates = names.into_iter().map(|name| Certificate::named(name)).collect();
        return (certificates, Some(authorities));
    }
    let file = |certificate: &Arc<str>, key: &Arc<str>| {
        let there = !certificate.is_empty() && !key.is_empty();
        there.then(|| Certificate::files(certificate, key, agent))
    };
    let certificates = match &settings.tls_certificates[..] {
        [] => file(&settings.server_certificate, &settings.private_key).into_iter().collect(),
        several => (several.iter().take(2)).filter_map(|one| file(&one.server_certificate, &one.private_key)).collect(),
    };
    let roots = Some(&settings.ca_certificates).filter(|path| !path.is_empty());
    (certificates, roots.map(|path| Authorities::file(path, agent)))
}

fn version(version: TlsProtocol) -> Option<Version> {
    match version {
        TlsProtocol::Auto => None,
        TlsProtocol::V1_0 => Some(Version::V1_0),
        TlsProtocol::V1_1 => Some(Version::V1_1),
        TlsProtocol::V1_2 => Some(Version::V1_2),
        TlsProtocol::V1_3 => Some(Version::V1_3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mode: ServerTlsMode) -> ServerTlsSettings {
        ServerTlsSettings { mode, credential_name: "web".into(), ..Default::default() }
    }

    #[test]
    fn modes() {
        let client = |mode| {
            context(&settings(mode), true, &OwnFiles::default()).map(|c| c.client.map(|c| (c.required, c.authorities)))
        };
        let secret = Authorities::Served("kubernetes://web-cacert".into());
        assert_eq!(client(ServerTlsMode::Simple), Some(None));
        assert_eq!(client(ServerTlsMode::Mutual), Some(Some((true, secret.clone()))));
        assert_eq!(client(ServerTlsMode::OptionalMutual), Some(Some((false, secret))));
        let mesh = Some(Some((true, Authorities::Agent("ROOTCA".into()))));
        assert_eq!(client(ServerTlsMode::IstioMutual), mesh);
        assert_eq!(client(ServerTlsMode::Passthrough), None);
        assert_eq!(context(&settings(ServerTlsMode::IstioMutual), false, &OwnFiles::default()), None);
    }

    #[test]
    fn where_certificates_come_from() {
        let both = ServerTlsSettings {
            credential_names: vec!["rsa".into(), "ecdsa".into()],
            ca_cert_credential_name: "configmap://shop/roots".into(),
            ..settings(ServerTlsMode::Mutual)
        };
        let found = context(&both, false, &OwnFiles::default()).unwrap();
        let served = |name: &str| Certificate::Served(name.into());
        assert_eq!(found.certificates, [served("kubernetes://rsa"), served("kubernetes://ecdsa")]);
        let roots = Authorities::Served("configmap://shop/roots".into());
        assert_eq!(found.client.unwrap().authorities, roots);
        let files = ServerTlsSettings {
            mode: ServerTlsMode::Mutual,
            server_certificate: "/c".into(),
            private_key: "/k".into(),
            ..Default::default()
        };
        assert_eq!(context(&files, false, &OwnFiles::default()), None, "nobody could check clients");
        let checked = ServerTlsSettings { ca_certificates: "/ca".into(), ..files };
        let found = context(&checked, true, &OwnFiles::default()).unwrap();
        assert_eq!(found.certificates, [Certificate::Agent("file-cert:/c~/k".into())]);
        let roots = Authorities::Agent("file-root:/ca".into());
        assert_eq!(found.client.unwrap().authorities, roots);
        let nothing = ServerTlsSettings { mode: ServerTlsMode::Simple, ..Default::default() };
        assert_eq!(context(&nothing, true, &OwnFiles::default()), None);
    }

    #[test]
    fn unknown_cipher_suites_are_left_out() {
        let list = ServerTlsSettings {
            cipher_suites: vec!["AES128-SHA".into(), "nonsense".into(), "AES128-SHA".into()],
            min_protocol_version: TlsProtocol::V1_3,
            ..settings(ServerTlsMode::Simple)
        };
        let found = context(&list, false, &OwnFiles::default()).unwrap();
        assert_eq!(found.cipher_suites, ["AES128-SHA".into()]);
        assert_eq!((found.min_version, found.max_version), (Some(Version::V1_3), None));
    }

    #[test]
    fn files_beside_a_workload_take_the_place_of_what_its_agent_has() {
        let plain = of_workload(&OwnFiles::default());
        assert_eq!(plain.certificates, [Certificate::Agent("default".into())]);
        let files = OwnFiles { pair: Some(("/c".into(), "/k".into())), authorities: Some("/ca".into()) };
        let found = of_workload(&files);
        assert_eq!(found.certificates, [Certificate::Agent("file-cert:/c~/k".into())]);
        let authorities = |context: ServerContext| context.client.unwrap().authorities;
        assert_eq!(authorities(found), Authorities::Agent("file-root:/ca".into()));
        let mutual = context(&settings(ServerTlsMode::IstioMutual), true, &files).unwrap();
        assert_eq!(authorities(mutual), Authorities::Agent("file-root:/ca".into()));
    }
}
