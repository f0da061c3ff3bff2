//! HTTP connection managers.

use super::*;

fn filter_names(manager: &Value) -> Vec<&Value> {
    manager["httpFilters"].as_array().unwrap().iter().map(|filter| &filter["name"]).collect()
}

#[test]
fn an_outbound_connection_manager() {
    let value = manager(discovered(), Direction::Outbound, "");
    check(
        &value,
        &[
            ("statPrefix", json!("outbound_0.0.0.0_80;")),
            (
                "rds",
                json!({
                    "routeConfigName": "80",
                    "configSource": {"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"},
                }),
            ),
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
        ],
    );
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
    check(
        &value,
        &[
            ("serverName", json!("istio-envoy")),
            ("forwardClientCertDetails", json!("APPEND_FORWARD")),
            ("setCurrentClientCertDetails", json!({"subject": true, "dns": true, "uri": true})),
            ("http2ProtocolOptions", Value::Null),
            ("routeConfig.name", json!("inbound|8080||")),
            ("routeConfig.validateClusters", json!(false)),
            ("routeConfig.virtualHosts[0].name", json!("inbound|http|80")),
            ("routeConfig.virtualHosts[0].domains", json!(["*"])),
            (
                "routeConfig.virtualHosts[0].routes",
                json!([{
                    "name": "default",
                    "match": {"prefix": "/"},
                    "decorator": {"operation": "a:80/*"},
                    "route": {
                        "cluster": "inbound|8080||",
                        "timeout": "0s",
                        "maxStreamDuration": {"maxStreamDuration": "0s", "grpcTimeoutHeaderMax": "0s"},
                        "retryPolicy": {"retryOn": "reset-before-request", "numRetries": 2},
                    },
                }]),
            ),
        ],
    );
    let grpc = manager(routes(Protocol::Grpc), Direction::Inbound, "");
    check(
        &grpc,
        &[
            ("http2ProtocolOptions", json!({})),
            ("routeConfig.virtualHosts[0].routes[0].route.retryPolicy", Value::Null),
        ],
    );
}

#[test]
fn the_connection_manager_of_a_gateway() {
    let gateway = HttpChain { use_remote_address: true, accepts_http10: true, ..discovered() };
    let mesh = "defaultConfig: {gatewayTopology: {numTrustedProxies: 2, forwardClientCertDetails: FORWARD_ONLY}}";
    check(
        &manager(gateway.clone(), Direction::Gateway, ""),
        &[
            ("useRemoteAddress", json!(true)),
            ("serverName", json!("istio-envoy")),
            ("xffNumTrustedHops", Value::Null),
            ("forwardClientCertDetails", json!("SANITIZE_SET")),
            ("setCurrentClientCertDetails", json!({"subject": true, "cert": true, "dns": true, "uri": true})),
            ("httpProtocolOptions", json!({"acceptHttp10": true})),
        ],
    );
    check(
        &manager(gateway, Direction::Gateway, mesh),
        &[
            ("xffNumTrustedHops", json!(2)),
            ("forwardClientCertDetails", json!("FORWARD_ONLY")),
            ("setCurrentClientCertDetails", Value::Null),
        ],
    );
}

#[test]
fn filters_that_the_key_asks_for() {
    let alpn = manager(HttpChain { alpn_filter: true, ..discovered() }, Direction::Outbound, "");
    assert_eq!(filter_names(&alpn)[1], "istio.alpn");
    check(
        &alpn,
        &[(
            "httpFilters[1].typedConfig.alpnOverride[2]",
            json!({"upstreamProtocol": "HTTP2", "alpnOverride": ["istio-h2", "istio", "h2"]}),
        )],
    );
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
        let value =
            manager(discovered(), Direction::Outbound, &format!("pathNormalization: {{normalization: {name}}}"));
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
    check(
        &value,
        &[
            ("serverName", json!("me")),
            ("generateRequestId", json!(false)),
            ("appendXForwardedPort", json!(true)),
            ("forwardClientCertDetails", Value::Null),
            ("setCurrentClientCertDetails", json!({"subject": false, "cert": true, "dns": true, "uri": true})),
            ("httpFilters[3].typedConfig.suppressEnvoyHeaders", json!(true)),
        ],
    );
    let off = manager(discovered(), Direction::Inbound, "defaultConfig: {proxyHeaders: {server: {disabled: true}}}");
    check(&off, &[("serverName", Value::Null), ("serverHeaderTransformation", json!("PASS_THROUGH"))]);
}
