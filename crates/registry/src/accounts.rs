//! Service accounts of services. A relation of its own, so that readers are not derived again when an endpoint with a
//! known account is added.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::service::{Endpoint, ServiceKey};

use crate::ServiceEndpoints;

flow::rule! {
    /// The service accounts of a service's endpoints. None for a service that does not exist.
    pub ServiceIdentities: ServiceKey => Identities = "identities of services", derive_service_identities;
}

/// Namespace and service account of the endpoints whose account is known.
pub type Identities = BTreeSet<(Arc<str>, Arc<str>)>;

fn derive_service_identities(cx: &Reads<'_>, key: &ServiceKey) -> Option<Identities> {
    let endpoints = cx.get::<ServiceEndpoints>(key)?;
    let known = endpoints.iter().filter(|e| !e.service_account.is_empty());
    let all = known.map(|endpoint| (namespace_of(endpoint, key), &endpoint.service_account));
    // Most endpoints have the same account as the previous one.
    let mut last = None;
    let others = all.filter(|account| last.replace(*account) != Some(*account));
    Some(others.map(|(namespace, account)| (namespace.clone(), account.clone())).collect())
}

/// The namespace of an endpoint: its workload's, else that of the service.
fn namespace_of<'a>(endpoint: &'a Endpoint, service: &'a ServiceKey) -> &'a Arc<str> {
    match &endpoint.workload {
        Some(id) => &id.namespace,
        None => &service.namespace,
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ServiceIdentities>();
}
