//! Built-in clusters of sidecars: inbound, passthrough and black hole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use config::MeshConfig;
use config::istio::ConnectionPoolSettings;
use config::mesh::InboundMode;
use model::audience::{DefaultEndpoint, IpFamilies};
use model::service::Service;
use protos::Value;
use protos::envoy::config::cluster::v3::cluster::{DiscoveryType, LbConfig, LbPolicy, OriginalDstLbConfig};
use protos::envoy::config::core::v3::{Address, BindConfig, ExtraSourceAddress};
use protos::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use protos::envoy::config::endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints};
use traffic::policy::{DestinationPolicy, effective_in};
use traffic::stats;

use super::draft::Draft;
use super::pool;
use super::telemetry;
use crate::parts::{address, istio_metadata, origin, pipe, seconds, socket_address, stat_name};

/// The source address of connections to the application, which iptables does not capture again.
const BIND_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// The same address in IPv6.
const BIND_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
/// The maximum duration that Envoy supports, in seconds.
const FOREVER: i64 = 9_223_372_035;
/// The idle timeout of connections in a passthrough cluster, in seconds.
const PASSTHROUGH_IDLE: i64 = 300;

/// `PassthroughCluster`: connects to the original destination.
pub(crate) fn passthrough(mesh: &MeshConfig) -> Bytes {
    passthrough_draft("PassthroughCluster", mesh).finish()
}

/// `InboundPassthroughCluster`: connects to the application at the original address and port.
pub(crate) fn inbound_passthrough(mesh: &MeshConfig, ip: IpFamilies) -> Bytes {
    let mut draft = passthrough_draft("InboundPassthroughCluster", mesh);
    // Istio uses the same name for both in statistics.
    draft.cluster.alt_stat_name = stat_name("PassthroughCluster");
    draft.cluster.upstream_bind_config = Some(bind(ip));
    draft.finish()
}

/// `BlackHoleCluster`: has no endpoints.
pub(crate) fn black_hole(mesh: &MeshConfig) -> Bytes {
    let mut draft = Draft::new("BlackHoleCluster", DiscoveryType::Static);
    pool::apply_connect_timeout(&mut draft, mesh, None);
    draft.finish()
}

/// The facts that decide an inbound cluster.
#[derive(Clone, Copy)]
pub(crate) struct Inbound<'a> {
    /// The workload's port.
    pub(crate) port: u16,
    pub(crate) protocol: names::Protocol,
    pub(crate) endpoint: Option<&'a DefaultEndpoint>,
    pub(crate) ip: IpFamilies,
    pub(crate) mesh: &'a MeshConfig,
    /// The connection pool of the `Sidecar`.
    pub(crate) pool: Option<&'a ConnectionPoolSettings>,
    /// The service that selects the port, and the service's port.
    pub(crate) service: Option<(&'a Service, u16)>,
    /// The policy of that service.
    pub(crate) rule: Option<&'a DestinationPolicy>,
}

/// `inbound|PORT||`: connects to the application's port.
///
/// The connection pool is that of a `Sidecar`, or else of the service's DestinationRule, because the server's proxy
/// must accept what clients may send; or else the mesh's default. Other policies of DestinationRules do not apply.
pub(crate) fn inbound(inbound: &Inbound<'_>) -> Bytes {
    let Inbound { port, protocol, endpoint, ip, mesh, pool, service, rule } = *inbound;
    let name = format!("inbound|{port}||");
    let fixed = match endpoint {
        Some(DefaultEndpoint::Loopback { port, v6: true }) if ip == IpFamilies::Dual => {
            Some(address(Ipv6Addr::LOCALHOST.into(), *port))
        }
        Some(DefaultEndpoint::Loopback { port, .. }) => Some(address(ip.loopback(), *port)),
        Some(DefaultEndpoint::Unix(path)) => Some(pipe(path)),
        Some(DefaultEndpoint::Instance(_)) => None,
        None if mesh.inbound_traffic_policy.mode == InboundMode::Localhost => Some(address(ip.loopback(), port)),
        None => None,
    };
    let mut draft = match fixed {
        Some(address) => to_address(&name, address),
        None => to_original_destination(&name, endpoint, ip),
    };
    draft.balancing();
    if protocol.is_http() || protocol.is_unsupported() {
        draft.keep_case(mesh);
    }
    if protocol.is_http2() {
        draft.speak_http2();
    } else if protocol.is_unsupported() {
        draft.speak_as_client();
    }
    let policy = effective_in(mesh, rule, "", service.map_or(0, |(_, port)| port));
    pool::apply(&mut draft, mesh, pool.or(policy.connection_pool), policy.retry_budget);
    draft.cluster.metadata = istio_metadata(metadata(service.map(|(service, _)| service), rule));
    if let Some((service, number)) = service.filter(|_| !mesh.inbound_cluster_stat_name.is_empty()) {
        let prefix = stats::prefix(&mesh.inbound_cluster_stat_name, service, number, "", port);
        draft.cluster.alt_stat_name = stat_name(&prefix);
    }
    draft.finish()
}

