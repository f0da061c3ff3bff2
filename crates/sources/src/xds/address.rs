//! Config source addresses: `MeshConfig.configSources`.

use std::path::PathBuf;
use std::sync::Arc;

use config::istio::{ClientTlsMode, ClientTlsSettings};
use config::mesh::ConfigSource;

/// A config source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// `fs:///PATH`: a directory of files.
    Directory(PathBuf),
    /// `xds://HOST:PORT`: another control plane.
    Xds(Address),
    /// `k8s://`: the Kubernetes API of the cluster that this runs in, or of the user's kubeconfig.
    Kubernetes,
}

/// The discovery address of another control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// `HOST:PORT`; IPv6 addresses in brackets.
    pub authority: Arc<str>,
    /// TLS settings; `None` for plain text.
    pub tls: Option<Tls>,
}

/// TLS settings. Certificates are PEM or paths of PEM files, which are read for each connection.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// The CA certificates; `None` for the system's.
    pub ca: Option<Arc<str>>,
    /// The client certificate chain and key.
    pub identity: Option<(Arc<str>, Arc<str>)>,
    /// The expected server name; `None` for the host of the address.
    pub server_name: Option<Arc<str>>,
}

impl std::fmt::Debug for Tls {
    /// Omits possible keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tls");
        shown.field("ca", &self.ca.is_some()).field("identity", &self.identity.is_some());
        shown.field("server_name", &self.server_name).finish()
    }
}

/// An invalid config source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} of the config source {address:?}: {reason}")]
pub struct AddressError {
    /// The address as written.
    pub address: String,
    /// The invalid field, such as `address` or `tlsSettings.mode`.
    pub field: String,
    /// The problem and its remedy.
    pub reason: String,
}

/// Parses an entry of `configSources`.
///
/// # Errors
/// The address has an unknown form, or the TLS settings are not supported.
pub fn locate(source: &ConfigSource) -> Result<Location, AddressError> {
    let wrong_at = |field: &str, reason: String| AddressError {
        address: source.address.to_string(),
        field: field.to_owned(),
        reason,
    };
    let wrong = |reason: String| wrong_at("address", reason);
    let Some((scheme, rest)) = source.address.split_once("://") else {
        return Err(wrong("it has no scheme; write xds://HOST:PORT, fs:///PATH or k8s://".into()));
    };
    match scheme {
        "fs" => match rest {
            "" | "/" => Err(wrong("it names no directory; write fs:///PATH".into())),
            path if path.starts_with('/') => Ok(Location::Directory(path.into())),
            _ => Err(wrong("a host cannot be named; write fs:///PATH with three slashes".into())),
        },
        "k8s" => match rest {
            "" | "/" => Ok(Location::Kubernetes),
            _ => Err(wrong("only the local cluster is supported; write k8s://".into())),
        },
        "xds" => {
            let authority = authority(rest, wrong)?;
            let wrong = |field: &str, reason: &str| wrong_at(&format!("tlsSettings.{field}"), reason.to_owned());
            let tls = source.tls_settings.as_ref().map(|settings| tls(settings, wrong)).transpose()?;
            Ok(Location::Xds(Address { authority, tls: tls.flatten() }))
        }
        other => Err(wrong(format!("the scheme {other} is not known; it may be xds, fs or k8s"))),
    }
}

fn authority(rest: &str, wrong: impl Fn(String) -> AddressError) -> Result<Arc<str>, AddressError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(wrong("there is more than a host and a port; write xds://HOST:PORT".into()));
    }
    let Some((host, port)) = rest.rsplit_once(':') else {
        return Err(wrong("the port is missing; write xds://HOST:PORT".into()));
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let known = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    if !known {
        return Err(wrong(format!("{host:?} is no host name or address; IPv6 addresses stand in brackets")));
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(rest.into()),
        _ => Err(wrong(format!("{port:?} is no port"))),
    }
}

