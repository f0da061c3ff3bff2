use model::listener::{HttpChain, RouteSource, TcpChain};
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
        direction: Direction::Outbound,
        use_original_dst: false,
        transparent: false,
        original_dst_filter: false,
        tls_inspector: false,
        http_inspector: false,
        server_first_ports: Vec::new(),
        inspection_timeout_ms: Some(0),
        chains,
        default_chain: None,
        capabilities: Capabilities::default(),
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
    }
}

fn chain(kind: ChainKind) -> ChainSpec {
    ChainSpec { name: "".into(), matches: ChainMatch::default(), kind }
}

fn run(spec: &ListenerSpec, mesh: &str) -> Value {
    testing::json::<Listener>(&encode(spec, &testing::mesh(mesh)))
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

fn filter_names(manager: &Value) -> Vec<&Value> {
    manager["httpFilters"].as_array().unwrap().iter().map(|filter| &filter["name"]).collect()
}

#[test]
fn an_outbound_listener() {
    let value = run(&listener(vec![chain(ChainKind::Http(discovered()))]), "");
    check(&value, &[
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
    ]);
}

#[test]
fn the_listener_of_captured_traffic() {
    let spec = ListenerSpec {
        name: "virtualOutbound".into(),
        bind: Bind::Socket { address: [0, 0, 0, 0].into(), additional: vec![[0u16; 8].into()], port: 15001 },
        bind_to_port: true,
        use_original_dst: true,
        inspection_timeout_ms: None,
        default_chain: Some(ChainSpec {
            name: "PassthroughFilterChain".into(),
            ..chain(ChainKind::Tcp(tcp(&[("PassthroughCluster", 0)])))
        }),
        ..listener(vec![ChainSpec {
            matches: ChainMatch { destination_port: Some(15001), ..Default::default() },
            name: "virtualOutbound-blackhole".into(),
            ..chain(ChainKind::Tcp(tcp(&[("BlackHoleCluster", 0)])))
        }])
    };
    check(&run(&spec, ""), &[
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
    ]);
}

#[test]
fn what_a_chain_takes() {
    let matches = ChainMatch {
        destination_port: None,
        prefix_ranges: vec!["10.1.2.3/24".parse().unwrap(), "2001:db8::1/128".parse().unwrap()],
        server_names: vec!["a.example.com".into()],
        transport_protocol: Some("tls"),
        application_protocols: vec!["http/1.1", "h2c"],
    };
    let value = run(&listener(vec![ChainSpec { matches, ..chain(ChainKind::Http(discovered())) }]), "");
    assert_eq!(at(&value, "filterChains[0].filterChainMatch"), &json!({
        "prefixRanges": [{"addressPrefix": "10.1.2.0", "prefixLen": 24}, {"addressPrefix": "2001:db8::1", "prefixLen": 128}],
        "serverNames": ["a.example.com"],
        "transportProtocol": "tls",
        "applicationProtocols": ["http/1.1", "h2c"],
    }));
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
    check(&run(&spec, ""), &[
        ("trafficDirection", json!("OUTBOUND")),
        ("filterChains[0].transportSocketConnectTimeout", json!("15s")),
    ]);
}

#[test]
fn an_outbound_connection_manager() {
    let value = manager(discovered(), Direction::Outbound, "");
    check(&value, &[
        ("statPrefix", json!("outbound_0.0.0.0_80;")),
        ("rds", json!({
            "routeConfigName": "80",
            "configSource": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
        })),
        ("normalizePath", json!(true)),
        ("mergeSlashes", Value::Null),
        ("pathWithEscapedSlashesAction", json!("KEEP_UNCHANGED")),
        ("useRemoteAddress", json!(false)),
        ("streamIdleTimeout", json!("0s")),
        ("proxy100Continue", json!(true)),
        ("upgradeConfigs", json!([{"upgradeType": "websocket"}])),
        ("serverName", Value::Null),
        ("forwardClientCertDetails", Value::Null),
        ("httpProtocolOptions", Value::Null),
    ]);
    let names = ["grpc_stats", "fault", "cors", "router"].map(|name| json!(format!("envoy.filters.http.{name}")));
    assert_eq!(filter_names(&value), names.iter().collect::<Vec<_>>());
}

#[test]
fn an_inbound_connection_manager() {
    let routes = |protocol| HttpChain {
        protocol,
        ..http(RouteSource::Inbound { cluster: "inbound|8080||".into(), port: 80, operation: "a:80/*".into() })
    };
    let value = manager(routes(Protocol::Http), Direction::Inbound, "");
    check(&value, &[
        ("serverName", json!("istio-envoy")),
        ("forwardClientCertDetails", json!("APPEND_FORWARD")),
        ("setCurrentClientCertDetails", json!({"subject": true, "dns": true, "uri": true})),
        ("http2ProtocolOptions", Value::Null),
        ("routeConfig.name", json!("inbound|8080||")),
        ("routeConfig.validateClusters", json!(false)),
        ("routeConfig.virtualHosts[0].name", json!("inbound|http|80")),
        ("routeConfig.virtualHosts[0].domains", json!(["*"])),
        ("routeConfig.virtualHosts[0].routes", json!([{
            "name": "default",
            "match": {"prefix": "/"},
            "decorator": {"operation": "a:80/*"},
            "route": {
                "cluster": "inbound|8080||",
                "timeout": "0s",
                "maxStreamDuration": {"maxStreamDuration": "0s", "grpcTimeoutHeaderMax": "0s"},
                "retryPolicy": {"retryOn": "reset-before-request", "numRetries": 2},
            },
        }])),
    ]);
    let grpc = manager(routes(Protocol::Grpc), Direction::Inbound, "");
    check(&grpc, &[
        ("http2ProtocolOptions", json!({})),
        ("routeConfig.virtualHosts[0].routes[0].route.retryPolicy", Value::Null),
    ]);
}

#[test]
fn the_connection_manager_of_a_gateway() {
    let gateway = HttpChain { use_remote_address: true, accepts_http10: true, ..discovered() };
    let mesh = "defaultConfig: {gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: FORWARD_ONLY}}";
    check(&manager(gateway.clone(), Direction::Gateway, ""), &[
        ("useRemoteAddress", json!(true)),
        ("serverName", json!("istio-envoy")),
        ("xffNumTrustedHops", Value::Null),
        ("forwardClientCertDetails", json!("SANITIZE_SET")),
        ("setCurrentClientCertDetails", json!({"subject": true, "cert": true, "dns": true, "uri": true})),
        ("httpProtocolOptions", json!({"acceptHttp10": true})),
    ]);
    check(&manager(gateway, Direction::Gateway, mesh), &[
        ("xffNumTrustedHops", json!(2)),
        ("forwardClientCertDetails", json!("FORWARD_ONLY")),
        ("setCurrentClientCertDetails", Value::Null),
    ]);
}

#[test]
fn filters_that_the_key_asks_for() {
    let alpn = manager(HttpChain { alpn_filter: true, ..discovered() }, Direction::Outbound, "");
    assert_eq!(filter_names(&alpn)[1], "istio.alpn");
    check(&alpn, &[("httpFilters[1].typedConfig.alpnOverride[2]",
        json!({"upstreamProtocol": "HTTP2", "alpnOverride": ["istio-h2", "istio", "h2"]}))]);
    let web = manager(HttpChain { protocol: Protocol::GrpcWeb, ..discovered() }, Direction::Outbound, "");
    assert_eq!(filter_names(&web)[0], "envoy.filters.http.grpc_web");
    let proxy = manager(HttpChain { protocol: Protocol::HttpProxy, ..discovered() }, Direction::Outbound, "");
    check(&proxy, &[("httpProtocolOptions", json!({"allowAbsoluteUrl": true}))]);
}

#[test]
fn path_normalization() {
    for (name, normalize, merge, slashes) in [
        ("NONE", false, false, "KEEP_UNCHANGED"),
        ("BASE", true, false, "KEEP_UNCHANGED"),
        ("MERGE_SLASHES", true, true, "KEEP_UNCHANGED"),
        ("DECODE_AND_MERGE_SLASHES", true, true, "UNESCAPE_AND_FORWARD"),
    ] {
        let value = manager(discovered(), Direction::Outbound, &format!("pathNormalization: {{normalization: {name}}}"));
        assert_eq!(value["normalizePath"], normalize, "{name}");
        assert_eq!(value["mergeSlashes"].as_bool().unwrap_or(false), merge, "{name}");
        assert_eq!(value["pathWithEscapedSlashesAction"], slashes, "{name}");
    }
}

#[test]
fn headers_of_proxies() {
    let mesh = "defaultConfig: {proxyHeaders: {server: {value: me}, requestId: {disabled: true}, envoyDebugHeaders: {disabled: true},
  xForwardedPort: {enabled: true}, forwardedClientCert: SANITIZE, setCurrentClientCertDetails: {subject: false, cert: true}}}";
    let value = manager(discovered(), Direction::Inbound, mesh);
    check(&value, &[
        ("serverName", json!("me")),
        ("generateRequestId", json!(false)),
        ("appendXForwardedPort", json!(true)),
        ("forwardClientCertDetails", Value::Null),
        ("setCurrentClientCertDetails", json!({"subject": false, "cert": true, "dns": true, "uri": true})),
        ("httpFilters[3].typedConfig.suppressEnvoyHeaders", json!(true)),
    ]);
    let off = manager(discovered(), Direction::Inbound, "defaultConfig: {proxyHeaders: {server: {disabled: true}}}");
    check(&off, &[("serverName", Value::Null), ("serverHeaderTransformation", json!("PASS_THROUGH"))]);
}

