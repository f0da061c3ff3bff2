//! TLS as it is planned, before it is encoded: where certificates come from, and what is asked of a client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use names::CIPHER_SUITES;

/// Which parts of a client the TLS of a cluster depends on; nothing where the cluster has no such TLS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientFacts {
    /// An agent runs beside the proxy, which has the workload's certificates and reads files for it. Where no rule sets TLS:
    /// the mesh's own is spoken to endpoints that take it.
    pub agent: bool,
    /// It is a gateway, which may use secrets that a DestinationRule for everybody names.
    pub gateway: bool,
}

/// What signs with private keys in the place of the proxy's own code (`privateKeyProvider`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyProvider {
    /// Which one.
    pub sort: KeyProviderSort,
    /// How long work is gathered before it is done together.
    pub poll_delay: Duration,
    /// The proxy's own code does it where the machine has not what the provider needs; else there is no listener.
    pub fallback: bool,
}

/// The providers for private keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum KeyProviderSort {
    /// CryptoMB: vector instructions of the processor.
    Cryptomb,
    /// QAT: an accelerator beside it.
    Qat,
}

/// Where a proxy gets a certificate with its key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Certificate {
    /// From the control plane, over the stream by which the rest comes: the secret of this name.
    Served(Arc<str>),
    /// From the agent beside it: the secret of this name, `default` for the workload's own certificate.
    Agent(Arc<str>),
    /// From files.
    Files {
        /// Path of the certificate.
        certificate: Arc<str>,
        /// Path of the private key.
        key: Arc<str>,
    },
}

/// Where a proxy gets the authorities that it believes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Authorities {
    /// From the control plane: the secret of this name.
    Served(Arc<str>),
    /// From the agent: the secret of this name, `ROOTCA` for those of the mesh.
    Agent(Arc<str>),
    /// From a file.
    File(Arc<str>),
}

/// TLS that a listener terminates.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerContext {
    /// The certificates, of which the client's abilities choose one. At least one.
    pub certificates: Vec<Certificate>,
    /// What is asked of clients; nothing: they stay unknown.
    pub client: Option<ClientCheck>,
    /// Application protocols, the most wanted first.
    pub alpn: &'static [&'static str],
    /// The least version; absent for the mesh's or Envoy's default.
    pub min_version: Option<Version>,
    /// The highest version; absent for Envoy's default.
    pub max_version: Option<Version>,
    /// The cipher suites; empty for the mesh's or Envoy's default.
    pub cipher_suites: Vec<Arc<str>>,
    /// What holds of versions, cipher suites and curves where nothing is said here.
    pub defaults: TlsDefaults,
}

/// Where settings of TLS come from that nobody made for a listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TlsDefaults {
    /// Envoy's own.
    Envoy,
    /// `MeshConfig.tlsDefaults`.
    Mesh,
    /// `MeshConfig.meshMTLS`: for TLS between workloads.
    Workloads,
}

/// Files in the place of the certificates of the mesh that an agent has, for what its workload serves; the agent reads them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct OwnFiles {
    /// Paths of the certificate and of its key.
    pub pair: Option<(Arc<str>, Arc<str>)>,
    /// Path of the authorities.
    pub authorities: Option<Arc<str>>,
}

/// What is asked of a client's certificate.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientCheck {
    /// A client without a certificate is refused.
    pub required: bool,
    /// Who must have signed it.
    pub authorities: Authorities,
    /// Path of the list of revoked certificates.
    pub revoked: Option<Arc<str>>,
    /// Names of which it must have one; empty for any.
    pub names: Vec<Arc<str>>,
    /// It must have an identity of one of the mesh's trust domains.
    pub of_mesh: bool,
    /// Hashes of public keys of which it must have one, in base64; empty for any.
    pub keys: Vec<Arc<str>>,
    /// Hashes of certificates of which it must be one, in hexadecimal; empty for any.
    pub hashes: Vec<Arc<str>>,
    /// A certificate of unknown authorities is taken, too.
    pub untrusted: bool,
}

/// A version of TLS.
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

    /// The secret that a `credentialName` means.
    pub fn named(credential: &str) -> Certificate {
        Certificate::Served(secret_name(credential))
    }

    /// Files, as the proxy gets them: read by its agent, which notices when they change, or by itself.
    pub fn files(certificate: &str, key: &str, agent: bool) -> Certificate {
        match agent {
            true => Certificate::Agent(format!("file-cert:{certificate}~{key}").into()),
            false => Certificate::Files {
                certificate: certificate.into(),
                key: key.into(),
            },
        }
    }
}

