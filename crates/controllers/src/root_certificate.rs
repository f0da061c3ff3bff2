//! Writes the root certificates of the mesh to a ConfigMap in every namespace, where workloads read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::MeshConfig;
use serde_json::{Value, json};

use crate::namespaces::Namespaces;
use crate::{Body, Controller, Driver, Ledger, Origin, Resource, Target, Watched, Write, id, put};

/// The name of the ConfigMaps.
pub const CONFIG_MAP: &str = "istio-ca-root-cert";
/// The key in the ConfigMaps.
pub const KEY: &str = "root-cert.pem";
const LABEL: &str = "istio.io/config";
/// Namespaces without workloads, which get no ConfigMap.
const LEFT_OUT: &[&str] = &["kube-public", "kube-node-lease", "local-path-storage"];
/// The maximum size of the root certificates, in bytes. A ConfigMap holds 1 MiB.
const LIMIT: usize = 512 << 10;

/// The observed ConfigMap of a namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The value of [`KEY`], if present.
    pub pem: Option<Arc<str>>,
    /// Whether it has the label.
    pub labelled: bool,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
}

/// A Secret of the certificate authority without usable root certificates.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Secret {secret}: {key} {problem}")]
pub struct InvalidRoot {
    secret: &'static str,
    key: &'static str,
    problem: RootProblem,
}

/// The reason why root certificates are not usable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
enum RootProblem {
    #[error("is longer than {} bytes", LIMIT)]
    TooLong,
    #[error("is not text")]
    NotText,
    #[error("holds no certificate")]
    NoCertificate,
    #[error("holds a private key, which must not be published")]
    PrivateKey,
}

/// Reads the root certificates of the mesh from the Secrets of its certificate authority: `cacerts`, which an operator creates,
/// takes precedence over `istio-ca-secret`, which a control plane creates. `read` returns the value of a key of a Secret.
///
/// # Errors
/// The Secret that takes precedence is invalid.
pub fn root_of(read: impl Fn(&str, &str) -> Option<Vec<u8>>) -> Result<Option<Arc<str>>, InvalidRoot> {
    // A self-signed authority is its own root.
    let places = [("cacerts", KEY), ("istio-ca-secret", KEY), ("istio-ca-secret", "ca-cert.pem")];
    for (secret, key) in places {
        let Some(bytes) = read(secret, key).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        let wrong = |problem| InvalidRoot { secret, key, problem };
        if bytes.len() > LIMIT {
            return Err(wrong(RootProblem::TooLong));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong(RootProblem::NotText))?;
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong(RootProblem::NoCertificate));
        }
        if text.contains("PRIVATE KEY") {
            return Err(wrong(RootProblem::PrivateKey));
        }
        return Ok(Some(text.into()));
    }
    Ok(None)
}

/// Writes the root certificates to every selected namespace. Without root certificates nothing is written or removed.
#[derive(Default, Debug)]
pub struct RootCertificates {
    root: Option<Arc<str>>,
    namespaces: BTreeSet<Arc<str>>,
    found: BTreeMap<Arc<str>, Found>,
    dirty: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl RootCertificates {
    /// Sets the root certificates; `None` if they are unknown.
    pub fn root(&mut self, root: Option<Arc<str>>) {
        if self.root != root {
            self.root = root;
            self.dirty.extend(self.namespaces.iter().cloned());
        }
    }

    /// Records whether a namespace exists, is selected and is not being deleted.
    pub fn namespace(&mut self, name: &str, there: bool) {
        if there && !LEFT_OUT.contains(&name) {
            if self.namespaces.insert(name.into()) {
                self.dirty.insert(name.into());
            }
        } else if self.namespaces.remove(name) {
            self.ledger.forget(&target(name));
        }
    }

    /// Sets the observed ConfigMap of a namespace; `None` if there is none.
    pub fn config_map(&mut self, namespace: &str, found: Option<Found>) {
        let before = put(&mut self.found, namespace, found.clone());
        if before != found {
            self.ledger.forget(&target(namespace));
            self.dirty.insert(namespace.into());
        }
    }

    fn wanted(&self, namespace: &str) -> Option<Write> {
        let root = self.root.as_ref()?;
        self.namespaces.get(namespace)?;
        let found = self.found.get(namespace);
        if found.is_some_and(|found| found.labelled && found.pem.as_ref() == Some(root)) {
            return None;
        }
        Some(Write {
            target: target(namespace),
            uid: Arc::default(),
            body: Body::Apply {
                fields: json!({"metadata": {"labels": {LABEL: "true"}}, "data": {KEY: &**root}}),
                manager: "rutter",
                create: true,
            },
        })
    }
}

impl Controller for RootCertificates {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |namespace: &Arc<str>| {
            let wanted = self.wanted(namespace);
            self.ledger.settle(&target(namespace), wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.dirty.extend(self.namespaces.iter().cloned());
    }
}

fn target(namespace: &str) -> Target {
    Target::new(Resource::CONFIG_MAP, namespace, CONFIG_MAP)
}

/// The Secrets that may hold the certificate authority of the mesh.
const SECRETS: [&str; 2] = ["cacerts", "istio-ca-secret"];

/// The state of the root certificate that was logged last.
#[derive(PartialEq, Eq, Debug)]
enum Logged {
    Nothing,
    Found,
    Missing,
    Wrong(InvalidRoot),
}

/// Feeds the controller with the objects that it watches.
pub struct RootDriver {
    namespace: Arc<str>,
    machine: RootCertificates,
    namespaces: Namespaces,
    /// The certificates of each Secret, by key. Private keys are not kept.
    secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    logged: Logged,
}

impl RootDriver {
    /// A driver that has seen no objects yet.
    pub fn new(namespace: &Arc<str>) -> RootDriver {
        RootDriver {
            namespace: namespace.clone(),
            machine: RootCertificates::default(),
            namespaces: Namespaces::default(),
            secrets: BTreeMap::new(),
            logged: Logged::Nothing,
        }
    }

