//! Listeners derived from keys and rows.

mod logs;
mod managers;
mod traces;

use config::Object;
use model::listener::{HttpChain, RouteSource, TcpChain, TraceIdentity, Transport, Tunnel};
use model::proxy::Capabilities;
use names::Protocol;
use serde_json::{Value, json};

use super::*;
use crate::testing::{self, at, check};

fn listener(chains: Vec<ChainSpec>) -> ListenerSpec {
    ListenerSpec {
        name: "0.0.0.0_80".into(),
        bind: Bind::Socket { address: [0, 0, 0, 0].into(), additional: Vec::new(), port: 80 },
        bind_to_port: false,
        transport: Transport::Tcp,
        direction: Direction::Outbound,
        use_original_dst: false,
        transparent: false,
        original_dst_filter: false,
        tls_inspector: false,
        http_inspector: false,
        server_first_ports: Vec::new(),
        inspection_timeout_ms: Some(0),
        chains: chains.into(),
        default_chain: None,
        idle_timeout_ms: None,
        exact_balance: false,
        exclusive: false,
        policies: Default::default(),
        internal: [].into(),
        capabilities: Capabilities::default(),
        overrides: None,
        trace_identity: Default::default(),
    }
}

fn http(routes: RouteSource) -> HttpChain {
    HttpChain {
        stat_prefix: "outbound_0.0.0.0_80;".into(),
        protocol: Protocol::Http,
        routes,
        accepts_http10: false,
        use_remote_address: false,
        alpn_filter: false,
        sessions: false,
        external_auth: false,
        pickers: false,
        dns_caches: Vec::new(),
    }
}

fn discovered() -> HttpChain {
    http(RouteSource::Discovered("80".into()))
}

fn tcp(clusters: &[(&str, u32)]) -> TcpChain {
    TcpChain {
        stat_prefix: "outbound|9000||a".into(),
        clusters: clusters.iter().map(|(name, weight)| ((*name).into(), *weight)).collect(),
        idle_timeout_ms: None,
        max_connection_duration_ms: None,
        hash_source_ip: false,
        mongo: false,
        tunnel: None,
        by_server_name: None,
        between_networks: false,
        origin: None,
    }
}

fn chain(kind: ChainKind) -> ChainSpec {
    ChainSpec { name: "".into(), matches: ChainMatch::default(), tls: None, kind }
}

fn run(spec: &ListenerSpec, mesh: &str) -> Value {
    run_with(spec, mesh, &[])
}

/// The listener in a mesh with services that receive logs and traces.
fn run_with(spec: &ListenerSpec, mesh: &str, services: &[Arc<Object<config::core::Service>>]) -> Value {
    let telemetry = testing::telemetry(mesh, services);
    testing::json::<Listener>(&encode(spec, &testing::mesh(mesh), &telemetry, &PolicyFilters::default()))
}

/// The connection manager of a listener with one chain.
fn manager(http: HttpChain, direction: Direction, mesh: &str) -> Value {
    let spec = ListenerSpec { direction, ..listener(vec![chain(ChainKind::Http(http))]) };
    let value = run(&spec, mesh);
    assert_eq!(at(&value, "filterChains[0].filters[0].name"), "envoy.filters.network.http_connection_manager");
    at(&value, "filterChains[0].filters[0].typedConfig").clone()
}

/// The TCP proxy of a listener with one chain.
fn proxy(tcp: TcpChain, mesh: &str) -> Value {
    let value = run(&listener(vec![chain(ChainKind::Tcp(tcp))]), mesh);
    assert_eq!(at(&value, "filterChains[0].filters[0].name"), "envoy.filters.network.tcp_proxy");
    at(&value, "filterChains[0].filters[0].typedConfig").clone()
}

#[test]
fn an_outbound_listener() {
    let value = run(&listener(vec![chain(ChainKind::Http(discovered()))]), "");
    check(
        &value,
        &[
            ("name", json!("0.0.0.0_80")),
            ("address", json!({"socketAddress": {"address": "0.0.0.0", "portValue": 80}})),
            ("trafficDirection", json!("OUTBOUND")),
            ("bindToPort", json!(false)),
            ("listenerFilters", Value::Null),
            ("listenerFiltersTimeout", json!("0s")),
            ("continueOnListenerFiltersTimeout", json!(true)),
            ("useOriginalDst", Value::Null),
            ("filterChains[0].filterChainMatch", Value::Null),
            ("filterChains[0].transportSocketConnectTimeout", json!("15s")),
            ("maxConnectionsToAcceptPerSocketEvent", Value::Null),
            ("accessLog", Value::Null),
        ],
    );
}

