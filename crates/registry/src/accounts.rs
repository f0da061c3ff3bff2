//! Who the endpoints of a service are: their service accounts, and whether some of them take the mesh's mutual TLS. Apart
//! from the endpoints, so that nothing is derived again when an endpoint comes that is as the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::ServiceKey;

use crate::ServiceEndpoints;

/// Who the endpoints of a service are. None for a service without endpoints.
pub struct ServiceIdentities;

impl Relation for ServiceIdentities {
    const NAME: &'static str = "identities of services";
    type Key = ServiceKey;
    type Row = Identities;
}

/// Who the endpoints of a service are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identities {
    /// Namespace and service account, of those whose account is known.
    pub accounts: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Some endpoints take the mesh's mutual TLS.
    pub mutual_tls: bool,
}

impl Rule for ServiceIdentities {
    fn derive(cx: &Reads<'_>, key: &ServiceKey) -> Option<Identities> {
        let endpoints = cx.get::<ServiceEndpoints>(key)?;
        let account = |endpoint: &model::service::Endpoint| {
            let namespace = match &endpoint.workload {
                Some(id) => &id.namespace,
                None => &key.namespace,
            };
            (!endpoint.service_account.is_empty()).then(|| (namespace.clone(), endpoint.service_account.clone()))
        };
        Some(Identities {
            accounts: endpoints.iter().filter_map(account).collect(),
            mutual_tls: endpoints.iter().any(|endpoint| endpoint.mutual_tls),
        })
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ServiceIdentities>();
}
