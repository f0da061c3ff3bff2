//! The services that an object defines.

use std::sync::Arc;

use flow::Reads;
use model::service::{ObjectId, Registry, ServiceKey};
use names::Hostname;
use registry::inputs::{Mesh, ServiceObjectKey};
use registry::services::Definitions;

/// The keys of the services of a ServiceEntry, or of the service of a Service. The object need not exist.
pub(crate) fn keys(cx: &Reads<'_>, is_entry: bool, id: &ObjectId) -> Vec<ServiceKey> {
    if is_entry {
        let key = ServiceObjectKey { registry: Registry::ServiceEntry, cluster: Arc::default(), id: id.clone() };
        return cx.with::<Definitions, _>(&key, |all| {
            all.into_iter().flatten().map(|service| service.key.clone()).collect()
        });
    }
    let host = cx.with::<Mesh, _>(&(), |mesh| Hostname::of_service(&id.name, &id.namespace, &mesh?.domain).ok());
    host.into_iter().map(|hostname| ServiceKey { hostname, namespace: id.namespace.clone() }).collect()
}

/// The kind of such an object.
pub(crate) fn kind(is_entry: bool) -> &'static str {
    if is_entry { "ServiceEntry" } else { "Service" }
}
