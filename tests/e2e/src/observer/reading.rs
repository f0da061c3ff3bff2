//! Reads the generations of the population's hosts from resources.

use std::collections::BTreeMap;

use protos::Message as _;
use protos::envoy::config::cluster::v3::Cluster;
use protos::envoy::config::core::v3::address::Address;
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};

use super::Kind;

/// The types, in the order of subscription.
pub(super) const TYPES: [(Kind, &str); 4] = [
    (Kind::Cluster, "type.googleapis.com/envoy.config.cluster.v3.Cluster"),
    (Kind::Endpoints, "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"),
    (Kind::Listener, "type.googleapis.com/envoy.config.listener.v3.Listener"),
    (Kind::Route, "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"),
];

/// The generation of each host with this suffix.
///
/// # Errors
/// A host has one of its two numbers only, or two different generations.
pub(super) fn read(kind: Kind, bytes: &[u8], suffix: &str) -> Result<BTreeMap<String, u64>, String> {
    let undecodable = |error: protos::DecodeError| error.to_string();
    let hosts: Vec<(String, Vec<u64>)> = match kind {
        Kind::Cluster => cluster(Cluster::decode(bytes).map_err(undecodable)?, suffix),
        Kind::Endpoints => endpoints(ClusterLoadAssignment::decode(bytes).map_err(undecodable)?, suffix),
        Kind::Listener => Vec::new(),
        Kind::Route => routes(&RouteConfiguration::decode(bytes).map_err(undecodable)?, suffix),
    };
    let whole = |(host, told): (String, Vec<u64>)| match told[..] {
        [one, other] if one == other => Ok((host, one)),
        _ => Err(format!("{host} is of the generations {told:?}, where there should be two equal ones")),
    };
    hosts.into_iter().map(whole).collect()
}

/// The host of `outbound|PORT|SUBSET|HOST`, or of `HOST:PORT`, if it belongs to the population.
fn host(name: &str, suffix: &str) -> Option<String> {
    let name = name.rsplit('|').next()?;
    let name = name.split(':').next()?;
    name.ends_with(suffix).then(|| name.to_owned())
}

fn cluster(cluster: Cluster, suffix: &str) -> Vec<(String, Vec<u64>)> {
    let Some(host) = host(&cluster.name, suffix) else {
        return Vec::new();
    };
    let timeout = cluster.connect_timeout.map(|timeout| timeout.seconds.cast_unsigned());
    let thresholds = cluster.circuit_breakers.map(|breakers| breakers.thresholds);
    let most = thresholds.unwrap_or_default().first().and_then(|one| one.max_connections);
    vec![(host, timeout.into_iter().chain(most.map(u64::from)).collect())]
}

fn endpoints(assignment: ClusterLoadAssignment, suffix: &str) -> Vec<(String, Vec<u64>)> {
    let Some(host) = host(&assignment.cluster_name, suffix) else {
        return Vec::new();
    };
    let endpoints = assignment.endpoints.iter().flat_map(|group| &group.lb_endpoints);
    let told = endpoints.filter_map(|endpoint| {
        let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
            return None;
        };
        let Some(Address::SocketAddress(address)) = endpoint.address.as_ref()?.address.as_ref() else {
            return None;
        };
        // 10.GENERATION.…
        address.address.split('.').nth(1)?.parse().ok()
    });
    vec![(host, told.collect())]
}

fn routes(configuration: &RouteConfiguration, suffix: &str) -> Vec<(String, Vec<u64>)> {
    let of = |virtual_host: &VirtualHost| {
        let host = host(&virtual_host.name, suffix)?;
        Some((host, virtual_host.routes.iter().filter_map(timeout).collect()))
    };
    configuration.virtual_hosts.iter().filter_map(of).collect()
}

fn timeout(route: &Route) -> Option<u64> {
    match &route.action {
        Some(Action::Route(action)) => action.timeout.map(|timeout| timeout.seconds.cast_unsigned()),
        _ => None,
    }
}
