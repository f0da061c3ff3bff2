//! Resources in the form in which a discovery file can contain thousands of them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use model::xds::Version;
use protos::envoy::config::cluster::v3::Cluster;
use protos::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use protos::envoy::config::core::v3::address::Address as Kind;
use protos::envoy::config::core::v3::socket_address::{PortSpecifier, Protocol as Transport};
use protos::envoy::config::core::v3::{Address, SocketAddress};
use protos::envoy::config::listener::v3::filter::ConfigType;
use protos::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use protos::envoy::config::route::v3::RouteConfiguration;
use protos::envoy::extensions::filters::http::router::v3::Router;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_filter::ConfigType as HttpConfig;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, HttpFilter};
use protos::{Any, Message, Name, any};
use serde_json::Value;

use super::Exhibit;
use super::files::Files;

/// The message that Envoy gets for a resource.
pub(super) enum Piece {
    /// A cluster.
    Cluster(Vec<u8>),
    /// A listener, and the clusters that it needs.
    Listener(Vec<u8>, BTreeSet<String>),
}

/// The name by which Envoy reports a resource.
pub(super) fn name(index: usize) -> String {
    format!("judged-{index:06}")
}

/// The piece for the resource with this number; `None` if it can only be decoded, which has been done then.
pub(super) fn of(exhibit: &Exhibit, index: usize, files: &Files) -> Result<Option<Piece>> {
    let json = crate::state::json(exhibit.kind, &exhibit.resource)?;
    let mut here = json.clone();
    let changed = (exhibit.istio && strip(&mut here)) | files.replace(&mut here) | tell_caches_apart(&mut here);
    let body = match changed {
        true => encoded(exhibit.kind.type_url, &here)?,
        false => exhibit.resource.body().to_vec(),
    };
    Ok(match exhibit.kind.short_name {
        "CDS" => Some(Piece::Cluster(cluster(body, index))),
        "EDS" => Some(Piece::Cluster(endpoints(&body, index))),
        "LDS" => {
            let mut wants = BTreeSet::new();
            clusters_first(&json, &mut wants);
            Some(Piece::Listener(listener(body, index), wants))
        }
        "RDS" => Some(Piece::Listener(routes(whole(&body)?, index), BTreeSet::new())),
        "VHDS" => {
            let mut table = Vec::new();
            field(2, &body, &mut table);
            Some(Piece::Listener(routes(table, index), BTreeSet::new()))
        }
        _ => None,
    })
}

/// A route table without its VHDS configuration, which files cannot provide: virtual hosts are checked one by one.
fn whole(body: &[u8]) -> Result<Vec<u8>> {
    let mut table = RouteConfiguration::decode(body)?;
    table.vhds = None;
    Ok(table.encode_to_vec())
}

/// Names DNS caches by their settings, because proxies with different ones are checked by the same Envoy. Returns
/// whether there were any.
fn tell_caches_apart(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            let mut found = false;
            if let Some(cache) = fields.get_mut("dnsCacheConfig") {
                let settings = Version::of(cache.to_string().as_bytes());
                cache["name"] = format!("cache-{settings}").into();
                found = true;
            }
            fields.values_mut().fold(found, |found, inner| tell_caches_apart(inner) | found)
        }
        Value::Array(items) => items.iter_mut().fold(false, |found, item| tell_caches_apart(item) | found),
        _ => false,
    }
}

/// Encoded messages merge when they are concatenated: what comes later replaces what came before.
fn merged(mut body: Vec<u8>, over: &impl Message) -> Vec<u8> {
    body.extend(over.encode_to_vec());
    body
}

fn cluster(body: Vec<u8>, index: usize) -> Vec<u8> {
    let over = Cluster { name: name(index), ..Cluster::default() };
    merged(body, &over)
}

/// A cluster with these endpoints.
fn endpoints(body: &[u8], index: usize) -> Vec<u8> {
    let around = Cluster {
        name: name(index),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        ..Cluster::default()
    };
    let mut bytes = around.encode_to_vec();
    field(33, body, &mut bytes);
    bytes
}

fn listener(body: Vec<u8>, index: usize) -> Vec<u8> {
    let mut body = merged(body, &elsewhere(index));
    let mut udp = false;
    if let Ok(mut listener) = Listener::decode(&*body) {
        udp = is_udp(&listener);
        // Other kinds of addresses cannot be replaced this way; two listeners must not have the same address.
        if !listener.additional_addresses.is_empty() {
            listener.additional_addresses.clear();
            body = listener.encode_to_vec();
        }
    }
    // `transparent`: Envoy 1.40 crashes at a transparent listener that is not bound.
    field(10, &[8, 0], &mut body);
    // A UDP listener is always bound.
    if udp { body } else { unbound(body) }
}

