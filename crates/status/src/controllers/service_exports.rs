//! A ServiceExport for every service that is meant for the whole mesh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use crate::controllers::{Body, Controller, Ledger, Target, Write};

/// The namespace and the name of a service, and of its export.
type Name = (Arc<str>, Arc<str>);

/// Makes the exports that there are not. One that is there is never touched; one that this made belongs to its service and
/// goes with it.
#[derive(Default, Debug)]
pub struct ServiceExports {
    /// The services that are to be exported: the UID of each.
    services: BTreeMap<Name, Arc<str>>,
    exports: BTreeSet<Name>,
    dirty: BTreeSet<Name>,
    ledger: Ledger,
}

impl ServiceExports {
    /// A service of this UID is to be exported; none: it is not, or it is gone.
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

    /// There is an export of this name, or there is none.
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
            body: Body::Create {
                fields: json!({"metadata": {"ownerReferences": [owner]}}),
                manager: "rutter",
            },
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
    Target {
        group: "multicluster.x-k8s.io",
        version: "v1alpha1",
        kind: "ServiceExport",
        plural: "serviceexports",
        subresource: "",
        namespace: namespace.clone(),
        name: name.clone(),
    }
}
