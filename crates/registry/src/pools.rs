//! Services of InferencePools, whose endpoints are the ports of pods.
//!
//! Their names are those of the Services that istiod writes for pools, so that statistics and EnvoyFilters keep theirs. They
//! are exported to no namespace: only Gateways whose routes refer to a pool have its cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Object;
use config::gateway_api::InferencePool;
use flow::Reads;
use model::proxy::Labels;
use model::service::{
    Distribution, Endpoint, ExportTo, ObjectId, Registry, Resolution, Service, ServiceKey, ServicePort, Workload,
};
use names::{Hostname, Protocol};
use sha2::{Digest, Sha256};

use crate::endpoints::of_workload;
use crate::inputs::ServiceObjectKey;
use crate::workloads::select;

/// The port of the services of pools.
pub const PORT: u16 = 54321;
/// The name of this port.
const PORT_NAME: &str = "http-0";
/// The maximum length of a service's name.
const MAX_NAME: usize = 63;

/// The service of a pool.
pub fn service_key(pool: &ObjectId, domain: &str) -> Option<ServiceKey> {
    let hostname = Hostname::of_service(&service_name(&pool.name), &pool.namespace, domain).ok()?;
    Some(ServiceKey { hostname, namespace: pool.namespace.clone() })
}

/// The key of a pool among the objects that define services.
pub fn object_key(pool: ObjectId) -> ServiceObjectKey {
    ServiceObjectKey { registry: Registry::Pool, cluster: Arc::default(), id: pool }
}

/// The pool's name with a hash, so that no other service has it.
fn service_name(pool: &str) -> String {
    let hash = Sha256::digest(pool);
    let suffix = format!("-ip-{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3]);
    let kept: String = pool.chars().take(MAX_NAME - suffix.len()).collect();
    kept + &suffix
}

/// The service that a pool defines.
pub(crate) fn definition(key: &ServiceObjectKey, object: &Object<InferencePool>, domain: &str) -> Option<Arc<Service>> {
    let protocol = match &*object.spec.app_protocol {
        "kubernetes.io/h2c" => Protocol::Http2,
        _ => Protocol::Http,
    };
    Some(Arc::new(Service {
        key: service_key(&key.id, domain)?,
        registry: Registry::Pool,
        object: key.id.clone(),
        cluster: key.cluster.clone(),
        ports: vec![ServicePort { number: PORT, name: PORT_NAME.into(), protocol, target: None }],
        addresses: Vec::new(),
        assigned: Vec::new(),
        cluster_addresses: Arc::default(),
        resolution: Resolution::Endpoints,
        alias_of: None,
        headless: false,
        external: false,
        export_to: ExportTo::Namespaces(BTreeSet::new()),
        subject_alt_names: Vec::new(),
        labels: Labels::new(),
        created: object.meta.creation_timestamp.map(|time| time.unix_seconds()),
        node_local: false,
        publish_not_ready: false,
        cluster_local: false,
        distribution: Distribution::Any,
    }))
}

/// The endpoints of a pool: each target port of each of its pods.
pub(crate) fn endpoints(cx: &Reads<'_>, service: &Service, pool: &InferencePool) -> Vec<Endpoint> {
    if pool.selector.match_labels.is_empty() {
        return Vec::new();
    }
    let pods = select(cx, &service.key.namespace, &pool.selector.match_labels).into_iter();
    let pods = pods.filter(|workload| workload.pod && workload.cluster == service.cluster);
    pods.flat_map(|pod| pool.target_ports.iter().map(|port| at(&pod, port.number)).collect::<Vec<_>>()).collect()
}

/// A port of a pod.
fn at(pod: &Workload, number: u16) -> Endpoint {
    Endpoint { ports: Arc::new([(Arc::from(PORT_NAME), number)].into()), ..of_workload(pod) }
}

#[cfg(test)]
mod tests {
    use super::service_name;

    #[test]
    fn names_of_services_are_those_of_istio() {
        assert_eq!(service_name("a"), "a-ip-ca978112");
        let long = service_name(&"x".repeat(100));
        assert_eq!(long.len(), 63);
        assert!(long.starts_with("xxx") && long[..63 - 8].ends_with("x-ip-"), "{long}");
        assert_ne!(long, service_name(&"x".repeat(101)));
    }
}
