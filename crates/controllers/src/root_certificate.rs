//! The root certificate in every namespace, so that workloads can check who they talk to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::MeshConfig;
use serde_json::{Value, json};

use crate::namespaces::Namespaces;
use crate::{Body, Controller, Driver, Ledger, Origin, Target, Watched, Write, id};

/// The name of the ConfigMaps.
pub const CONFIG_MAP: &str = "istio-ca-root-cert";
/// The key in them.
pub const KEY: &str = "root-cert.pem";
/// The label by which they are recognised.
const LABEL: &str = "istio.io/config";
/// Namespaces that hold no workloads.
const LEFT_OUT: &[&str] = &["kube-public", "kube-node-lease", "local-path-storage"];
/// Root certificates together are no longer, in bytes: a ConfigMap holds 1 MiB.
const LIMIT: usize = 512 << 10;

/// The ConfigMap of a namespace as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// What stands below [`KEY`]; none: nothing.
    pub pem: Option<Arc<str>>,
    /// Whether it has the label.
    pub labelled: bool,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
}

/// The root certificates of the mesh, from the Secrets that hold its authority: `cacerts`, which an operator made, before
/// `istio-ca-secret`, which a control plane made for itself. `read` gives a key of a Secret.
///
/// # Errors
/// What is wrong with the Secret that holds.
pub fn root_of(read: impl Fn(&str, &str) -> Option<Vec<u8>>) -> Result<Option<Arc<str>>, String> {
    // A self-signed authority is its own root.
    let places = [
        ("cacerts", KEY),
        ("istio-ca-secret", KEY),
        ("istio-ca-secret", "ca-cert.pem"),
    ];
    for (secret, key) in places {
        let Some(bytes) = read(secret, key).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        let wrong = |what: &str| format!("Secret {secret}: {key} {what}");
        if bytes.len() > LIMIT {
            return Err(wrong(&format!("is longer than {LIMIT} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| wrong("is not text"))?;
        if !text.contains("-----BEGIN CERTIFICATE-----") {
            return Err(wrong("holds no certificate"));
        }
        if text.contains("PRIVATE KEY") {
            return Err(wrong("holds a private key, which nobody else may see"));
        }
        return Ok(Some(text.into()));
    }
    Ok(None)
}

/// Gives every namespace that is selected the root certificate. Without one nothing is written, and what is there stays.
#[derive(Default, Debug)]
pub struct RootCertificates {
    root: Option<Arc<str>>,
    namespaces: BTreeSet<Arc<str>>,
    found: BTreeMap<Arc<str>, Found>,
    dirty: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl RootCertificates {
    /// The root certificates are these now; none: nobody knows.
    pub fn root(&mut self, root: Option<Arc<str>>) {
        if self.root != root {
            self.root = root;
            self.dirty.extend(self.namespaces.iter().cloned());
        }
    }

    /// Whether there is one.
    pub fn has_root(&self) -> bool {
        self.root.is_some()
    }

    /// A namespace is there, selected and not on its way out; or it is not.
    pub fn namespace(&mut self, name: &str, there: bool) {
        if there && !LEFT_OUT.contains(&name) {
            if self.namespaces.insert(name.into()) {
                self.dirty.insert(name.into());
            }
        } else if self.namespaces.remove(name) {
            self.ledger.forget(&target(name));
        }
    }

    /// The ConfigMap of a namespace is so, or is not there.
    pub fn config_map(&mut self, namespace: &str, found: Option<Found>) {
        let before = match &found {
            Some(found) => self.found.insert(namespace.into(), found.clone()),
            None => self.found.remove(namespace),
        };
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
    Target {
        group: "",
        version: "v1",
        kind: "ConfigMap",
        plural: "configmaps",
        subresource: "",
        namespace: namespace.into(),
        name: CONFIG_MAP.into(),
    }
}

/// The Secrets that may hold the authority of the mesh.
const SECRETS: [&str; 2] = ["cacerts", "istio-ca-secret"];

/// What is said of where the certificate comes from; each thing is logged once.
#[derive(PartialEq, Eq, Debug)]
enum Said {
    Nothing,
    Found,
    Missing,
    Wrong(String),
}

/// Feeds the controller with the objects that it watches.
pub struct RootDriver {
    namespace: Arc<str>,
    machine: RootCertificates,
    namespaces: Namespaces,
    /// The data of each Secret, by key; only certificates are kept.
    secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    said: Said,
}

impl RootDriver {
    /// A driver that has seen no objects yet.
    pub fn new(namespace: &Arc<str>) -> RootDriver {
        RootDriver {
            namespace: namespace.clone(),
            machine: RootCertificates::default(),
            namespaces: Namespaces::default(),
            secrets: BTreeMap::new(),
            said: Said::Nothing,
        }
    }

    fn select(&mut self, name: &str) {
        self.machine.namespace(name, self.namespaces.is_selected(name));
    }

    fn root(&mut self) {
        let found = root_of(|secret, key| self.secrets.get(secret)?.get(key).cloned());
        let said = match &found {
            Ok(Some(_)) => Said::Found,
            Ok(None) => Said::Missing,
            Err(error) => Said::Wrong(error.clone()),
        };
        // What is wrong now was right before: what is there stays.
        if let Ok(root) = found {
            self.machine.root(root);
        }
        if said != self.said {
            match &said {
                Said::Missing => tracing::info!(
                    namespace = %self.namespace,
                    "there is no root certificate: neither Secret {} nor {} exists; no {CONFIG_MAP} is written",
                    SECRETS[0],
                    SECRETS[1],
                ),
                Said::Wrong(error) => tracing::error!(error, "the root certificate cannot be used"),
                Said::Found if self.said != Said::Nothing => tracing::info!("there is a root certificate now"),
                Said::Found | Said::Nothing => {}
            }
            self.said = said;
        }
    }
}

impl Driver for RootDriver {
    fn watched(&self) -> Vec<Watched> {
        let secret = |name: &str| {
            Watched::all("", "Secret", "secrets")
                .within(&self.namespace)
                .named(name)
        };
        vec![
            Watched::all("", "Namespace", "namespaces"),
            Watched::all("", "ConfigMap", "configmaps").named(CONFIG_MAP),
            // An operator puts the one beside the control plane; the other is made where the configuration is.
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
                match there {
                    true => drop(self.secrets.insert(name.to_owned(), certificates(object))),
                    false => drop(self.secrets.remove(name)),
                }
                self.root();
            }
        }
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.namespaces.select_by(&mesh.discovery_selectors);
        let names: Vec<Arc<str>> = self.namespaces.names().cloned().collect();
        names.iter().for_each(|name| self.select(name));
    }

    fn restart(&mut self) {
        self.machine.restart();
    }

    fn plan(&mut self) -> Vec<Write> {
        if self.said == Said::Nothing {
            self.root();
        }
        self.machine.plan()
    }
}

fn found(object: &Value) -> Found {
    Found {
        pem: object["data"][KEY].as_str().map(Into::into),
        labelled: object["metadata"]["labels"]["istio.io/config"] == "true",
        version: object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .into(),
    }
}

/// The certificates of a Secret. Its keys are not looked at.
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
    fn selected_namespaces_get_what_the_secret_holds() {
        let mut driver = RootDriver::new(&"istio-system".into());
        driver.see(0, &namespace("a", "on"), true);
        driver.see(0, &namespace("b", "off"), true);
        assert!(driver.plan().is_empty());
        assert_eq!(driver.said, Said::Missing);
        let secret = json!({"metadata": {"name": "istio-ca-secret"}, "data": {
            "ca-cert.pem": STANDARD.encode(PEM), "ca-key.pem": STANDARD.encode("secret"),
        }});
        driver.see(3, &secret, true);
        assert_eq!(driver.plan().len(), 2);
        assert!(
            !format!("{:?}", driver.secrets).contains("ca-key"),
            "private keys are not kept"
        );
        let selector = LabelSelector {
            match_labels: StringMap::from([("mesh".into(), "on".into())]),
            ..LabelSelector::default()
        };
        driver.mesh(&MeshConfig {
            discovery_selectors: vec![selector],
            ..MeshConfig::default()
        });
        driver.see(0, &namespace("c", "on"), true);
        driver.see(0, &namespace("d", "off"), true);
        let targets: Vec<String> = driver.plan().iter().map(|write| write.target.to_string()).collect();
        assert_eq!(targets, ["ConfigMap c/istio-ca-root-cert"]);
        // A Secret that cannot be used takes nothing away.
        driver.see(
            3,
            &json!({"metadata": {"name": "istio-ca-secret"}, "data": {"ca-cert.pem": "AAAA"}}),
            true,
        );
        assert!(matches!(driver.said, Said::Wrong(_)) && driver.machine.has_root());
    }
}
