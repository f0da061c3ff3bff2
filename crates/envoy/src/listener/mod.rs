//! Listeners (LDS).

pub mod equal_parts;
mod filters;
mod http;
mod inspect;
mod limits;
mod policies;
mod stats;
mod tcp;
mod udp;

use std::sync::Arc;

use bytes::Bytes;
use config::MeshConfig;
use flow::Reads;
use model::listener::{Bind, ChainKind, ChainMatch, ChainSpec, Direction, ListenerSpec, Transport};
use model::xds::Resource;
use protos::envoy::config::core::v3::{Address, TrafficDirection, UdpSocketConfig};
use protos::envoy::config::listener::v3::listener::ConnectionBalanceConfig;
use protos::envoy::config::listener::v3::listener::connection_balance_config::{BalanceType, ExactBalance};
use protos::envoy::config::listener::v3::{
    AdditionalAddress, FilterChain, FilterChainMatch, Listener, QuicProtocolOptions, UdpListenerConfig,
};
use registry::proxy_settings::mesh_of;
use security::telemetry::{EffectiveTelemetry, Telemetry};

use policies::PolicyFilters;

use crate::parts::{address, istio_metadata, network_filter, origin, pipe, range, seconds, udp_address};
use crate::{access_log, dns_cache, tls};

/// The timeout of a TLS handshake, in seconds.
const HANDSHAKE: i64 = 15;
/// Connections that a worker accepts per event: more would be distributed unevenly between workers.
const ACCEPTED_AT_A_TIME: u32 = 1;

flow::rule! {
    /// Encoded listeners.
    pub Listeners: Arc<ListenerSpec> => Resource = "listeners", derive_listeners;
}

fn derive_listeners(cx: &Reads<'_>, key: &Arc<ListenerSpec>) -> Option<Resource> {
    let mesh = mesh_of(cx, key.overrides.as_ref())?;
    let telemetry = cx.get::<EffectiveTelemetry>(&())?;
    let policies = PolicyFilters::of(cx, key);
    Some(equal_parts::listener(cx, key.name.clone(), &encode(key, &mesh.config, &telemetry, &policies)))
}

fn encode(spec: &ListenerSpec, mesh: &MeshConfig, telemetry: &Telemetry, policies: &PolicyFilters) -> Bytes {
    let filter_chain = |chain: &ChainSpec| filter_chain(chain, spec, (mesh, telemetry), policies);
    let (tcp, quic) = (spec.transport == Transport::Tcp, spec.is_quic());
    let (address, additional) = bound_to(&spec.bind, tcp);
    let direction = match spec.direction {
        Direction::Inbound => TrafficDirection::Inbound,
        // In Istio's terms, traffic that enters through a gateway is outbound.
        Direction::Outbound | Direction::Gateway => TrafficDirection::Outbound,
    };
    let listener = Listener {
        name: spec.name.to_string(),
        address: Some(address),
        additional_addresses: additional,
        traffic_direction: direction.into(),
        bind_to_port: (!spec.bind_to_port).then_some(false),
        max_connections_to_accept_per_socket_event: (spec.bind_to_port && tcp).then_some(ACCEPTED_AT_A_TIME),
        udp_listener_config: quic.then(|| UdpListenerConfig {
            quic_options: Some(QuicProtocolOptions::default()),
            downstream_socket_config: Some(UdpSocketConfig::default()),
            ..Default::default()
        }),
        connection_balance_config: spec.exact_balance.then(balanced),
        enable_reuse_port: spec.exclusive.then_some(false),
        use_original_dst: spec.use_original_dst.then_some(true),
        transparent: spec.transparent.then_some(true),
        listener_filters: match &spec.transport {
            Transport::Tcp | Transport::Quic => inspect::filters(spec, mesh),
            Transport::Udp(proxy) => vec![udp::filter(proxy)],
        },
        listener_filters_timeout: spec.inspection_timeout_ms.map(inspect::timeout),
        continue_on_listener_filters_timeout: spec.inspection_timeout_ms.is_some(),
        filter_chains: spec.chains.iter().map(filter_chain).collect(),
        default_filter_chain: spec.default_chain.as_deref().map(filter_chain),
        per_connection_buffer_limit_bytes: limits::buffer(mesh, spec.direction),
        access_log: if logs_refused(spec) { access_log::of_listener(telemetry, mesh) } else { Vec::new() },
        ..Default::default()
    };
    protos::encode(&listener)
}