impl Authorities {
    /// Those of the mesh.
    pub fn of_mesh() -> Authorities {
        Authorities::Agent("ROOTCA".into())
    }

    /// The authorities in the secret that a `credentialName` means.
    pub fn named(credential: &str) -> Authorities {
        Authorities::Served(format!("{}{AUTHORITIES_SUFFIX}", secret_name(credential)).into())
    }

    /// A file, as the proxy gets it. Istio's `system` stands for those that the operating system believes.
    pub fn file(path: &str, agent: bool) -> Authorities {
        match (agent, path) {
            (true, path) => Authorities::Agent(format!("file-root:{path}").into()),
            (false, "system") => Authorities::File(SYSTEM_ROOTS.into()),
            (false, path) => Authorities::File(path.into()),
        }
    }
}

/// What the name of a secret ends with of which only the authorities are wanted.
pub const AUTHORITIES_SUFFIX: &str = "-cacert";
/// Prefix of the name of a Secret, `kubernetes://NAME`.
pub const SECRET: &str = "kubernetes://";
/// Prefix of the name of a Secret with its namespace, `kubernetes-gateway://NAMESPACE/NAME`.
pub const GATEWAY_SECRET: &str = "kubernetes-gateway://";
/// Prefix of the name of a ConfigMap with authorities, `configmap://NAMESPACE/NAME`.
pub const CONFIG_MAP: &str = "configmap://";
/// Where the images that Envoy comes in keep the authorities that the system believes.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The name under which the secret of a `credentialName` is asked for.
fn secret_name(credential: &str) -> Arc<str> {
    // Istio knows servers of secrets of other makers (`sds://`); without one the name is that of a Secret.
    let credential = credential.strip_prefix("sds://").unwrap_or(credential);
    match [SECRET, GATEWAY_SECRET, CONFIG_MAP]
        .iter()
        .any(|prefix| credential.starts_with(prefix))
    {
        true => credential.into(),
        false => format!("{SECRET}{credential}").into(),
    }
}

/// The cipher suites of a list that Envoy has, each once unless the list takes away, too. It refuses a listener or cluster for
/// any other, and for a list that leaves none, which counts as one that is not there.
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

/// Whether nothing is left in the end of a list that takes away, too: `-` until it is named again, `!` for good.
fn leaves_none(list: &[Arc<str>]) -> bool {
    let members = |of: &str| -> Vec<&'static str> {
        let all = CIPHER_SUITES.iter().copied();
        all.filter(|name| of == "ALL" || of.split('|').any(|one| one == *name))
            .collect()
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
    // What Envoy's library understands beside names: groups of equal worth, and taking away or moving back.
    let group = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match (group, name.strip_prefix(['-', '+', '!'])) {
        (Some(group), _) => group.split('|').all(|name| CIPHER_SUITES.contains(&name)),
        (None, rest) => rest.unwrap_or(name) == "ALL" || CIPHER_SUITES.contains(&rest.unwrap_or(name)),
    }
}

/// Whether Envoy has a curve of this name for the exchange of keys.
pub fn is_curve(name: &str) -> bool {
    ["P-256", "P-384", "P-521", "X25519", "X25519MLKEM768"].contains(&name)
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
        assert_eq!(
            named("sds://web"),
            served("kubernetes://web", "kubernetes://web-cacert")
        );
        let map = "configmap://shop/roots";
        assert_eq!(named(map), served(map, "configmap://shop/roots-cacert"));
        let other = "kubernetes-gateway://shop/web";
        assert_eq!(named(other), served(other, "kubernetes-gateway://shop/web-cacert"));
    }

    #[test]
    fn files_are_read_by_the_agent_where_there_is_one() {
        assert_eq!(
            Certificate::files("/c", "/k", true),
            Certificate::Agent("file-cert:/c~/k".into())
        );
        assert_eq!(
            Authorities::file("system", true),
            Authorities::Agent("file-root:system".into())
        );
        assert_eq!(
            Authorities::file("system", false),
            Authorities::File(SYSTEM_ROOTS.into())
        );
    }

    #[test]
    fn cipher_suites_that_envoy_lacks_are_left_out() {
        let list: Vec<Arc<str>> = ["AES128-SHA", "NULL-MD5", "AES256-SHA", "AES128-SHA"]
            .map(Arc::from)
            .into();
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
