//! Route tables and default routes.

use model::session::Session;

use super::*;

fn host(name: &str, require_tls: bool) -> VirtualHostSpec {
    let domains = vec![name.into(), format!("{name}:80").into()];
    VirtualHostSpec {
        name: name.into(),
        overrides: None,
        domains,
        content: VirtualHostContent::NotFound,
        require_tls,
        session: None,
    }
}

#[test]
fn the_route_of_a_service() {
    let route = defaults::outbound("a.example.com", 80, None, &testing::mesh(""));
    let value = testing::json::<Route>(&route.encode_to_vec());
    check(
        &value,
        &[
            ("name", json!("default")),
            ("match", json!({"prefix": "/"})),
            ("decorator.operation", json!("a.example.com:80/*")),
            ("route.cluster", json!("outbound|80||a.example.com")),
            ("route.timeout", json!("0s")),
            ("route.retryPolicy.numRetries", json!(2)),
        ],
    );
}

#[test]
fn tables_are_concatenated_from_bytes() {
    let mesh = testing::mesh("");
    let encoded = |cluster: &str| {
        let mut specific = defaults::outbound(cluster, 80, None, &mesh);
        specific.r#match = Some(matching::translate(&config::istio::HttpMatchRequest {
            uri: Some(config::istio::StringMatch::Exact("/x".into())),
            ..Default::default()
        }));
        EncodedRoutes::of([specific, defaults::outbound(cluster, 80, None, &mesh)])
    };
    let first = virtual_host(&host("a", false), &[encoded("a"), encoded("b")], true);
    let sticky = VirtualHostSpec { session: Some(Session::Header("x-s".into())), ..host("b", true) };
    let second = virtual_host(&sticky, &[], false);
    let options = Options { ignore_port: true, http3_port: Some(443) };
    let (before, behind) = route_configuration("80", false, options);
    let bytes = [before, first, second, behind].concat();
    let table = RouteConfiguration::decode(&bytes[..]).unwrap();
    // The concatenation must equal prost's encoding.
    assert_eq!(bytes, table.encode_to_vec());
    let value = testing::json::<RouteConfiguration>(&bytes);
    check(
        &value,
        &[
            ("name", json!("80")),
            ("responseHeadersToAdd", json!([{"header": {"key": "alt-svc", "value": "h3=\":443\"; ma=86400"}}])),
            ("validateClusters", json!(false)),
            ("maxDirectResponseBodySizeBytes", json!(1_048_576)),
            ("ignorePortInHostMatching", json!(true)),
            ("virtualHosts[0].domains", json!(["a", "a:80"])),
            ("virtualHosts[0].includeRequestAttemptCount", json!(true)),
            (
                "virtualHosts[1]",
                json!({
                    "name": "b",
                    "domains": ["b", "b:80"],
                    "requireTls": "ALL",
                    "typedPerFilterConfig": {"envoy.filters.http.stateful_session": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRoute",
                        "statefulSession": {"sessionState": {
                            "name": "envoy.http.stateful_session.header",
                            "typedConfig": {
                                "@type": "type.googleapis.com/envoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionState",
                                "name": "x-s",
                            },
                        }},
                    }},
                }),
            ),
        ],
    );
    // Routes without a condition follow the conditional routes of all keys.
    let clusters: Vec<&Value> = at(&value, "virtualHosts[0].routes")
        .as_array()
        .unwrap()
        .iter()
        .map(|route| at(route, "route.cluster"))
        .collect();
    assert_eq!(clusters, ["outbound|80||a", "outbound|80||b", "outbound|80||a", "outbound|80||b"]);
}

#[test]
fn unknown_hosts() {
    let mesh = testing::mesh(
        "defaultConfig: {proxyHeaders: {attemptCount: {disabled: true}, xForwardedHost: {enabled: true}}}",
    );
    assert!(!defaults::counts_attempts(&mesh));
    let any = testing::json::<Route>(&defaults::allow_any("PassthroughCluster", &mesh).encode_to_vec());
    assert_eq!(
        any,
        json!({
            "name": "allow_any",
            "match": {"prefix": "/"},
            "route": {"cluster": "PassthroughCluster", "timeout": "0s", "maxGrpcTimeout": "0s", "appendXForwardedHost": true},
        })
    );
    let none = testing::json::<Route>(&defaults::block_all().encode_to_vec());
    assert_eq!(none, json!({"name": "block_all", "match": {"prefix": "/"}, "directResponse": {"status": 502}}));
}
