//! Endpoints of clusters (EDS).

use std::collections::BTreeMap;
use std::sync::Arc;

use config::istio::ClientTlsMode;
use flow::{Reads, Relation, Rule};
use model::audience::{ClientView, EndpointSpec, EndpointsAudience, Leds, OutboundKey, OwnWorkload};
use model::service::{Endpoint, ServiceKey};
use model::xds::Resource;
use registry::inputs::Mesh;
use registry::{NetworkGateways, ServiceEndpoints, Services};
use traffic::Catalogue;
use traffic::clusters::RelevantClientFacts;
use traffic::policy::preference::{Preference, preference};
use traffic::policy::{ClusterRules, EffectivePolicy};

use crate::assignment::{self, Group, Horizon, Plain, Selection, apart};
use crate::cluster::{discovery, has_persistent_sessions, is_dns, weighs_localities};

/// The cluster of the bootstrap that stands for the client's own workload.
const LOCAL_CLUSTER: &str = "local_cluster";

/// Encoded endpoints of outbound clusters, shared by all clients to whom the cluster is the same.
pub struct LoadAssignments;

impl Relation for LoadAssignments {
    const NAME: &'static str = "load assignments";
    type Key = AssignmentKey;
    type Row = Resource;
}

/// What decides the endpoints of a cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AssignmentKey {
    /// The cluster.
    pub cluster: OutboundKey,
    /// What they depend on of the client.
    pub view: ClientView,
    /// They are sent singly if they are many.
    pub apart: Option<Leds>,
}

impl Rule for LoadAssignments {
    fn derive(cx: &Reads<'_>, key: &AssignmentKey) -> Option<Resource> {
        let encode = |name: &str, groups: &[Group<'_>], weights: bool| match apart::applies(key.apart, name, groups) {
            Some(apart) => apart::assignment(name, groups, apart, weights),
            None => assignment::whole(name, groups),
        };
        let name = key.cluster.cluster_name();
        let body = grouped(cx, key, |groups, weights| encode(&name, groups, weights))?;
        Some(Resource::new(name, body))
    }
}

