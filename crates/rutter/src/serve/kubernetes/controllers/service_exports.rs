//! Exports of the services of one cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::MeshConfig;
use names::Hostname;
use registry::inputs::MeshSettings;
use serde_json::Value;
use status::controllers::{Controller as _, ServiceExports, Write};

use super::namespaces::Namespaces;
use super::{Driver, Watched, id};

pub(super) struct ExportDriver {
    settings: MeshSettings,
    machine: ServiceExports,
    namespaces: Namespaces,
    /// The UID of each service, by namespace and name.
    services: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<str>>>,
}

impl ExportDriver {
    /// For services of this domain.
    pub(super) fn new(domain: &Arc<str>) -> ExportDriver {
        ExportDriver {
            settings: MeshSettings {
                config: MeshConfig::default(),
                domain: domain.clone(),
                cluster_id: Arc::default(),
                sharing: Default::default(),
                features: Default::default(),
                assigned_addresses: true,
            },
            machine: ServiceExports::default(),
            namespaces: Namespaces::default(),
            services: BTreeMap::new(),
        }
    }

    /// Tells the machine of all services of a namespace.
    fn tell(&mut self, namespace: &str) {
        let selected = self.namespaces.is_selected(namespace);
        for (name, uid) in self.services.get(namespace).into_iter().flatten() {
            let exported = selected && is_of_mesh(&self.settings, namespace, name);
            self.machine.service(namespace, name, exported.then_some(uid));
        }
    }
}

/// Whether clients of other clusters may use a service.
fn is_of_mesh(settings: &MeshSettings, namespace: &str, name: &str) -> bool {
    let host = Hostname::parse(&format!("{name}.{namespace}.svc.{}", settings.domain));
    host.is_ok_and(|host| !registry::is_cluster_local(settings, &host))
}

impl Driver for ExportDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![
            Watched::all("", "Namespace", "namespaces"),
            Watched::all("multicluster.x-k8s.io", "ServiceExport", "serviceexports").at("v1alpha1"),
            Watched::all("", "Service", "services"),
        ]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        match place {
            0 => {
                self.namespaces.see(object, there);
                self.tell(name);
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
        namespaces.iter().for_each(|namespace| self.tell(namespace));
    }

    fn restart(&mut self) {
        self.machine.restart();
    }

    fn plan(&mut self) -> Vec<Write> {
        self.machine.plan()
    }
}
