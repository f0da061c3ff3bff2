//! Clusters.

use std::sync::Arc;

use config::istio::{ClientTlsMode, ConsistentHash, HashAlgorithm, LbPolicy, LoadBalancerSettings, SimpleLb};
use flow::Reads;
use model::audience::{OutboundKey, Scope};
use model::service::{Resolution, Service};
use model::xds::Resource;
use protos::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use protos::envoy::config::cluster::v3::cluster::{
    DiscoveryType, EdsClusterConfig, LbConfig, LbPolicy as Algorithm, RingHashLbConfig,
};
use protos::envoy::config::cluster::v3::load_balancing_policy::Policy;
use protos::envoy::config::cluster::v3::{CircuitBreakers, LoadBalancingPolicy};
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::extensions::load_balancing_policies::least_request::v3::LeastRequest;
use protos::envoy::extensions::load_balancing_policies::round_robin::v3::RoundRobin;
use protos::envoy::extensions::load_balancing_policies::wrr_locality::v3::WrrLocality;
use protos::{Message, Name};
use registry::inputs::Mesh;
use registry::{ServiceEndpoints, ServiceIdentities, Services};
use traffic::policy::preference::Preference;
use traffic::policy::{ClusterRules, EffectivePolicy};
use traffic::sessions;

use super::tls;
use crate::assignment::{self, Selection};
use crate::cluster::{Draft, names_of};
use crate::parts::{aggregated_discovery, extension};

/// The maximum ring size in gRPC.
const MAX_RING_SIZE: u64 = 8 * 1024 * 1024;
/// The default ring size.
const RING_SIZE: u64 = 1024;

flow::rule! {
    /// The clusters of gRPC clients, by the requested name. `None` if the cluster does not exist for them.
    pub GrpcClusters: (Arc<Scope>, Arc<str>) => Resource = "grpc clusters", derive_grpc_clusters;
}

fn derive_grpc_clusters(cx: &Reads<'_>, (scope, name): &(Arc<Scope>, Arc<str>)) -> Option<Resource> {
    let key = traffic::clusters::resolve(cx, scope, name).filter(|key| !key.sni_passthrough)?;
    cx.get::<EncodedGrpcClusters>(&key).map(|row| (*row).clone())
}

flow::rule! {
    /// Encoded clusters for gRPC clients, shared by all clients with an equal key.
    pub EncodedGrpcClusters: OutboundKey => Resource = "encoded grpc clusters", derive_encoded_grpc_clusters;
}

fn derive_encoded_grpc_clusters(cx: &Reads<'_>, key: &OutboundKey) -> Option<Resource> {
    let service = cx.get::<Services>(&key.service)?;
    let mesh = cx.get::<Mesh>(&())?;
    let rules = ClusterRules::read(cx, key)?;
    let (subset, policy) = (rules.subset(), rules.effective(&mesh.config));
    if policy.is_refused {
        return None;
    }
    let name = key.cluster_name();
    let mut draft = Draft::new(&name, DiscoveryType::Eds);
    if by_dns(&service) {
        let endpoints = cx.get::<ServiceEndpoints>(&key.service)?;
        let selection = Selection {
            port_name: &service.port(key.port)?.name,
            labels: subset.map(|subset| &subset.labels),
            dns: true,
            // gRPC resolves one name only.
            single: true,
            ..Selection::default()
        };
        let (bytes, count) = assignment::encode(&name, &endpoints, selection, None, Preference::Equal);
        if count == 0 {
            return None;
        }
        draft.set_discovery(DiscoveryType::LogicalDns);
        draft.cluster.load_assignment = ClusterLoadAssignment::decode(bytes).ok();
    } else {
        draft.cluster.eds_cluster_config =
            Some(EdsClusterConfig { eds_config: Some(aggregated_discovery()), service_name: name.clone() });
    }
    balance(&mut draft, policy.load_balancer);
    limit_requests(&mut draft, &policy);
    if sessions::keep_draining(cx, &service) {
        draft.keep_draining();
    }
    if policy.tls.is_some_and(|tls| tls.mode == ClientTlsMode::IstioMutual) {
        let identities = cx.get::<ServiceIdentities>(&key.service);
        let names = names_of(&service, identities.as_deref(), &mesh.config);
        draft.cluster.transport_socket = Some(tls::to_server(&names));
    }
    Some(Resource::new(name, draft.finish()))
}

fn by_dns(service: &Service) -> bool {
    matches!(service.resolution, Resolution::Dns | Resolution::DnsRoundRobin)
}

/// Sets the algorithm. Unsupported ones become the nearest that gRPC has: round robin (its default) for those that
/// spread requests, a ring for those that hash them.
fn balance(draft: &mut Draft, settings: Option<&LoadBalancerSettings>) {
    match settings.and_then(|settings| settings.policy.as_ref()) {
        Some(LbPolicy::ConsistentHash(hash)) => {
            draft.cluster.lb_policy = Algorithm::RingHash.into();
            draft.cluster.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
                minimum_ring_size: Some(ring_size(hash)),
                ..Default::default()
            }));
        }
        // Not every gRPC library supports it, and those without reject a cluster that requires it. It is therefore the
        // first of two policies, in a field that the oldest libraries ignore.
        Some(LbPolicy::Simple(SimpleLb::LeastRequest | SimpleLb::LeastConn)) => {
            let either = policies(vec![
                policy("envoy.load_balancing_policies.least_request", &LeastRequest::default()),
                policy("envoy.load_balancing_policies.round_robin", &RoundRobin::default()),
            ]);
            let by_locality = WrrLocality { endpoint_picking_policy: Some(either) };
            let by_locality = policy("envoy.load_balancing_policies.wrr_locality", &by_locality);
            draft.cluster.load_balancing_policy = Some(policies(vec![by_locality]));
        }
        Some(LbPolicy::Simple(_) | LbPolicy::BackendUtilization(_)) | None => {}
    }
}

fn ring_size(hash: &ConsistentHash) -> u64 {
    let asked = match &hash.algorithm {
        Some(HashAlgorithm::RingHash(settings)) => settings.minimum_ring_size,
        Some(HashAlgorithm::Maglev(_)) => 0,
        None => hash.minimum_ring_size,
    };
    if asked == 0 { RING_SIZE } else { asked.min(MAX_RING_SIZE) }
}

fn policies(policies: Vec<Policy>) -> LoadBalancingPolicy {
    LoadBalancingPolicy { policies }
}

fn policy<M: Message + Name>(name: &str, config: &M) -> Policy {
    Policy { typed_extension_config: Some(extension(name, config)) }
}

/// Limits concurrent requests, the only limit that gRPC supports.
fn limit_requests(draft: &mut Draft, policy: &EffectivePolicy<'_>) {
    let http = policy.connection_pool.and_then(|pool| pool.http.as_ref());
    let limit = http.and_then(|http| u32::try_from(http.http2_max_requests).ok());
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        let thresholds = Thresholds { max_requests: Some(limit), ..Default::default() };
        draft.cluster.circuit_breakers = Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() });
    }
}
