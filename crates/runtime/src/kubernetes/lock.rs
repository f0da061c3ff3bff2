//! A lease for leader election, stored as a Kubernetes `Lease`.

use crate::leadership::lease::{REMOTE_PREFIX, REVISION};
use crate::leadership::{Lease, Lock, LockError};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use sources::kubernetes::Report;
use tokio::sync::watch;

/// A Kubernetes `Lease`.
pub(crate) struct LeaseLock {
    leases: Api<DynamicObject>,
    name: String,
    revision: String,
    report: watch::Receiver<Report>,
}

/// The name of a lease that each revision has for itself.
pub(crate) fn name_of_revision(lease: &str, revision: &str) -> String {
    format!("{lease}-{}", or_default(revision))
}

fn or_default(revision: &str) -> &str {
    if revision.is_empty() { DEFAULT_REVISION } else { revision }
}

/// The revision of replicas without one. It takes precedence over others unless a revision tag `default` names another.
pub(crate) const DEFAULT_REVISION: &str = "default";

impl LeaseLock {
    /// The lease with this name. The report names the default revision.
    pub(crate) fn new(client: Client, namespace: &str, name: &str, report: watch::Receiver<Report>) -> LeaseLock {
        LeaseLock {
            leases: Api::namespaced_with(client, namespace, &kind()),
            name: name.to_owned(),
            revision: DEFAULT_REVISION.to_owned(),
            report,
        }
    }

    /// Sets the revision of this replica; empty for the default one. The default revision takes a lease from others.
    pub(crate) fn of_revision(self, revision: &str) -> LeaseLock {
        LeaseLock { revision: or_default(revision).to_owned(), ..self }
    }

    /// Marks this replica as running in another cluster than the lease: it yields to replicas there.
    pub(crate) fn in_remote_cluster(self) -> LeaseLock {
        LeaseLock { revision: format!("{REMOTE_PREFIX}{}", self.revision), ..self }
    }

    fn object(&self, lease: &Lease, version: Option<&str>) -> DynamicObject {
        let mut object = DynamicObject::new(&self.name, &kind()).data(json!({ "spec": lease.to_json() }));
        object.metadata.annotations = Some([(REVISION.to_owned(), lease.revision.clone())].into());
        object.metadata.resource_version = version.map(str::to_owned);
        object
    }
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"))
}

impl Lock for LeaseLock {
    fn name(&self) -> &str {
        &self.name
    }

    fn revision(&self) -> &str {
        &self.revision
    }

    fn is_prior(&self) -> bool {
        let report = self.report.borrow();
        report.default_revision.as_deref().unwrap_or(DEFAULT_REVISION)
            == self.revision.trim_start_matches(REMOTE_PREFIX)
    }

    async fn read(&self) -> Result<Option<(Lease, String)>, LockError> {
        let found = self.leases.get_opt(&self.name).await?;
        Ok(found.map(|found| {
            let version = found.metadata.resource_version.clone().unwrap_or_default();
            let annotations = found.metadata.annotations.unwrap_or_default();
            let mut lease = Lease::from_json(&found.data["spec"]);
            lease.revision = annotations.get(REVISION).cloned().unwrap_or_default();
            (lease, version)
        }))
    }

    async fn write(&self, lease: &Lease, version: Option<&str>) -> Result<bool, LockError> {
        let object = self.object(lease, version);
        let written = match version {
            None => self.leases.create(&PostParams::default(), &object).await,
            Some(_) => self.leases.replace(&self.name, &PostParams::default(), &object).await,
        };
        match written {
            Ok(_) => Ok(true),
            // A conflict: the lease was created, changed or deleted meanwhile. Without a version, 404 means that the
            // namespace is missing.
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && version.is_some()) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