/// `None` for plain text. `wrong` makes an error from a field and a reason.
fn tls(settings: &ClientTlsSettings, wrong: impl Fn(&str, &str) -> AddressError) -> Result<Option<Tls>, AddressError> {
    let given = |text: &Arc<str>| Some(text.clone()).filter(|text| !text.is_empty());
    match settings.mode {
        ClientTlsMode::Disable => return Ok(None),
        ClientTlsMode::Simple | ClientTlsMode::Mutual => {}
        ClientTlsMode::IstioMutual => {
            let instead = "ISTIO_MUTUAL is not supported; use MUTUAL with certificates of your own";
            return Err(wrong("mode", instead));
        }
    }
    let unsupported = [
        ("credentialName", !settings.credential_name.is_empty(), "name files, or give the PEM text"),
        ("insecureSkipVerify", settings.insecure_skip_verify == Some(true), "name the CA in caCertificates"),
        ("subjectAltNames", !settings.subject_alt_names.is_empty(), "give the name that the certificate has as sni"),
        ("caCrl", !settings.ca_crl.is_empty(), "leave it out"),
    ];
    if let Some((field, _, instead)) = unsupported.into_iter().find(|(_, set, _)| *set) {
        return Err(wrong(field, &format!("it is not supported; {instead}")));
    }
    let identity = match (
        settings.mode == ClientTlsMode::Mutual,
        given(&settings.client_certificate),
        given(&settings.private_key),
    ) {
        (false, ..) => None,
        (true, Some(certificate), Some(key)) => Some((certificate, key)),
        (true, ..) => return Err(wrong("mode", "MUTUAL needs clientCertificate and privateKey")),
    };
    Ok(Some(Tls { ca: given(&settings.ca_certificates), identity, server_name: given(&settings.sni) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> ConfigSource {
        ConfigSource { address: address.into(), ..ConfigSource::default() }
    }

    #[test]
    fn addresses_are_parsed() {
        let xds = |authority: &str| Location::Xds(Address { authority: authority.into(), tls: None });
        assert_eq!(locate(&source("xds://istiod.istio-system:15010")), Ok(xds("istiod.istio-system:15010")));
        assert_eq!(locate(&source("xds://[::1]:15010/")), Ok(xds("[::1]:15010")));
        assert_eq!(locate(&source("fs:///etc/mesh")), Ok(Location::Directory("/etc/mesh".into())));
        assert_eq!(locate(&source("k8s://")), Ok(Location::Kubernetes));
    }

    #[test]
    fn errors_name_the_field_and_the_reason() {
        let cases = [
            ("", "no scheme"),
            ("localhost:15010", "no scheme"),
            ("http://a:1", "the scheme http"),
            ("fs://", "no directory"),
            ("fs://etc/mesh", "three slashes"),
            ("k8s://other", "local cluster"),
            ("xds://a", "port is missing"),
            ("xds://a:0", "no port"),
            ("xds://a:99999", "no port"),
            ("xds://:15010", "no host"),
            ("xds://::1:15010", "brackets"),
            ("xds://[a]:15010", "no host"),
            ("xds://user@a:15010", "more than a host"),
            ("xds://a:1/path", "more than a host"),
        ];
        for (address, reason) in cases {
            let error = locate(&source(address)).unwrap_err();
            assert!(error.reason.contains(reason), "{address}: {error}");
        }
    }

    #[test]
    fn supported_tls_settings_are_accepted() {
        let with = |settings: ClientTlsSettings| {
            let tls_settings = Some(settings);
            locate(&ConfigSource { tls_settings, ..source("xds://a:15012") })
        };
        let simple = ClientTlsSettings {
            mode: ClientTlsMode::Simple,
            ca_certificates: "/ca.pem".into(),
            ..ClientTlsSettings::default()
        };
        let Ok(Location::Xds(address)) = with(simple.clone()) else { panic!("an address") };
        assert_eq!(address.tls.and_then(|tls| tls.ca).as_deref(), Some("/ca.pem"));
        let mutual = ClientTlsSettings { mode: ClientTlsMode::Mutual, ..simple.clone() };
        let error = with(mutual).unwrap_err();
        assert!(error.field == "tlsSettings.mode" && error.reason.contains("privateKey"), "{error}");
        let unchecked = ClientTlsSettings { insecure_skip_verify: Some(true), ..simple };
        assert_eq!(with(unchecked).unwrap_err().field, "tlsSettings.insecureSkipVerify");
    }
}
