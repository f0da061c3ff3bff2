//! TLS contexts before encoding: sources of certificates, and verification of clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use names::CIPHER_SUITES;

/// The client facts that a cluster's TLS depends on; default for a cluster without such TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientFacts {
    /// An agent provides the workload's certificates and reads files. Without a policy, endpoints that support it get
    /// the mesh's mutual TLS.
    pub agent: bool,
    /// It is a gateway, which may use the secret of a DestinationRule.
    pub gateway: bool,
}

/// A provider of private key operations (`privateKeyProvider`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyProvider {
    /// The provider.
    pub sort: KeyProviderSort,
    /// How long operations are collected for a batch.
    pub poll_delay: Duration,
    /// Envoy's own implementation is used if the hardware does not support the provider; else the listener is rejected.
    pub fallback: bool,
}

/// Providers of private key operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum KeyProviderSort {
    /// CryptoMB: vector instructions.
    Cryptomb,
    /// QAT: an accelerator device.
    Qat,
}

/// Source of a certificate with its key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Certificate {
    /// SDS from the control plane: the secret of this name.
    Served(Arc<str>),
    /// SDS from the agent: the secret of this name, `default` for the workload's certificate.
    Agent(Arc<str>),
    /// Files.
    Files {
        /// Path of the certificate.
        certificate: Arc<str>,
        /// Path of the private key.
        key: Arc<str>,
    },
}

/// Source of CA certificates.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Authorities {
    /// SDS from the control plane: the secret of this name.
    Served(Arc<str>),
    /// SDS from the agent: the secret of this name, `ROOTCA` for the mesh's.
    Agent(Arc<str>),
    /// A file.
    File(Arc<str>),
}

/// A TLS context of a listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerContext {
    /// The certificates, at least one; Envoy selects by the client's capabilities.
    pub certificates: Vec<Certificate>,
    /// Verification of clients; none to accept all.
    pub client: Option<ClientCheck>,
    /// ALPN, most preferred first.
    pub alpn: &'static [&'static str],
    /// The minimum version; absent for the mesh's or Envoy's default.
    pub min_version: Option<Version>,
    /// The maximum version; absent for Envoy's default.
    pub max_version: Option<Version>,
    /// The cipher suites; empty for the mesh's or Envoy's default.
    pub cipher_suites: Vec<Arc<str>>,
    /// The curves of the key exchange; empty for the mesh's or Envoy's default.
    pub curves: Vec<Arc<str>>,
    /// Defaults of versions, cipher suites and curves.
    pub defaults: TlsDefaults,
}

/// Source of TLS defaults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TlsDefaults {
    /// Envoy.
    Envoy,
    /// `MeshConfig.tlsDefaults`.
    Mesh,
    /// `MeshConfig.meshMTLS`, for TLS between workloads.
    Workloads,
}

/// Certificate files that replace the agent's certificates for inbound TLS; the agent reads them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct OwnFiles {
    /// Paths of certificate and key.
    pub pair: Option<(Arc<str>, Arc<str>)>,
    /// Path of the CA certificates.
    pub authorities: Option<Arc<str>>,
}

/// Verification of a client's certificate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientCheck {
    /// A certificate is required.
    pub required: bool,
    /// Trusted CA certificates.
    pub authorities: Authorities,
    /// Path of the certificate revocation list.
    pub revoked: Option<Arc<str>>,
    /// Subject alternative names, of which one must match; empty for any.
    pub names: Vec<Arc<str>>,
    /// The SPIFFE identity must be of one of the mesh's trust domains.
    pub of_mesh: bool,
    /// Hashes of public keys in base64, of which one must match; empty for any.
    pub keys: Vec<Arc<str>>,
    /// Hashes of certificates in hexadecimal, of which one must match; empty for any.
    pub hashes: Vec<Arc<str>>,
    /// Certificates of unknown CAs are accepted, too.
    pub untrusted: bool,
}

/// A TLS version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 1.0
    V1_0,
    /// 1.1
    V1_1,
    /// 1.2
    V1_2,
    /// 1.3
    V1_3,
}

impl Certificate {
    /// The workload's own certificate.
    pub fn of_workload() -> Certificate {
        Certificate::Agent("default".into())
    }

    /// The secret of a `credentialName`.
    pub fn named(credential: &str) -> Certificate {
        Certificate::Served(secret_name(credential))
    }

    /// Files: read by the agent, which watches them, or by the proxy.
    pub fn files(certificate: &str, key: &str, agent: bool) -> Certificate {
        match agent {
            true => Certificate::Agent(format!("file-cert:{certificate}~{key}").into()),
            false => Certificate::Files { certificate: certificate.into(), key: key.into() },
        }
    }
}