#[test]
fn the_listener_of_captured_traffic() {
    let spec = ListenerSpec {
        name: "virtualOutbound".into(),
        bind: Bind::Socket { address: [0, 0, 0, 0].into(), additional: vec![[0u16; 8].into()], port: 15001 },
        bind_to_port: true,
        use_original_dst: true,
        inspection_timeout_ms: None,
        default_chain: Some(Box::new(ChainSpec {
            name: "PassthroughFilterChain".into(),
            ..chain(ChainKind::Tcp(tcp(&[("PassthroughCluster", 0)])))
        })),
        ..listener(vec![ChainSpec {
            matches: ChainMatch { destination_port: Some(15001), ..Default::default() },
            name: "virtualOutbound-blackhole".into(),
            ..chain(ChainKind::Tcp(tcp(&[("BlackHoleCluster", 0)])))
        }])
    };
    check(
        &run(&spec, ""),
        &[
            ("additionalAddresses[0].address.socketAddress", json!({"address": "::", "portValue": 15001})),
            ("bindToPort", Value::Null),
            ("maxConnectionsToAcceptPerSocketEvent", json!(1)),
            ("useOriginalDst", json!(true)),
            ("listenerFiltersTimeout", Value::Null),
            ("continueOnListenerFiltersTimeout", Value::Null),
            ("filterChains[0].name", json!("virtualOutbound-blackhole")),
            ("filterChains[0].filterChainMatch", json!({"destinationPort": 15001})),
            ("defaultFilterChain.name", json!("PassthroughFilterChain")),
            ("defaultFilterChain.filters[0].typedConfig.cluster", json!("PassthroughCluster")),
        ],
    );
}

#[test]
fn chain_matches() {
    let matches = ChainMatch {
        destination_port: None,
        prefix_ranges: vec!["10.1.2.3/24".parse().unwrap(), "2001:db8::1/128".parse().unwrap()],
        server_names: vec!["a.example.com".into()],
        transport_protocol: Some("tls"),
        application_protocols: &["http/1.1", "h2c"],
    };
    let value = run(&listener(vec![ChainSpec { matches, ..chain(ChainKind::Http(discovered())) }]), "");
    assert_eq!(
        at(&value, "filterChains[0].filterChainMatch"),
        &json!({
            "prefixRanges": [{"addressPrefix": "10.1.2.0", "prefixLen": 24}, {"addressPrefix": "2001:db8::1", "prefixLen": 128}],
            "serverNames": ["a.example.com"],
            "transportProtocol": "tls",
            "applicationProtocols": ["http/1.1", "h2c"],
        })
    );
}

#[test]
fn inspectors() {
    let inspected = |ports: &[u16]| {
        let spec = ListenerSpec {
            direction: Direction::Inbound,
            transparent: true,
            original_dst_filter: true,
            tls_inspector: true,
            http_inspector: true,
            server_first_ports: ports.to_vec(),
            ..listener(Vec::new())
        };
        run(&spec, "")
    };
    let value = inspected(&[]);
    let filters = value["listenerFilters"].as_array().unwrap();
    let names: Vec<&str> =
        filters.iter().map(|f| f["name"].as_str().unwrap().strip_prefix("envoy.filters.listener.").unwrap()).collect();
    assert_eq!(names, ["original_dst", "original_src", "tls_inspector", "http_inspector"]);
    assert_eq!(value["transparent"], true);
    assert_eq!(filters[1]["typedConfig"]["mark"], 1337);
    assert_eq!(filters[2]["typedConfig"]["initialReadBufferSize"], 512);
    assert_eq!(filters[3]["filterDisabled"], Value::Null);
    let range = |port: u16| json!({"destinationPortRange": {"start": port, "end": u32::from(port) + 1}});
    assert_eq!(at(&inspected(&[3306]), "listenerFilters[3].filterDisabled"), &range(3306));
    let both = json!({"orMatch": {"rules": [range(25), range(65535)]}});
    assert_eq!(at(&inspected(&[25, 65535]), "listenerFilters[3].filterDisabled"), &both);
}

#[test]
fn sockets() {
    let spec = ListenerSpec { bind: Bind::Unix("unix:///var/run/a.sock".into()), ..listener(Vec::new()) };
    assert_eq!(run(&spec, "")["address"], json!({"pipe": {"path": "/var/run/a.sock"}}));
}

#[test]
fn gateways() {
    let spec = ListenerSpec { direction: Direction::Gateway, ..listener(vec![chain(ChainKind::Http(discovered()))]) };
    check(
        &run(&spec, ""),
        &[("trafficDirection", json!("OUTBOUND")), ("filterChains[0].transportSocketConnectTimeout", json!("15s"))],
    );
}

#[test]
fn tcp_proxies() {
    let one = TcpChain {
        idle_timeout_ms: Some(1500),
        max_connection_duration_ms: Some(60_000),
        hash_source_ip: true,
        ..tcp(&[("outbound|9000||a", 0)])
    };
    assert_eq!(
        proxy(one, ""),
        json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "statPrefix": "outbound|9000||a",
            "cluster": "outbound|9000||a",
            "idleTimeout": "1.500s",
            "maxDownstreamConnectionDuration": "60s",
            "hashPolicy": [{"sourceIp": {}}],
        })
    );
    let tunnel = |post| TcpChain { tunnel: Some(Tunnel { target: "[::1]:443".into(), post }), ..tcp(&[("a", 0)]) };
    assert_eq!(proxy(tunnel(false), "")["tunnelingConfig"], json!({"hostname": "[::1]:443"}));
    assert_eq!(proxy(tunnel(true), "")["tunnelingConfig"]["usePost"], json!(true));
    let several = proxy(tcp(&[("a", 90), ("b", 10), ("c", 0)]), "");
    let want = json!({"clusters": [{"name": "a", "weight": 90}, {"name": "b", "weight": 10}]});
    assert_eq!(several["weightedClusters"], want);
}
