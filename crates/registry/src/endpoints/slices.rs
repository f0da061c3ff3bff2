//! EndpointSlices, joined with their pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::core::{AddressType, EndpointSlice};
use config::multicluster::ServiceExport;
use config::{Object, core};
use flow::Reads;
use model::service::{Endpoint, EndpointAddress, Health, ObjectId, SourceId, Workload};

use super::{bare, of_workload};
use crate::inputs::{EndpointSlices, ServiceExports, WorkloadObjectKey};
use crate::workloads::{PodsByAddress, Workloads, locality_of_node, parse_address};

/// Label of slices that a multi-cluster service controller copied from other clusters; they are ignored as duplicates.
const IMPORTED_LABEL: &str = "multicluster.kubernetes.io/service-name";

flow::index! {
    /// EndpointSlices of a Kubernetes service, by its cluster, namespace and name.
    pub SlicesByService: SourceId => members of EndpointSlices = "endpoint slices by service", slices_by_service_keys;
}

fn slices_by_service_keys(key: &SourceId, row: &Arc<Object<EndpointSlice>>) -> Vec<SourceId> {
    let labels = &row.meta.labels;
    let name = labels.get(EndpointSlice::SERVICE_LABEL);
    let counts = row.spec.address_type != AddressType::Fqdn && !labels.contains_key(IMPORTED_LABEL);
    let service = |name: &Arc<str>| SourceId {
        cluster: key.cluster.clone(),
        id: ObjectId { namespace: key.id.namespace.clone(), name: name.clone() },
    };
    name.filter(|_| counts).map(service).into_iter().collect()
}

flow::index! {
    /// Clusters that export a service, with the service's key in each.
    pub ExportsByService: ObjectId => members of ServiceExports = "exports by service", exports_by_service_keys;
}

fn exports_by_service_keys(key: &SourceId, _: &Arc<Object<ServiceExport>>) -> Vec<ObjectId> {
    vec![key.id.clone()]
}

flow::rule! {
    /// The endpoints of one slice, joined with their pods.
    pub SliceEndpoints: SourceId => Arc<[Endpoint]> = "endpoints of a slice", derive_slice_endpoints;
}

fn derive_slice_endpoints(cx: &Reads<'_>, key: &SourceId) -> Option<Arc<[Endpoint]>> {
    let slice = cx.get::<EndpointSlices>(key)?;
    let ports = slice.spec.ports.iter().filter_map(|p| Some((p.name.clone(), p.port?)));
    let ports: Arc<BTreeMap<Arc<str>, u16>> = Arc::new(ports.collect());
    let endpoints = slice.spec.endpoints.iter();
    Some(endpoints.flat_map(|e| endpoint(cx, key, e, &ports)).collect())
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<SlicesByService>();
    b.index::<ExportsByService>();
    b.world::<SliceEndpoints, EndpointSlices>();
}

/// The endpoints of an entry of a slice, one for each address.
fn endpoint(
    cx: &Reads<'_>,
    slice: &SourceId,
    endpoint: &core::Endpoint,
    ports: &Arc<BTreeMap<Arc<str>, u16>>,
) -> Vec<Endpoint> {
    let Some(health) = health(&endpoint.conditions) else {
        return Vec::new();
    };
    let addresses = endpoint.addresses.iter().map(|a| parse_address(a));
    let known = addresses.filter_map(|address| {
        let known = match pod_of(cx, slice, endpoint, &address) {
            Pod::Known(workload) => of_workload(&workload),
            Pod::Awaited => return None,
            Pod::None => Endpoint {
                node: endpoint.node_name.clone(),
                locality: locality_of_node(cx, &slice.cluster, &endpoint.node_name),
                ..bare(cx, &slice.cluster, address.clone())
            },
        };
        Some(Endpoint {
            address,
            ports: ports.clone(),
            health: if known.health == Health::Draining { Health::Draining } else { health },
            ..known
        })
    });
    known.collect()
}

/// Absent: it has terminated.
fn health(conditions: &core::EndpointConditions) -> Option<Health> {
    let (ready, terminating) = (conditions.is_ready(), conditions.is_terminating());
    match (ready, terminating, conditions.is_serving()) {
        (true, ..) => Some(Health::Healthy),
        (false, true, true) => Some(Health::Draining),
        (false, true, false) => None,
        (false, false, _) => Some(Health::Unhealthy),
    }
}

/// The pod of an endpoint.
enum Pod {
    Known(Arc<Workload>),
    /// The referenced pod is not known yet. Without its labels and network the endpoint would be misclassified.
    Awaited,
    /// The endpoint is not a pod.
    None,
}

fn pod_of(cx: &Reads<'_>, slice: &SourceId, endpoint: &core::Endpoint, at: &EndpointAddress) -> Pod {
    if let Some(pod) = endpoint.target_ref.as_ref().filter(|r| &*r.kind == "Pod") {
        let key = WorkloadObjectKey {
            pod: true,
            cluster: slice.cluster.clone(),
            id: ObjectId { namespace: slice.id.namespace.clone(), name: pod.name.clone() },
        };
        return cx.get::<Workloads>(&key).map_or(Pod::Awaited, |w| Pod::Known((*w).clone()));
    }
    let EndpointAddress::Ip(ip) = at else { return Pod::None };
    // Addresses are unique within a cluster only. Of several pods with host network the first is used.
    let pods = cx.get::<PodsByAddress>(ip);
    let mut pods = pods.iter().flat_map(|pods| pods.iter());
    let pod = pods.find(|key| key.cluster == slice.cluster).and_then(|key| cx.get::<Workloads>(key));
    pod.map_or(Pod::None, |w| Pod::Known((*w).clone()))
}