/// The metadata that telemetry and `istioctl` read.
fn metadata(service: Option<&Service>, rule: Option<&DestinationPolicy>) -> Vec<(&'static str, Value)> {
    let ruled = rule.filter(|rule| rule.policy.is_some()).and_then(|rule| rule.origins.first());
    let mut fields: Vec<(&'static str, Value)> = ruled.map(|id| origin("destination-rule", id)).into_iter().collect();
    fields.extend(service.map(telemetry::services));
    fields
}

fn to_address(name: &str, address: Address) -> Draft {
    let mut draft = Draft::new(name, DiscoveryType::Static);
    let endpoint = Endpoint { address: Some(address), ..Default::default() };
    let endpoint = LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() };
    let group = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() };
    draft.cluster.load_assignment =
        Some(ClusterLoadAssignment { cluster_name: name.to_owned(), endpoints: vec![group], ..Default::default() });
    draft
}

fn to_original_destination(name: &str, endpoint: Option<&DefaultEndpoint>, ip: IpFamilies) -> Draft {
    let mut draft = Draft::new(name, DiscoveryType::OriginalDst);
    draft.set_original_destination();
    // There is one host per address of the workload, so nothing needs cleanup.
    draft.cluster.cleanup_interval = Some(seconds(FOREVER));
    draft.cluster.upstream_bind_config = Some(bind(ip));
    if let Some(DefaultEndpoint::Instance(port)) = endpoint {
        let upstream_port_override = Some(u32::from(*port));
        let config = OriginalDstLbConfig { upstream_port_override, ..Default::default() };
        draft.cluster.lb_config = Some(LbConfig::OriginalDstLbConfig(config));
    }
    draft
}

fn passthrough_draft(name: &str, mesh: &MeshConfig) -> Draft {
    let mut draft = Draft::new(name, DiscoveryType::OriginalDst);
    draft.cluster.lb_policy = LbPolicy::ClusterProvided.into();
    passthrough_options(&mut draft, mesh);
    draft
}

/// Sets the connection settings of clusters for unknown destinations.
pub(crate) fn passthrough_options(draft: &mut Draft, mesh: &MeshConfig) {
    draft.speak_as_client();
    draft.keep_case(mesh);
    draft.http().common_http_protocol_options.get_or_insert_default().idle_timeout = Some(seconds(PASSTHROUGH_IDLE));
    let pool = mesh.default_traffic_policy.as_ref().and_then(|policy| policy.connection_pool.as_ref());
    pool::apply(draft, mesh, pool, None);
}

/// Binds connections to the address that iptables exempts. Envoy selects the right family.
fn bind(ip: IpFamilies) -> BindConfig {
    let source: IpAddr = if ip == IpFamilies::V6 { BIND_V6.into() } else { BIND_V4.into() };
    let extra = (ip == IpFamilies::Dual)
        .then(|| ExtraSourceAddress { address: Some(socket_address(BIND_V6.into(), 0)), ..Default::default() });
    BindConfig {
        source_address: Some(socket_address(source, 0)),
        extra_source_addresses: extra.into_iter().collect(),
        ..Default::default()
    }
}
