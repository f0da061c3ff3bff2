//! The lease by which one of several replicas writes, an object of Kubernetes.

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sinks::{Lease, Lock};

/// A `Lease` of Kubernetes.
pub(in crate::serve) struct LeaseLock {
    leases: Api<DynamicObject>,
    name: String,
}

impl LeaseLock {
    /// The lease of this name.
    pub(in crate::serve) fn new(client: Client, namespace: &str, name: &str) -> LeaseLock {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"));
        LeaseLock {
            leases: Api::namespaced_with(client, namespace, &kind),
            name: name.to_owned(),
        }
    }

    fn object(&self, spec: Value, version: Option<&str>) -> Result<DynamicObject, String> {
        let mut object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.name },
            "spec": spec,
        });
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version.into();
        }
        serde_json::from_value(object).map_err(|error| error.to_string())
    }
}

impl Lock for LeaseLock {
    async fn read(&self) -> Result<Option<(Lease, String)>, String> {
        let found = self
            .leases
            .get_opt(&self.name)
            .await
            .map_err(|error| error.to_string())?;
        Ok(found.map(|found| {
            let version = found.metadata.resource_version.clone().unwrap_or_default();
            (Lease::from_json(&found.data["spec"]), version)
        }))
    }

    async fn write(&self, lease: &Lease, version: Option<&str>) -> Result<bool, String> {
        let object = self.object(lease.to_json(), version)?;
        let written = match version {
            None => self.leases.create(&PostParams::default(), &object).await,
            Some(_) => self.leases.replace(&self.name, &PostParams::default(), &object).await,
        };
        match written {
            Ok(_) => Ok(true),
            // Somebody else was first: it is there already, is newer, or is gone. Without a version 404 is the namespace.
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && version.is_some()) => {
                Ok(false)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
