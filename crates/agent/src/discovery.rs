//! The connection to the control plane, from environment and settings.

use std::path::Path;

use agent_core::environment::{Environment, EnvironmentError};
use agent_core::upstream::{ClientCertificate, JOIN_TOKEN, Roots, TOKEN_FILE, Upstream, headers};
use config::mesh::{AuthenticationPolicy, ProxyConfig};

/// Roots that are mounted for the connection to the control plane only.
const MOUNTED_ROOTS: &str = "./etc/certs/root-cert.pem";
/// Roots that the control plane publishes in each namespace.
const PUBLISHED_ROOTS: &str = "./var/run/secrets/istio/root-cert.pem";

/// The control plane of the proxy. Roots and client certificate are found in the order of Istio's agent.
///
/// # Errors
/// A variable has a value that cannot be used.
pub(crate) fn upstream(environment: &Environment, settings: &ProxyConfig) -> Result<Upstream, EnvironmentError> {
    let provisioned = environment.text("PROV_CERT").map(Path::new);
    let file_mounted = environment.flag("FILE_MOUNTED_CERTS", false)?;
    let metadata = |name: &str| environment.text(&format!("ISTIO_META_{name}"));
    let mut certificate = match (provisioned, file_mounted) {
        (Some(folder), _) => Some(ClientCertificate::of_folder(folder)),
        (None, true) => metadata("TLS_CLIENT_CERT_CHAIN")
            .zip(metadata("TLS_CLIENT_KEY"))
            .map(|(chain, key)| ClientCertificate { chain: chain.into(), key: key.into() }),
        (None, false) => None,
    };
    let roots = match environment.text("XDS_ROOT_CA") {
        _ if settings.control_plane_auth_policy == AuthenticationPolicy::None => Roots::PlainText,
        Some("SYSTEM") => Roots::System,
        Some(path) => Roots::File(path.into()),
        None if Path::new(MOUNTED_ROOTS).exists() => Roots::File(MOUNTED_ROOTS.into()),
        None => Roots::File(match (provisioned, metadata("TLS_CLIENT_ROOT_CERT")) {
            (Some(folder), _) => folder.join("root-cert.pem"),
            (None, Some(path)) if file_mounted => path.into(),
            _ => PUBLISHED_ROOTS.into(),
        }),
    };
    let token = Some(TOKEN_FILE.into());
    let mut upstream = Upstream {
        address: settings.discovery_address.to_string(),
        roots,
        server_name: environment.text("ISTIOD_SAN").map(str::to_owned),
        certificate: None,
        token,
        cluster: environment.text_or("ISTIO_META_CLUSTER_ID", "").to_owned(),
        headers: headers(environment, "XDS_HEADER_"),
    };
    if certificate.is_none() && !has_token(&upstream) {
        certificate = environment.text("OUTPUT_CERTS").map(|folder| ClientCertificate::of_folder(Path::new(folder)));
    }
    upstream.certificate = certificate;
    Ok(upstream)
}

/// Whether there is a token for calls. Where there is none, as after joining with a join token, the workload's own certificate
/// authenticates the agent as soon as it is written.
fn has_token(upstream: &Upstream) -> bool {
    upstream.bearer_token().is_ok_and(|token| token.is_some_and(|token| !token.starts_with(JOIN_TOKEN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Upstream {
        upstream(&variables.iter().copied().collect(), &ProxyConfig::default()).unwrap()
    }

    #[test]
    fn roots_and_certificates_follow_the_environment() {
        let file = |path: &str| Roots::File(path.into());
        for (variables, roots, chain) in [
            (&[][..], file(PUBLISHED_ROOTS), None),
            (&[("XDS_ROOT_CA", "SYSTEM")], Roots::System, None),
            (&[("XDS_ROOT_CA", "/a.pem"), ("PROV_CERT", "/p")], file("/a.pem"), Some("/p/cert-chain.pem")),
            (&[("PROV_CERT", "/p")], file("/p/root-cert.pem"), Some("/p/cert-chain.pem")),
            (&[("OUTPUT_CERTS", "/o")], file(PUBLISHED_ROOTS), Some("/o/cert-chain.pem")),
            (
                &[
                    ("FILE_MOUNTED_CERTS", "true"),
                    ("ISTIO_META_TLS_CLIENT_ROOT_CERT", "/r.pem"),
                    ("ISTIO_META_TLS_CLIENT_CERT_CHAIN", "/c.pem"),
                    ("ISTIO_META_TLS_CLIENT_KEY", "/k.pem"),
                ],
                file("/r.pem"),
                Some("/c.pem"),
            ),
        ] {
            let upstream = found(variables);
            assert_eq!(upstream.roots, roots, "{variables:?}");
            assert_eq!(upstream.certificate.map(|files| files.chain), chain.map(Into::into), "{variables:?}");
        }
    }

    #[test]
    fn a_control_plane_without_authentication_is_reached_in_plain_text() {
        let settings = ProxyConfig {
            control_plane_auth_policy: AuthenticationPolicy::None,
            discovery_address: "istiod:15010".into(),
            ..ProxyConfig::default()
        };
        let upstream = upstream(&Environment::default(), &settings).unwrap();
        assert_eq!((upstream.roots, upstream.address.as_str()), (Roots::PlainText, "istiod:15010"));
    }
}