/// Whether a listener logs connections that match no chain. The listeners of services, of which a sidecar has many, do
/// so only if such connections are possible.
fn logs_refused(spec: &ListenerSpec) -> bool {
    if matches!(spec.transport, Transport::Udp(_)) {
        return false;
    }
    let takes_all = |chain: &ChainSpec| chain.matches == ChainMatch::default();
    let of_services = spec.direction == Direction::Outbound && !spec.use_original_dst;
    !of_services || spec.default_chain.is_none() && !spec.chains.iter().any(takes_all)
}

/// Balances connections exactly between workers, at the cost of a lock.
fn balanced() -> ConnectionBalanceConfig {
    ConnectionBalanceConfig { balance_type: Some(BalanceType::ExactBalance(ExactBalance {})) }
}

fn bound_to(bind: &Bind, tcp: bool) -> (Address, Vec<AdditionalAddress>) {
    let address = if tcp { address } else { udp_address };
    match bind {
        Bind::Unix(path) => (pipe(path), Vec::new()),
        Bind::Socket { address: first, additional, port } => {
            let more = additional
                .iter()
                .map(|ip| AdditionalAddress { address: Some(address(*ip, *port)), ..Default::default() });
            (address(*first, *port), more.collect())
        }
    }
}

fn filter_chain(
    chain: &ChainSpec,
    spec: &ListenerSpec,
    (mesh, telemetry): (&MeshConfig, &Telemetry),
    policies: &PolicyFilters,
) -> FilterChain {
    let filters = match &chain.kind {
        ChainKind::Http(http) => vec![http::filter(http, spec, (mesh, telemetry), policies)],
        ChainKind::Tcp(tcp) => {
            let by_name = tcp.by_server_name.iter();
            let lookup = by_name.map(|found| dns_cache::of_server_names(&found.0, found.1));
            let metrics = stats::of(spec, telemetry).map(|config| network_filter(stats::FILTER, &config));
            let own = tcp::filters(tcp, spec.idle_timeout_ms, telemetry);
            let policies = if tcp.between_networks { Vec::new() } else { policies.tcp() };
            policies.into_iter().chain(metrics).chain(lookup).chain(own).collect()
        }
    };
    let route = match &chain.kind {
        ChainKind::Tcp(tcp) => tcp.origin.as_ref(),
        ChainKind::Http(_) => None,
    };
    // Limits slow handshakes of external clients. Inbound peers belong to the mesh.
    let limited = spec.direction != Direction::Inbound && !spec.use_original_dst;
    FilterChain {
        name: chain.name.to_string(),
        filter_chain_match: matched(&chain.matches),
        filters,
        transport_socket: chain.tls.as_ref().map(|context| tls::server(context, mesh, spec.is_quic())),
        transport_socket_connect_timeout: limited.then(|| seconds(HANDSHAKE)),
        metadata: route.and_then(|id| istio_metadata(vec![origin("virtual-service", id)])),
        ..Default::default()
    }
}

/// The match of a filter chain; `None` for a chain that matches all connections.
fn matched(matches: &ChainMatch) -> Option<FilterChainMatch> {
    if *matches == ChainMatch::default() {
        return None;
    }
    let ranges = matches.prefix_ranges.iter().map(range);
    Some(FilterChainMatch {
        destination_port: matches.destination_port.map(u32::from),
        prefix_ranges: ranges.collect(),
        server_names: matches.server_names.iter().map(|name| name.to_string()).collect(),
        transport_protocol: matches.transport_protocol.unwrap_or_default().to_owned(),
        application_protocols: matches.application_protocols.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests;