/// Whether a listener receives datagrams.
fn is_udp(listener: &Listener) -> bool {
    match listener.address.as_ref().and_then(|address| address.address.as_ref()) {
        Some(Kind::SocketAddress(socket)) => socket.protocol() == Transport::Udp,
        _ => false,
    }
}

/// A listener with these routes, whose clusters need not exist.
fn routes(mut body: Vec<u8>, index: usize) -> Vec<u8> {
    // `validate_clusters` is false.
    field(7, &[8, 0], &mut body);
    let manager = HttpConnectionManager {
        stat_prefix: "judged".to_owned(),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".to_owned(),
            config_type: Some(HttpConfig::TypedConfig(any(&Router::default()))),
            ..HttpFilter::default()
        }],
        ..HttpConnectionManager::default()
    };
    let mut value = manager.encode_to_vec();
    field(4, &body, &mut value);
    let filter = Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(ConfigType::TypedConfig(Any {
            type_url: HttpConnectionManager::type_url(),
            value: value.into(),
        })),
    };
    let chain = FilterChain { filters: vec![filter], ..FilterChain::default() };
    let around = Listener { filter_chains: vec![chain], ..elsewhere(index) };
    unbound(around.encode_to_vec())
}

/// The listener with `bind_to_port` set to false.
fn unbound(mut listener: Vec<u8>) -> Vec<u8> {
    field(26, &[8, 0], &mut listener);
    listener
}

/// The name of a listener, and an unused address.
fn elsewhere(index: usize) -> Listener {
    // 1,000 ports for each address, except the ephemeral ports and those below 1024.
    let (host, port) = (index / 1000 + 1, index % 1000 + 2000);
    let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 77, 0, 0)) + u32::try_from(host).unwrap_or(1));
    let socket = SocketAddress {
        address: ip.to_string(),
        port_specifier: u32::try_from(port).ok().map(PortSpecifier::PortValue),
        ..SocketAddress::default()
    };
    Listener {
        name: name(index),
        address: Some(Address { address: Some(Kind::SocketAddress(socket)) }),
        ..Listener::default()
    }
}

/// Appends a length-delimited field to an encoded message.
fn field(number: u32, value: &[u8], message: &mut Vec<u8>) {
    let mut put = |mut number: usize| {
        while number > 0x7f {
            message.push(number as u8 | 0x80);
            number >>= 7;
        }
        message.push(number as u8);
    };
    put((number as usize) << 3 | 2);
    put(value.len());
    message.extend_from_slice(value);
}

/// The message with this JSON form.
fn encoded(type_url: &str, json: &Value) -> Result<Vec<u8>> {
    let name = type_url.rsplit('/').next().unwrap_or_default();
    let packed = protos::pack_json(name, json).context("cannot be made again from its JSON")?;
    Ok(packed.value.to_vec())
}

/// Removes the filters that only Istio's build has, which have been decoded. Returns whether there were any.
fn strip(value: &mut Value) -> bool {
    match value {
        Value::Array(items) => {
            let before = items.len();
            items.retain(|item| !is_of_istio(&item["typedConfig"]));
            let fewer = items.len() < before;
            items.iter_mut().fold(fewer, |any, item| strip(item) | any)
        }
        Value::Object(fields) => fields.values_mut().fold(false, |any, inner| strip(inner) | any),
        _ => false,
    }
}

fn is_of_istio(config: &Value) -> bool {
    let texts = [&config["@type"], &config["typeUrl"]];
    texts.into_iter().filter_map(Value::as_str).any(|url| {
        let name = url.rsplit('/').next().unwrap_or_default();
        ["istio.", "io.istio.", "stats.", "envoy.tcp.metadataexchange."].iter().any(|prefix| name.starts_with(prefix))
    })
}

/// The clusters that Envoy requires before it accepts a listener: those of gRPC services and of tracers.
fn clusters_first(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let service = fields.get("envoyGrpc").and_then(|grpc| grpc["clusterName"].as_str());
            let tracer = fields.get("collectorCluster").and_then(Value::as_str);
            names.extend(service.into_iter().chain(tracer).map(str::to_owned));
            fields.values().for_each(|inner| clusters_first(inner, names));
        }
        Value::Array(items) => items.iter().for_each(|inner| clusters_first(inner, names)),
        _ => {}
    }
}