impl Authorities {
    /// The mesh's CA certificates.
    pub fn of_mesh() -> Authorities {
        Authorities::Agent("ROOTCA".into())
    }

    /// The CA certificates in the secret of a `credentialName`.
    pub fn named(credential: &str) -> Authorities {
        Authorities::Served(format!("{}{AUTHORITIES_SUFFIX}", secret_name(credential)).into())
    }

    /// The CA certificates of a `caCertCredentialName`: a Secret, or a ConfigMap by its full name.
    pub fn of_credential(name: &str) -> Authorities {
        let full = secret_name(name);
        let of_authorities = [CONFIG_MAP, BUNDLE].iter().any(|prefix| full.starts_with(prefix));
        match of_authorities || full.ends_with(AUTHORITIES_SUFFIX) {
            true => Authorities::Served(full),
            false => Authorities::named(name),
        }
    }

    /// A file. Istio's `system` means the operating system's CA certificates.
    pub fn file(path: &str, agent: bool) -> Authorities {
        match (agent, path) {
            (true, path) => Authorities::Agent(format!("file-root:{path}").into()),
            (false, "system") => Authorities::File(SYSTEM_ROOTS.into()),
            (false, path) => Authorities::File(path.into()),
        }
    }
}

/// Suffix of secret names with CA certificates only.
pub const AUTHORITIES_SUFFIX: &str = "-cacert";
/// Prefix of the name of a Secret, `kubernetes://NAME`.
pub const SECRET: &str = "kubernetes://";
/// Prefix of the name of a Secret with its namespace, `kubernetes-gateway://NAMESPACE/NAME`.
pub const GATEWAY_SECRET: &str = "kubernetes-gateway://";
/// Prefix of the name of a ConfigMap with authorities, `configmap://NAMESPACE/NAME`.
pub const CONFIG_MAP: &str = "configmap://";
/// Prefix of the name of a bundle: the CA certificates of several objects, whose names follow, separated by commas.
pub const BUNDLE: &str = "bundle://";
/// Path of the operating system's CA certificates in Envoy images.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The name of the bundle of these secrets with CA certificates.
pub fn bundle(names: impl Iterator<Item = Arc<str>>) -> Arc<str> {
    let names: Vec<Arc<str>> = names.collect();
    format!("{BUNDLE}{}", names.join(",")).into()
}

/// The names of the secrets in a bundle; that of another secret is its only one.
pub fn parts(name: &str) -> impl Iterator<Item = &str> {
    let list = name.strip_prefix(BUNDLE);
    list.into_iter().flat_map(|list| list.split(',')).chain(list.is_none().then_some(name))
}

/// The resource name of a `credentialName`'s secret.
fn secret_name(credential: &str) -> Arc<str> {
    // Istio supports external SDS servers (`sds://`); other names are Secrets.
    let credential = credential.strip_prefix("sds://").unwrap_or(credential);
    match [SECRET, GATEWAY_SECRET, CONFIG_MAP, BUNDLE].iter().any(|prefix| credential.starts_with(prefix)) {
        true => credential.into(),
        false => format!("{SECRET}{credential}").into(),
    }
}

/// The cipher suites of a list that Envoy supports, without duplicates unless the list removes some. Envoy rejects
/// others, and lists without any supported suite, which count as absent.
pub fn known_cipher_suites<'a>(list: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<Arc<str>> {
    let mut kept: Vec<Arc<str>> = Vec::new();
    for suite in list.into_iter().filter(|suite| is_cipher_suite(suite)) {
        let taken_away = kept.iter().any(|before| before.starts_with('-'));
        if taken_away || !kept.contains(suite) {
            kept.push(suite.clone());
        }
    }
    if leaves_none(&kept) { Vec::new() } else { kept }
}

/// Whether a list that removes suites leaves none: `-` until added again, `!` permanently.
fn leaves_none(list: &[Arc<str>]) -> bool {
    let members = |of: &str| -> Vec<&'static str> {
        let all = CIPHER_SUITES.iter().copied();
        all.filter(|name| of == "ALL" || of.split('|').any(|one| one == *name)).collect()
    };
    let (mut left, mut banned) = (BTreeSet::new(), BTreeSet::new());
    for entry in list {
        let named = members(entry.trim_matches(['-', '!', '+', '[', ']']));
        match entry.as_bytes().first() {
            Some(b'-') => left.retain(|name| !named.contains(name)),
            Some(b'!') => banned.extend(named),
            // Moves them to the end.
            Some(b'+') => {}
            _ => left.extend(named),
        }
        left.retain(|name| !banned.contains(name));
    }
    left.is_empty()
}

