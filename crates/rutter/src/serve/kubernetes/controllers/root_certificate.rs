//! The root certificate in every namespace that is selected.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::MeshConfig;
use serde_json::Value;
use status::controllers::{CONFIG_MAP, Controller as _, Found, KEY, RootCertificates, Write, root_of};

use super::namespaces::Namespaces;
use super::{Driver, Origin, Watched, id};

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

pub(super) struct RootDriver {
    namespace: Arc<str>,
    machine: RootCertificates,
    namespaces: Namespaces,
    /// The data of each Secret, by key; only certificates are kept.
    secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    said: Said,
}

impl RootDriver {
    pub(super) fn new(namespace: &Arc<str>) -> RootDriver {
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
