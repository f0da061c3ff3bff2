//! Endpoints of clusters (EDS).

use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{ClientView, EndpointsAudience, OutboundKey, OwnWorkload};
use model::xds::Resource;
use registry::inputs::Mesh;
use registry::{NetworkGateways, ServiceEndpoints, Services};
use resources::istio::{ClientTlsMode, ClientTlsSettings};
use traffic::clusters::ClientNeeds;
use traffic::policy::preference::{Preference, preference};
use traffic::policy::{DestinationPolicies, effective_in};

use crate::assignment::{self, Horizon, Selection};
use crate::cluster::{discovery, has_persistent_sessions, is_dns};

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
}

impl Rule for LoadAssignments {
    fn derive(cx: &Reads<'_>, AssignmentKey { cluster: key, view }: &AssignmentKey) -> Option<Resource> {
        let service = cx.get::<Services>(&key.service)?;
        let port = service.port(key.port)?;
        // Clusters of DNS names have their endpoints inside.
        if is_dns(discovery(&service, key.from_endpoints)) {
            return None;
        }
        let rule = key
            .policy
            .as_ref()
            .and_then(|policy| cx.get::<DestinationPolicies>(policy));
        let subset = rule.as_ref().and_then(|rule| rule.subset(&key.subset));
        if !key.subset.is_empty() && subset.is_none() {
            return None;
        }
        let mesh = cx.get::<Mesh>(&())?;
        let policy = effective_in(&mesh.config, rule.as_deref().map(|rule| &**rule), &key.subset, key.port);
        let endpoints = cx.get::<ServiceEndpoints>(&key.service);
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
            mutual_tls: mutual_tls(policy.tls),
            only_mutual_tls: key.passed_through,
            ..Selection::default()
        };
        let horizon = gateways.as_ref().zip(view.network.as_ref());
        let horizon = horizon.map(|(gateways, network)| Horizon { gateways, network });
        let preference = preference(&mesh.config, &policy, &service);
        let name = key.cluster_name();
        let endpoints = endpoints.as_ref().map(|row| &row[..]).unwrap_or_default();
        let (body, _) = assignment::encode(&name, endpoints, selection, horizon, preference);
        Some(Resource::new(name, body))
    }
}

/// Whether a policy decides about the mesh's mutual TLS; none: the endpoints do.
fn mutual_tls(settings: Option<&ClientTlsSettings>) -> Option<bool> {
    settings.map(|settings| settings.mode == ClientTlsMode::IstioMutual)
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
        let cluster = traffic::clusters::resolve(cx, &audience.scope, name)?;
        let view = cx.with::<ClientNeeds, _>(&cluster, |needs| needs.map(|needs| needs.view(audience)))?;
        cx.get::<LoadAssignments>(&AssignmentKey { cluster, view })
            .map(|row| (*row).clone())
    }
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