/// Whether Envoy has a cipher suite of this name.
pub fn is_cipher_suite(name: &str) -> bool {
    // Besides names, BoringSSL supports groups of equal preference, and removing or moving suites.
    let group = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match (group, name.strip_prefix(['-', '+', '!'])) {
        (Some(group), _) => group.split('|').all(|name| CIPHER_SUITES.contains(&name)),
        (None, rest) => rest.unwrap_or(name) == "ALL" || CIPHER_SUITES.contains(&rest.unwrap_or(name)),
    }
}

/// The curves of a list that Envoy has, each once.
pub fn known_curves(list: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut out: Vec<Arc<str>> = Vec::new();
    for name in list.iter().filter(|name| is_curve(name)) {
        if !out.contains(name) {
            out.push(name.clone());
        }
    }
    out
}

/// Whether Envoy has a curve of this name for key exchange.
pub fn is_curve(name: &str) -> bool {
    config::CURVES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        let named = |name: &str| (Certificate::named(name), Authorities::named(name));
        let served = |name: &str, authorities: &str| {
            let authorities = Authorities::Served(authorities.into());
            (Certificate::Served(name.into()), authorities)
        };
        assert_eq!(named("web"), served("kubernetes://web", "kubernetes://web-cacert"));
        assert_eq!(named("sds://web"), served("kubernetes://web", "kubernetes://web-cacert"));
        let map = "configmap://shop/roots";
        assert_eq!(named(map), served(map, "configmap://shop/roots-cacert"));
        let of_credential = |name: &str| Authorities::of_credential(name);
        assert_eq!(of_credential(map), Authorities::Served(map.into()));
        assert_eq!(of_credential("web"), Authorities::Served("kubernetes://web-cacert".into()));
        assert_eq!(of_credential("web-cacert"), Authorities::Served("kubernetes://web-cacert".into()));
        let bundle = bundle(["configmap://shop/a".into(), "configmap://shop/b".into()].into_iter());
        assert_eq!(&*bundle, "bundle://configmap://shop/a,configmap://shop/b");
        assert_eq!(of_credential(&bundle), Authorities::Served(bundle.clone()));
        assert_eq!(parts(&bundle).collect::<Vec<_>>(), ["configmap://shop/a", "configmap://shop/b"]);
        assert_eq!(parts("kubernetes://a").collect::<Vec<_>>(), ["kubernetes://a"]);
        let other = "kubernetes-gateway://shop/web";
        assert_eq!(named(other), served(other, "kubernetes-gateway://shop/web-cacert"));
    }

    #[test]
    fn files_are_read_by_the_agent_where_there_is_one() {
        assert_eq!(Certificate::files("/c", "/k", true), Certificate::Agent("file-cert:/c~/k".into()));
        assert_eq!(Authorities::file("system", true), Authorities::Agent("file-root:system".into()));
        assert_eq!(Authorities::file("system", false), Authorities::File(SYSTEM_ROOTS.into()));
    }

    #[test]
    fn cipher_suites_that_envoy_lacks_are_left_out() {
        let list: Vec<Arc<str>> = ["AES128-SHA", "NULL-MD5", "AES256-SHA", "AES128-SHA"].map(Arc::from).into();
        let kept = known_cipher_suites(&list);
        assert_eq!(kept, ["AES128-SHA".into(), "AES256-SHA".into()]);
        let count = |list: &[&str]| {
            let list: Vec<Arc<str>> = list.iter().map(|name| Arc::from(*name)).collect();
            known_cipher_suites(&list).len()
        };
        assert_eq!(count(&["AES128-SHA", "-ALL"]), 0, "Envoy refuses what leaves none");
        assert_eq!(count(&["!AES128-SHA", "AES128-SHA"]), 0);
        assert_eq!(count(&["-ALL", "AES128-SHA"]), 2);
        assert_eq!(count(&["[AES128-SHA|AES256-SHA]", "-AES128-SHA"]), 2);
        assert_eq!(count(&["ALL", "!AES128-SHA", "+AES256-SHA"]), 3);
        assert_eq!(count(&["-ALL"]), 0);
        assert_eq!(count(&["AES128-SHA", "-ALL", "AES128-SHA"]), 3, "it is there again");
        for good in ["ALL", "-ALL", "[AES128-SHA|AES256-SHA]", "!AES128-SHA"] {
            assert!(is_cipher_suite(good), "{good}");
        }
        for bad in ["", "-", "[]", "[AES128-SHA|x]", "[AES128-SHA", "--ALL"] {
            assert!(!is_cipher_suite(bad), "{bad}");
        }
    }
}
