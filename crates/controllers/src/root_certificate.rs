//! Writes the root certificates of the mesh, and the revocation lists of its authority, to a ConfigMap each in every namespace,
//! where workloads read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::MeshConfig;
use serde_json::{Value, json};

use crate::namespaces::Namespaces;
use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id, put};

/// The usual name of the ConfigMaps with root certificates.
pub const CONFIG_MAP: &str = "istio-ca-root-cert";
/// The usual name of the ConfigMaps with revocation lists.
pub const REVOCATION_MAP: &str = "istio-ca-crl";
/// The key of the root certificates.
pub const KEY: &str = "root-cert.pem";
/// The key of the revocation lists.
pub const REVOCATION_KEY: &str = "ca-crl.pem";
const LABEL: &str = "istio.io/config";
/// Namespaces without workloads, which get no ConfigMap.
const LEFT_OUT: &[&str] = &["kube-public", "kube-node-lease", "local-path-storage"];
/// The maximum size of a value, in bytes. A ConfigMap holds 1 MiB.
const LIMIT: usize = 1000 << 10;

/// The certificates that the authority of the mesh publishes. Each is unknown if it is `None`; then nothing is written or removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PublishedRoots {
    /// The root certificates in PEM.
    pub roots: Option<Arc<str>>,
    /// The revocation lists in PEM.
    pub revocation: Option<Arc<str>>,
}

/// One of the two ConfigMaps of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RootMap {
    /// The root certificates.
    Roots,
    /// The revocation lists.
    Revocation,
}

impl RootMap {
    const ALL: [RootMap; 2] = [RootMap::Roots, RootMap::Revocation];

    /// The key of the value.
    pub fn key(self) -> &'static str {
        match self {
            RootMap::Roots => KEY,
            RootMap::Revocation => REVOCATION_KEY,
        }
    }
}

/// The names of the ConfigMaps (`PILOT_CA_CERT_CONFIGMAP`, `PILOT_CRL_CONFIGMAP`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootMapNames {
    /// The ConfigMap with root certificates.
    pub roots: Arc<str>,
    /// The ConfigMap with revocation lists.
    pub revocation: Arc<str>,
}

impl Default for RootMapNames {
    fn default() -> RootMapNames {
        RootMapNames { roots: CONFIG_MAP.into(), revocation: REVOCATION_MAP.into() }
    }
}

impl RootMapNames {
    fn of(&self, map: RootMap) -> &Arc<str> {
        match map {
            RootMap::Roots => &self.roots,
            RootMap::Revocation => &self.revocation,
        }
    }
}

/// An observed ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The value of its key, if present.
    pub pem: Option<Arc<str>>,
    /// Whether it has the label.
    pub labelled: bool,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
}

/// A ConfigMap by its namespace.
type Place = (Arc<str>, RootMap);

/// Writes the published certificates to every selected namespace.
#[derive(Default, Debug)]
pub struct RootCertificates {
    names: RootMapNames,
    published: PublishedRoots,
    namespaces: BTreeSet<Arc<str>>,
    found: BTreeMap<Place, Found>,
    dirty: BTreeSet<Place>,
    ledger: Ledger,
}

impl RootCertificates {
    /// A machine that writes to ConfigMaps of these names.
    pub fn new(names: RootMapNames) -> RootCertificates {
        RootCertificates { names, ..RootCertificates::default() }
    }

    /// Sets what is written. What is unknown or too large for a ConfigMap leaves the last value in place.
    pub fn publish(&mut self, published: &PublishedRoots) {
        let fits = |pem: &Option<Arc<str>>| pem.clone().filter(|pem| pem.len() <= LIMIT);
        let new = PublishedRoots { roots: fits(&published.roots), revocation: fits(&published.revocation) };
        if new != *published {
            tracing::error!("root certificates or revocation lists have more than {LIMIT} bytes and are not published");
        }
        if new != self.published {
            self.published = new;
            self.restart_namespaces();
        }
    }

    fn restart_namespaces(&mut self) {
        for map in RootMap::ALL {
            self.dirty.extend(self.namespaces.iter().map(|namespace| (namespace.clone(), map)));
        }
    }

    /// Records whether a namespace exists, is selected and is not being deleted.
    pub fn namespace(&mut self, name: &str, there: bool) {
        if there && !LEFT_OUT.contains(&name) {
            if self.namespaces.insert(name.into()) {
                self.dirty.extend(RootMap::ALL.map(|map| (name.into(), map)));
            }
        } else if self.namespaces.remove(name) {
            for map in RootMap::ALL {
                self.ledger.forget(&self.target(name, map));
            }
        }
    }

    /// Sets an observed ConfigMap of a namespace; `None` if there is none.
    pub fn config_map(&mut self, map: RootMap, namespace: &str, found: Option<Found>) {
        let place = (namespace.into(), map);
        let before = put(&mut self.found, place.clone(), found.clone());
        if before != found {
            self.ledger.forget(&self.target(namespace, map));
            self.dirty.insert(place);
        }
    }

