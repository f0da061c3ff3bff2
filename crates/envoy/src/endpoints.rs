//! Endpoints of clusters (EDS).

use std::sync::Arc;

use bytes::Bytes;
use flow::Reads;
use model::audience::{ClientView, EndpointsAudience, LOCAL_CLUSTER, OutboundKey, OwnWorkload};
use model::xds::Resource;
use registry::inputs::Mesh;
use registry::{NetworkGateways, ServiceEndpoints, Services};
use traffic::clusters::RelevantClientFacts;
use traffic::policy::ClusterRules;
use traffic::policy::preference::{Preference, preference};
use traffic::sessions;

use crate::assignment::{self, Horizon, Plain, Selection};
use crate::cluster::{discovery, is_dns};

flow::rule! {
    /// Encoded endpoints of outbound clusters, shared by all clients with an equal key.
    pub LoadAssignments: AssignmentKey => Resource = "load assignments", derive_load_assignments;
}

/// The facts that decide the endpoints of a cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AssignmentKey {
    /// The cluster.
    pub cluster: OutboundKey,
    /// The facts of the client that the endpoints depend on.
    pub view: ClientView,
}

fn derive_load_assignments(cx: &Reads<'_>, key: &AssignmentKey) -> Option<Resource> {
    let name = key.cluster.cluster_name();
    let body = encode(cx, key, &name)?;
    Some(Resource::new(name, body))
}

/// Encodes the endpoints of a cluster.
fn encode(cx: &Reads<'_>, AssignmentKey { cluster: key, view }: &AssignmentKey, name: &str) -> Option<Bytes> {
    let service = cx.get::<Services>(&key.service)?;
    let port = service.port(key.port)?;
    // DNS clusters contain their endpoints.
    if is_dns(discovery(&service, key.from_endpoints)) {
        return None;
    }
    let rules = ClusterRules::read(cx, key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let (subset, policy) = (rules.subset(), rules.effective(&mesh.config));
    let endpoints = cx.get::<ServiceEndpoints>(&key.service);
    let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
    let plain = Plain::of(cx, &key.service, &policy, endpoints);
    // Gateways are read only if networks matter for this view.
    let gateways = view.network.as_ref().and_then(|_| cx.get::<NetworkGateways>(&()));
    let selection = Selection {
        port_name: &port.name,
        labels: subset.map(|subset| &subset.labels),
        // Below the panic threshold, Envoy uses all known endpoints, which must not include those that are not ready.
        unhealthy: policy.outlier_detection.is_none_or(|outlier| outlier.min_health_percent <= 0),
        draining: sessions::keep_draining(cx, &service),
        view: Some(view),
        mutual_tls: plain.as_ref(),
        only_mutual_tls: key.sni_passthrough,
        ..Selection::default()
    };
    let horizon = gateways.as_ref().zip(view.network.as_ref());
    let horizon = horizon.map(|(gateways, network)| Horizon { gateways, network });
    let preference = preference(&mesh.config, &policy, &service);
    Some(assignment::encode(name, endpoints, selection, horizon, preference).0)
}

flow::rule! {
    /// The endpoints of a cluster, by its name, for these clients. `None` if the cluster does not exist for them.
    pub Endpoints: (Arc<EndpointsAudience>, Arc<str>) => Resource = "endpoints", derive_endpoints;
}

fn derive_endpoints(cx: &Reads<'_>, (audience, name): &(Arc<EndpointsAudience>, Arc<str>)) -> Option<Resource> {
    let key = assignment_key(cx, audience, name)?;
    cx.get::<LoadAssignments>(&key).map(|row| (*row).clone())
}

/// The key of a cluster's assignment for these clients.
fn assignment_key(cx: &Reads<'_>, audience: &EndpointsAudience, name: &str) -> Option<AssignmentKey> {
    let cluster = traffic::clusters::resolve(cx, &audience.scope, name)?;
    let view = cx.with::<RelevantClientFacts, _>(&cluster, |facts| facts.map(|facts| facts.view(audience)))?;
    Some(AssignmentKey { cluster, view })
}

flow::rule! {
    /// The instances of a client's own workload ([`LOCAL_CLUSTER`]). They are only compared with, so no policy applies.
    pub OwnInstances: Arc<OwnWorkload> => Resource = "own instances", derive_own_instances;
}

fn derive_own_instances(cx: &Reads<'_>, own: &Arc<OwnWorkload>) -> Option<Resource> {
    let service = cx.get::<Services>(&own.service)?;
    let selection =
        Selection { port_name: &service.port(own.port)?.name, unhealthy: true, own: Some(own), ..Selection::default() };
    let endpoints = cx.get::<ServiceEndpoints>(&own.service);
    let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
    let (body, _) = assignment::encode(LOCAL_CLUSTER, endpoints, selection, None, Preference::Equal);
    Some(Resource::new(LOCAL_CLUSTER, body))
}