    fn select(&mut self, name: &str) {
        self.machine.namespace(name, self.namespaces.is_selected(name));
    }

    fn root(&mut self) {
        let found = root_of(|secret, key| self.secrets.get(secret)?.get(key).cloned());
        let logged = match &found {
            Ok(Some(_)) => Logged::Found,
            Ok(None) => Logged::Missing,
            Err(error) => Logged::Wrong(error.clone()),
        };
        // An invalid Secret does not replace the last valid root certificate.
        if let Ok(root) = found {
            self.machine.root(root);
        }
        if logged != self.logged {
            match &logged {
                Logged::Missing => tracing::info!(
                    namespace = %self.namespace,
                    "no root certificate found: neither Secret {} nor {} exists; {CONFIG_MAP} is not written",
                    SECRETS[0],
                    SECRETS[1],
                ),
                Logged::Wrong(error) => tracing::error!(error = error.to_string(), "the root certificate is invalid"),
                Logged::Found if self.logged != Logged::Nothing => tracing::info!("found a root certificate"),
                Logged::Found | Logged::Nothing => {}
            }
            self.logged = logged;
        }
    }
}

impl Driver for RootDriver {
    fn watched(&self) -> Vec<Watched> {
        let secret = |name: &str| Watched::all(Resource::SECRET).within(&self.namespace).named(name);
        vec![
            Watched::all(Resource::NAMESPACE),
            Watched::all(Resource::CONFIG_MAP).named(CONFIG_MAP),
            // An operator creates the first beside the control plane; the second is created in the configuration cluster.
            secret(SECRETS[0]).of(Origin::Own),
            secret(SECRETS[1]).of(Origin::Home),
        ]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        match place {
            0 => {
                self.namespaces.see(object, there);
                self.select(name);
            }
            1 => self.machine.config_map(namespace, there.then(|| found(object))),
            _ => {
                put(&mut self.secrets, name, there.then(|| certificates(object)));
                self.root();
            }
        }
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.namespaces.select_by(&mesh.discovery_selectors);
        let names: Vec<Arc<str>> = self.namespaces.names().cloned().collect();
        names.iter().for_each(|name| self.select(name));
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.machine
    }

    fn plan(&mut self) -> Vec<Write> {
        if self.logged == Logged::Nothing {
            self.root();
        }
        self.machine.plan()
    }
}

fn found(object: &Value) -> Found {
    Found {
        pem: object["data"][KEY].as_str().map(Into::into),
        labelled: object["metadata"]["labels"]["istio.io/config"] == "true",
        version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into(),
    }
}

/// The certificates of a Secret. Private keys are not decoded.
fn certificates(object: &Value) -> BTreeMap<String, Vec<u8>> {
    let wanted = [KEY, "ca-cert.pem"].into_iter();
    let decoded = wanted.filter_map(|key| {
        let bytes = STANDARD.decode(object["data"][key].as_str()?).ok()?;
        Some((key.to_owned(), bytes))
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use config::StringMap;
    use config::mesh::LabelSelector;
    use serde_json::json;

    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

    fn namespace(name: &str, mesh: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"mesh": mesh}}})
    }

    #[test]
    fn selected_namespaces_get_the_secrets_certificate() {
        let mut driver = RootDriver::new(&"istio-system".into());
        driver.see(0, &namespace("a", "on"), true);
        driver.see(0, &namespace("b", "off"), true);
        assert!(driver.plan().is_empty());
        assert_eq!(driver.logged, Logged::Missing);
        let secret = json!({"metadata": {"name": "istio-ca-secret"}, "data": {
            "ca-cert.pem": STANDARD.encode(PEM), "ca-key.pem": STANDARD.encode("secret"),
        }});
        driver.see(3, &secret, true);
        assert_eq!(driver.plan().len(), 2);
        assert!(!format!("{:?}", driver.secrets).contains("ca-key"), "private keys are not kept");
        let selector =
            LabelSelector { match_labels: StringMap::from([("mesh".into(), "on".into())]), ..LabelSelector::default() };
        driver.mesh(&MeshConfig { discovery_selectors: vec![selector], ..MeshConfig::default() });
        driver.see(0, &namespace("c", "on"), true);
        driver.see(0, &namespace("d", "off"), true);
        let targets: Vec<String> = driver.plan().iter().map(|write| write.target.to_string()).collect();
        assert_eq!(targets, ["ConfigMap c/istio-ca-root-cert"]);
        // An invalid Secret removes nothing.
        driver.see(3, &json!({"metadata": {"name": "istio-ca-secret"}, "data": {"ca-cert.pem": "AAAA"}}), true);
        assert!(matches!(driver.logged, Logged::Wrong(_)) && driver.machine.root.is_some());
    }
}
