//! Creates a ServiceExport for every service that is visible to the whole mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::MeshConfig;
use names::Hostname;
use registry::inputs::MeshSettings;
use serde_json::{Value, json};

use crate::namespaces::Namespaces;
use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id};

/// The namespace and name of a service and of its export.
type Name = (Arc<str>, Arc<str>);

/// Creates missing exports. An existing export is never changed. A created one is owned by its service, so that both are
/// deleted together.
#[derive(Default, Debug)]
pub struct ServiceExports {
    /// The UIDs of the services to export.
    services: BTreeMap<Name, Arc<str>>,
    exports: BTreeSet<Name>,
    dirty: BTreeSet<Name>,
    ledger: Ledger,
}

impl ServiceExports {
    /// Sets a service to export, by UID; `None` if it is not exported or was deleted.
    pub fn service(&mut self, namespace: &str, name: &str, uid: Option<&str>) {
        let name: Name = (namespace.into(), name.into());
        match uid {
            Some(uid) => {
                let uid: Arc<str> = uid.into();
                if self.services.insert(name.clone(), uid.clone()) != Some(uid) {
                    self.dirty.insert(name);
                }
            }
            None => {
                if self.services.remove(&name).is_some() {
                    self.ledger.forget(&target(&name));
                }
            }
        }
    }

    /// Records whether an export exists.
    pub fn export(&mut self, namespace: &str, name: &str, there: bool) {
        let name: Name = (namespace.into(), name.into());
        let changed = match there {
            true => self.exports.insert(name.clone()),
            false => self.exports.remove(&name),
        };
        if changed {
            self.ledger.forget(&target(&name));
            self.dirty.insert(name);
        }
    }

    fn wanted(&self, name: &Name) -> Option<Write> {
        let uid = self.services.get(name).filter(|_| !self.exports.contains(name))?;
        let owner = json!({"apiVersion": "v1", "kind": "Service", "name": &*name.1, "uid": &**uid});
        Some(Write {
            target: target(name),
            uid: Arc::default(),
            body: Body::Create { fields: json!({"metadata": {"ownerReferences": [owner]}}), manager: "rutter" },
        })
    }
}

impl Controller for ServiceExports {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |name: &Name| {
            let wanted = self.wanted(name);
            self.ledger.settle(&target(name), wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.dirty.extend(self.services.keys().cloned());
    }
}

fn target((namespace, name): &Name) -> Target {
    Target::new(Resource::SERVICE_EXPORT, namespace, name)
}

/// Feeds the controller with the objects that it watches.
pub struct ExportDriver {
    settings: MeshSettings,
    machine: ServiceExports,
    namespaces: Namespaces,
    /// The UID of each service, by namespace and name.
    services: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>,
}

impl ExportDriver {
    /// A driver for services in this DNS domain.
    pub fn new(domain: &Arc<str>) -> ExportDriver {
        ExportDriver {
            settings: MeshSettings { domain: domain.clone(), cluster_id: Arc::default(), ..MeshSettings::default() },
            machine: ServiceExports::default(),
            namespaces: Namespaces::default(),
            services: BTreeMap::new(),
        }
    }

    /// Updates all services of a namespace.
    fn update_namespace(&mut self, namespace: &str) {
        let selected = self.namespaces.is_selected(namespace);
        for (name, uid) in self.services.get(namespace).into_iter().flatten() {
            let exported = selected && is_of_mesh(&self.settings, namespace, name);
            self.machine.service(namespace, name, exported.then_some(uid));
        }
    }
}

/// Whether a service is visible to clients in other clusters.
fn is_of_mesh(settings: &MeshSettings, namespace: &str, name: &str) -> bool {
    let host = Hostname::parse(&format!("{name}.{namespace}.svc.{}", settings.domain));
    host.is_ok_and(|host| !registry::is_cluster_local(settings, &host))
}

impl Driver for ExportDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(Resource::NAMESPACE), Watched::all(Resource::SERVICE_EXPORT), Watched::all(Resource::SERVICE)]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        match place {
            0 => {
                self.namespaces.see(object, there);
                self.update_namespace(name);
            }
            1 => self.machine.export(namespace, name, there),
            _ if there && object["metadata"].get("deletionTimestamp").is_none() => {
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                let services = self.services.entry(namespace.into()).or_default();
                services.insert(name.into(), uid.into());
                let exported = self.namespaces.is_selected(namespace) && is_of_mesh(&self.settings, namespace, name);
                self.machine.service(namespace, name, exported.then_some(uid));
            }
            _ => {
                if let Some(services) = self.services.get_mut(namespace) {
                    services.remove(name);
                }
                self.machine.service(namespace, name, None);
            }
        }
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.settings.config = mesh.clone();
        self.namespaces.select_by(&mesh.discovery_selectors);
        let namespaces: Vec<Arc<str>> = self.services.keys().cloned().collect();
        namespaces.iter().for_each(|namespace| self.update_namespace(namespace));
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.machine
    }
}