/// The endpoints of a cluster in groups, and whether the weights of these count.
fn grouped<T>(
    cx: &Reads<'_>,
    AssignmentKey { cluster: key, view, .. }: &AssignmentKey,
    encode: impl FnOnce(&[Group<'_>], bool) -> T,
) -> Option<T> {
    let service = cx.get::<Services>(&key.service)?;
    let port = service.port(key.port)?;
    // Clusters of DNS names have their endpoints inside.
    if is_dns(discovery(&service, key.from_endpoints)) {
        return None;
    }
    let rules = ClusterRules::read(cx, key)?;
    let mesh = cx.get::<Mesh>(&())?;
    let (subset, policy) = (rules.subset(), rules.effective(&mesh.config));
    let endpoints = cx.get::<ServiceEndpoints>(&key.service);
    let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
    let plain = plain_at(cx, &key.service, &policy, endpoints);
    // Where networks have no meaning, nobody reads where they are entered.
    let gateways = view.network.as_ref().and_then(|_| cx.get::<NetworkGateways>(&()));
    let selection = Selection {
        port_name: &port.name,
        labels: subset.map(|subset| &subset.labels),
        // Below the share of healthy endpoints that is asked for Envoy uses all that it knows. Those that are not
        // ready must not be among them.
        unhealthy: policy
            .outlier_detection
            .is_none_or(|outlier| outlier.min_health_percent <= 0),
        draining: has_persistent_sessions(&service),
        view: Some(view),
        mutual_tls: plain.as_ref(),
        only_mutual_tls: key.sni_passthrough,
        ..Selection::default()
    };
    let horizon = gateways.as_ref().zip(view.network.as_ref());
    let horizon = horizon.map(|(gateways, network)| Horizon { gateways, network });
    let preference = preference(&mesh.config, &policy, &service);
    let weights = weighs_localities(&preference);
    let groups = assignment::groups(endpoints, selection, horizon, preference);
    Some(encode(&groups, weights))
}

/// The collections of a large cluster whose endpoints are sent singly, and what is in each. None where it is not large.
pub struct EndpointCollections;

impl Relation for EndpointCollections {
    const NAME: &'static str = "collections of endpoints";
    type Key = AssignmentKey;
    type Row = BTreeMap<Arc<str>, Catalogue>;
}

impl Rule for EndpointCollections {
    fn derive(cx: &Reads<'_>, key: &AssignmentKey) -> Option<BTreeMap<Arc<str>, Catalogue>> {
        let name = key.cluster.cluster_name();
        let collections = |groups: &[Group<'_>]| {
            let apart = apart::applies(key.apart, &name, groups)?;
            Some(apart::collections(&name, groups, apart.generation))
        };
        let collections = grouped(cx, key, |groups, _| collections(groups))??;
        Some(collections.into_iter().collect())
    }
}

/// What is in a collection of endpoints, by its name, as these clients see it.
pub struct EndpointCatalogue;

impl Relation for EndpointCatalogue {
    const NAME: &'static str = "endpoint catalogue";
    type Key = (Arc<EndpointsAudience>, Arc<str>);
    type Row = Catalogue;
}

impl Rule for EndpointCatalogue {
    fn derive(cx: &Reads<'_>, (audience, collection): &(Arc<EndpointsAudience>, Arc<str>)) -> Option<Catalogue> {
        let (cluster, generation) = apart::cluster_of(collection)?;
        if audience.leds?.generation != generation {
            return None;
        }
        let key = assignment_key(cx, audience, &cluster)?;
        cx.with::<EndpointCollections, _>(&key, |collections| collections?.get(collection).cloned())
    }
}

/// The generation of a collection's name ([`Leds`]). None: it is no collection of endpoints.
pub fn generation_of(collection: &str) -> Option<u32> {
    apart::cluster_of(collection).map(|(_, generation)| generation)
}

/// Encoded endpoints that are sent by themselves, by name.
pub struct LbEndpoints;

impl Relation for LbEndpoints {
    const NAME: &'static str = "single endpoints";
    type Key = (Arc<str>, Arc<EndpointSpec>);
    type Row = Resource;
}

impl Rule for LbEndpoints {
    fn derive(_: &Reads<'_>, (name, spec): &(Arc<str>, Arc<EndpointSpec>)) -> Option<Resource> {
        Some(Resource::new(name.clone(), apart::endpoint(spec)))
    }
}

/// Which of these endpoints are called in plain text although they could take the mesh's mutual TLS; none: all are, for a
/// rule has other TLS. A rule that asks for the mesh's TLS goes before what workloads take.
pub(crate) fn plain_at(
    cx: &Reads<'_>,
    service: &ServiceKey,
    policy: &EffectivePolicy<'_>,
    endpoints: &[Endpoint],
) -> Option<Plain> {
    match policy.tls.map(|tls| tls.mode) {
        None => Some(Plain::of(cx, service, endpoints)),
        Some(ClientTlsMode::IstioMutual) => Some(Plain::default()),
        Some(_) => None,
    }
}

/// The endpoints of a cluster, by its name, as these clients see it. None for a name that means nothing to them.
pub struct Endpoints;

impl Relation for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = (Arc<EndpointsAudience>, Arc<str>);
    type Row = Resource;
}

impl Rule for Endpoints {
    fn derive(cx: &Reads<'_>, (audience, name): &(Arc<EndpointsAudience>, Arc<str>)) -> Option<Resource> {
        if &**name == LOCAL_CLUSTER {
            return own_instances(cx, audience.own.as_deref()?);
        }
        let key = assignment_key(cx, audience, name)?;
        cx.get::<LoadAssignments>(&key).map(|row| (*row).clone())
    }
}

/// What the name of a cluster means to these clients.
fn assignment_key(cx: &Reads<'_>, audience: &EndpointsAudience, name: &str) -> Option<AssignmentKey> {
    let cluster = traffic::clusters::resolve(cx, &audience.scope, name)?;
    let view = cx.with::<RelevantClientFacts, _>(&cluster, |facts| facts.map(|facts| facts.view(audience)))?;
    Some(AssignmentKey {
        cluster,
        view,
        apart: audience.leds,
    })
}

/// The instances of a client's own workload. They are compared with, and never called, so that no policy has a say.
fn own_instances(cx: &Reads<'_>, own: &OwnWorkload) -> Option<Resource> {
    let service = cx.get::<Services>(&own.service)?;
    let selection = Selection {
        port_name: &service.port(own.port)?.name,
        unhealthy: true,
        own: Some(own),
        ..Selection::default()
    };
    let endpoints = cx.get::<ServiceEndpoints>(&own.service);
    let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
    let (body, _) = assignment::encode(LOCAL_CLUSTER, endpoints, selection, None, Preference::Equal);
    Some(Resource::new(LOCAL_CLUSTER, body))
}