    fn target(&self, namespace: &str, map: RootMap) -> Target {
        Target::new(Resource::CONFIG_MAP, namespace, self.names.of(map))
    }

    fn wanted(&self, place: &Place) -> Option<Write> {
        let (namespace, map) = place;
        let pem = match map {
            RootMap::Roots => self.published.roots.as_ref()?,
            RootMap::Revocation => self.published.revocation.as_ref()?,
        };
        self.namespaces.get(namespace)?;
        let found = self.found.get(place);
        if found.is_some_and(|found| found.labelled && found.pem.as_ref() == Some(pem)) {
            return None;
        }
        Some(Write {
            target: self.target(namespace, *map),
            uid: Arc::default(),
            body: Body::Apply {
                fields: json!({"metadata": {"labels": {LABEL: "true"}}, "data": {map.key(): &**pem}}),
                manager: "rutter",
                create: true,
                managed: false,
            },
        })
    }
}

impl Controller for RootCertificates {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |place: &Place| {
            let wanted = self.wanted(place);
            let target = self.target(&place.0, place.1);
            self.ledger.settle(&target, wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.restart_namespaces();
    }
}

/// Feeds the controller with the objects that it watches, and with what the authority publishes.
pub struct RootDriver {
    machine: RootCertificates,
    namespaces: Namespaces,
}

impl RootDriver {
    /// A driver that has seen no objects yet.
    pub fn new(names: &RootMapNames) -> RootDriver {
        RootDriver { machine: RootCertificates::new(names.clone()), namespaces: Namespaces::default() }
    }

    fn select(&mut self, name: &str) {
        self.machine.namespace(name, self.namespaces.is_selected(name));
    }
}

impl Driver for RootDriver {
    fn watched(&self) -> Vec<Watched> {
        let map = |map| Watched::all(Resource::CONFIG_MAP).named(self.machine.names.of(map));
        vec![Watched::all(Resource::NAMESPACE), map(RootMap::Roots), map(RootMap::Revocation)]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        let map = match place {
            0 => {
                self.namespaces.see(object, there);
                return self.select(name);
            }
            1 => RootMap::Roots,
            _ => RootMap::Revocation,
        };
        self.machine.config_map(map, namespace, there.then(|| found(object, map)));
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.namespaces.select_by(&mesh.discovery_selectors);
        let names: Vec<Arc<str>> = self.namespaces.names().cloned().collect();
        names.iter().for_each(|name| self.select(name));
    }

    fn roots(&mut self, published: &PublishedRoots) {
        self.machine.publish(published);
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.machine
    }
}

fn found(object: &Value, map: RootMap) -> Found {
    Found {
        pem: object["data"][map.key()].as_str().map(Into::into),
        labelled: object["metadata"]["labels"]["istio.io/config"] == "true",
        version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into(),
    }
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

    fn targets(driver: &mut RootDriver) -> Vec<String> {
        driver.plan().iter().map(|write| write.target.to_string()).collect()
    }

    #[test]
    fn selected_namespaces_get_what_the_authority_publishes() {
        let mut driver = RootDriver::new(&RootMapNames::default());
        driver.see(0, &namespace("a", "on"), true);
        driver.see(0, &namespace("b", "off"), true);
        assert!(driver.plan().is_empty());
        let roots = PublishedRoots { roots: Some(PEM.into()), revocation: None };
        driver.roots(&roots);
        assert_eq!(driver.plan().len(), 2);
        let selector =
            LabelSelector { match_labels: StringMap::from([("mesh".into(), "on".into())]), ..LabelSelector::default() };
        driver.mesh(&MeshConfig { discovery_selectors: vec![selector], ..MeshConfig::default() });
        driver.see(0, &namespace("c", "on"), true);
        driver.see(0, &namespace("d", "off"), true);
        assert_eq!(targets(&mut driver), ["ConfigMap c/istio-ca-root-cert"]);
        driver.roots(&PublishedRoots { revocation: Some("lists".into()), ..roots });
        assert_eq!(targets(&mut driver), ["ConfigMap a/istio-ca-crl", "ConfigMap c/istio-ca-crl"]);
        // Nothing is removed when the authority is unknown.
        driver.roots(&PublishedRoots::default());
        assert!(driver.plan().is_empty());
    }

    #[test]
    fn what_a_config_map_cannot_hold_is_not_written() {
        let mut driver = RootDriver::new(&RootMapNames::default());
        driver.see(0, &namespace("a", "on"), true);
        driver.roots(&PublishedRoots { roots: Some(PEM.into()), revocation: Some("x".repeat(LIMIT + 1).into()) });
        assert_eq!(targets(&mut driver), ["ConfigMap a/istio-ca-root-cert"]);
    }
}