#[test]
fn tcp_proxies() {
    let one = TcpChain {
        idle_timeout_ms: Some(1500),
        max_connection_duration_ms: Some(60_000),
        hash_source_ip: true,
        ..tcp(&[("outbound|9000||a", 0)])
    };
    assert_eq!(proxy(one, ""), json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "statPrefix": "outbound|9000||a",
        "cluster": "outbound|9000||a",
        "idleTimeout": "1.500s",
        "maxDownstreamConnectionDuration": "60s",
        "hashPolicy": [{"sourceIp": {}}],
    }));
    let several = proxy(tcp(&[("a", 90), ("b", 10), ("c", 0)]), "");
    let want = json!({"clusters": [{"name": "a", "weight": 90}, {"name": "b", "weight": 10}]});
    assert_eq!(several["weightedClusters"], want);
}

#[test]
fn access_logs() {
    let text = "accessLogFile: /dev/stdout";
    let value = run(&listener(vec![chain(ChainKind::Tcp(tcp(&[("a", 0)])))]), text);
    check(&value, &[
        ("accessLog[0].name", json!("envoy.access_loggers.file")),
        ("accessLog[0].filter", json!({"responseFlagFilter": {"flags": ["NR"]}})),
        ("filterChains[0].filters[0].typedConfig.accessLog[0].filter", Value::Null),
        ("filterChains[0].filters[0].typedConfig.accessLog[0].typedConfig.path", json!("/dev/stdout")),
    ]);
    let format = |mesh: &str| {
        let manager = manager(discovered(), Direction::Outbound, mesh);
        at(&manager, "accessLog[0].typedConfig.logFormat").clone()
    };
    let line = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
        %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" \
        %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
        \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% \
        %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";
    assert_eq!(format(text), json!({"textFormatSource": {"inlineString": line}}));
    assert_eq!(
        format("{accessLogFile: /a, accessLogFormat: '%METHOD%'}"),
        json!({"textFormatSource": {"inlineString": "%METHOD%"}})
    );
    let fields = format("{accessLogFile: /a, accessLogEncoding: JSON}");
    check(&fields, &[
        ("jsonFormat.method", json!("%REQ(:METHOD)%")),
        ("jsonFormat.start_time", json!("%START_TIME%")),
        ("jsonFormat.route_name", json!("%ROUTE_NAME%")),
    ]);
    assert_eq!(fields["jsonFormat"].as_object().unwrap().len(), 24);
    assert_eq!(
        format("{accessLogFile: /a, accessLogEncoding: JSON, accessLogFormat: '{\"m\": \"%METHOD%\", \"n\": [1, true]}'}"),
        json!({"jsonFormat": {"m": "%METHOD%", "n": [1.0, true]}})
    );
    let silent = run(&listener(Vec::new()), "{accessLogFile: /a, disableEnvoyListenerLog: true}");
    assert_eq!(silent["accessLog"], Value::Null);
}
