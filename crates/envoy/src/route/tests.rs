use std::collections::BTreeMap;

use model::audience::{DestinationRef, Source};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use resources::istio::VirtualService;
use serde_json::{Value, json};
use traffic::policy::DestinationPolicy;

use super::*;
use crate::testing::{self, at, check, object};

/// Whom the routes are for: a sidecar at port 80, whose client has the label `app: web`.
fn key(gateway: Option<&str>) -> RoutesKey {
    let host = |name: &str| Hostname::parse(name).unwrap();
    let reference = |name: &str| {
        let service = ServiceKey { hostname: host(name), namespace: "shop".into() };
        (host(name), DestinationRef { service: Some(service), policy: None })
    };
    RoutesKey {
        virtual_service: None,
        host: host("reviews.shop.svc.cluster.local"),
        port: 80,
        gateway: gateway.map(|name| ObjectId { namespace: "shop".into(), name: name.into() }),
        source: Arc::new(Source { namespace: "shop".into(), labels: [("app".into(), "web".into())].into() }),
        destinations: Arc::new(BTreeMap::from([reference("a.example.com"), reference("b.example.com")])),
    }
}

/// The routes of a VirtualService whose `http` is given (indented by two), under mesh settings.
fn routes_with(http: &str, destinations: &Destinations, mesh: &str, gateway: Option<&str>) -> Vec<Value> {
    let bound = gateway.unwrap_or("mesh");
    let text = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: vs, namespace: shop}}\nspec:\n  hosts: [reviews.example.com]\n  gateways: [{bound}]\n  http:\n{http}"
    );
    let rule = object::<VirtualService>(&text);
    let id = ObjectId { namespace: "shop".into(), name: "vs".into() };
    let (key, config) = (key(gateway), testing::mesh(mesh));
    let context = Context { id: &id, key: &key, config: &config, destinations };
    let encoded = EncodedRoutes::of(translate::routes(&rule.spec, &context));
    let bytes = [&encoded.specific[..], &encoded.catch_all[..]].concat();
    let host = testing::json::<VirtualHost>(&bytes);
    host["routes"].as_array().cloned().unwrap_or_default()
}

fn routes(http: &str) -> Vec<Value> {
    routes_with(http, &Destinations::at(80), "", None)
}

/// The only route.
#[track_caller]
fn route(http: &str) -> Value {
    let [route] = &routes(http)[..] else { panic!("not one route") };
    route.clone()
}

const TO_A: &str = "route: [{destination: {host: a.example.com, port: {number: 80}}}]";

#[test]
fn a_route_without_conditions() {
    let route = route(&format!("  - {TO_A}\n"));
    check(&route, &[
        ("match", json!({"prefix": "/"})),
        ("decorator.operation", json!("a.example.com:80/*")),
        ("metadata.filterMetadata.istio.config",
            json!("/apis/networking.istio.io/v1/namespaces/shop/virtual-service/vs")),
        ("route.cluster", json!("outbound|80||a.example.com")),
        ("route.timeout", json!("0s")),
        ("route.maxGrpcTimeout", json!("0s")),
        ("route.retryPolicy", json!({
            "retryOn": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
            "numRetries": 2,
            "hostSelectionRetryMaxAttempts": "5",
            "retryHostPredicate": [{
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
            }],
        })),
    ]);
}

#[test]
fn conditions() {
    let cases = [
        ("uri: {exact: /a}", json!({"path": "/a", "caseSensitive": true})),
        ("uri: {prefix: /a}, ignoreUriCase: true", json!({"prefix": "/a", "caseSensitive": false})),
        ("uri: {regex: '/a.*'}", json!({"safeRegex": {"regex": "/a.*"}, "caseSensitive": true})),
        ("method: {exact: GET}", json!([{"name": ":method", "stringMatch": {"exact": "GET"}}])),
        ("scheme: {exact: https}", json!([{"name": ":scheme", "stringMatch": {"exact": "https"}}])),
        ("authority: {prefix: a.}", json!([{"name": ":authority", "stringMatch": {"prefix": "a."}}])),
        ("headers: {x-a: {regex: 'v[12]'}}", json!([{"name": "x-a", "stringMatch": {"safeRegex": {"regex": "v[12]"}}}])),
        ("headers: {x-a: {}}", json!([{"name": "x-a", "presentMatch": true}])),
        ("withoutHeaders: {x-a: {}}", json!([{"name": "x-a", "presentMatch": true, "invertMatch": true}])),
        ("withoutHeaders: {x-a: {exact: b}}", json!([
            {"name": "x-a", "stringMatch": {"exact": "b"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true},
        ])),
        ("withoutHeaders: {b: {exact: c}}, headers: {z: {exact: y}, a: {exact: b}}, method: {exact: PUT}", json!([
            {"name": "a", "stringMatch": {"exact": "b"}},
            {"name": "b", "stringMatch": {"exact": "c"}, "invertMatch": true, "treatMissingHeaderAsEmpty": true},
            {"name": "z", "stringMatch": {"exact": "y"}},
            {"name": ":method", "stringMatch": {"exact": "PUT"}},
        ])),
    ];
    for (condition, want) in cases {
        let route = route(&format!("  - match: [{{{condition}}}]\n    {TO_A}\n"));
        let got = if want.is_array() { &route["match"]["headers"] } else { &route["match"] };
        assert_eq!(got, &want, "{condition}");
    }
    let query = route(&format!("  - match: [{{queryParams: {{a: {{exact: b}}, c: {{}}}}}}]\n    {TO_A}\n"));
    let want = json!([{"name": "a", "stringMatch": {"exact": "b"}}, {"name": "c", "presentMatch": true}]);
    assert_eq!(query["match"]["queryParameters"], want);
}

#[test]
fn claims_of_tokens() {
    let http = format!("  - match: [{{headers: {{'@request.auth.claims.group': {{exact: admin}}}}}}]\n    {TO_A}\n");
    let route = &routes_with(&http, &Destinations::at(80), "", Some("gw"))[0];
    let one = json!({"stringMatch": {"exact": "admin"}});
    let want = json!([{
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{"key": "payload"}, {"key": "group"}],
        "value": {"orMatch": {"valueMatchers": [{"listMatch": {"oneOf": one}}, one]}},
    }]);
    assert_eq!(route["match"]["dynamicMetadata"], want);
}

#[test]
fn conditions_on_the_client_are_decided_beforehand() {
    let match_of = |condition: &str, gateway| {
        let http = format!("  - match: [{{uri: {{prefix: /x}}, {condition}}}]\n    {TO_A}\n");
        routes_with(&http, &Destinations::at(80), "", gateway).len()
    };
    let cases = [
        ("port: 80", None, 1),
        ("port: 81", None, 0),
        ("sourceLabels: {app: web}", None, 1),
        ("sourceLabels: {app: other}", None, 0),
        ("sourceNamespace: shop", None, 1),
        ("sourceNamespace: other", None, 0),
        ("gateways: [shop/gw]", None, 0),
        ("gateways: [shop/gw]", Some("gw"), 1),
        ("gateways: [mesh, shop/gw]", None, 1),
    ];
    for (condition, gateway, want) in cases {
        assert_eq!(match_of(condition, gateway), want, "{condition} {gateway:?}");
    }
}

#[test]
fn nothing_follows_a_route_for_everything() {
    let http = format!("  - match: [{{uri: {{prefix: /a}}}}, {{uri: {{prefix: /}}}}, {{uri: {{prefix: /b}}}}]\n    {TO_A}\n  - {TO_A}\n");
    let paths: Vec<Value> = routes(&http).iter().map(|route| at(route, "match.prefix").clone()).collect();
    assert_eq!(paths, [json!("/a"), json!("/")]);
}

#[test]
fn names() {
    let named = |name: &str, matches: &str| route(&format!("  - name: {name}\n    match: [{{uri: {{exact: /a}}{matches}}}]\n    {TO_A}\n"));
    assert_eq!(named("rule", "")["name"], "rule");
    assert_eq!(named("rule", ", name: cond, statPrefix: s")["name"], "rule.cond");
    assert_eq!(named("rule", ", statPrefix: s")["statPrefix"], "s");
    assert_eq!(at(&named("rule", ""), "decorator.operation"), "a.example.com:80/a");
}

#[test]
fn weights_and_headers() {
    let route = route(
        "  - headers: {request: {set: {x-s: '1'}, add: {x-a: '2'}, remove: [x-r]}, response: {remove: [x-b]}}
    route:
    - {destination: {host: a.example.com, port: {number: 80}}, weight: 90, headers: {response: {set: {x-v: a}}}}
    - {destination: {host: b.example.com, port: {number: 81}, subset: v2}, weight: 10, headers: {request: {set: {Host: b}}}}
    - {destination: {host: b.example.com, port: {number: 82}}, weight: 0}
",
    );
    let header = |key: &str, value: &str, action: &str| json!({"header": {"key": key, "value": value}, "appendAction": action});
    let overwrite = "OVERWRITE_IF_EXISTS_OR_ADD";
    // Appending is the enumeration's first value, which JSON leaves out.
    let mut appended = header("x-a", "2", "");
    appended.as_object_mut().unwrap().remove("appendAction");
    check(&route, &[
        ("requestHeadersToAdd", json!([header("x-s", "1", overwrite), appended])),
        ("requestHeadersToRemove", json!(["x-r"])),
        ("responseHeadersToRemove", json!(["x-b"])),
        ("route.weightedClusters", json!({"clusters": [
            {"name": "outbound|80||a.example.com", "weight": 90, "responseHeadersToAdd": [header("x-v", "a", overwrite)]},
            {"name": "outbound|81|v2|b.example.com", "weight": 10, "hostRewriteLiteral": "b"},
        ]})),
        ("decorator.operation", json!("vs:80/*")),
    ]);
}

#[test]
fn a_single_destination_keeps_its_headers_in_the_route() {
    let route = route(
        "  - headers: {request: {set: {':authority': rule}}}
    route: [{destination: {host: a.example.com, subset: v1}, headers: {request: {set: {host: destination, x: y}, remove: [z]}}}]
",
    );
    check(&route, &[
        ("route.cluster", json!("outbound|80|v1|a.example.com")),
        ("route.hostRewriteLiteral", json!("rule")),
        ("requestHeadersToAdd[0].header", json!({"key": "x", "value": "y"})),
        ("requestHeadersToAdd[1]", Value::Null),
        ("requestHeadersToRemove", json!(["z"])),
    ]);
}

#[test]
fn ports_that_a_destination_leaves_out() {
    let mut destinations = Destinations::at(9999);
    destinations.know("a.example.com", Some(8080), None);
    let http = "  - route: [{destination: {host: a.example.com}, weight: 1}, {destination: {host: b.example.com}, weight: 1}]\n";
    let route = &routes_with(http, &destinations, "", None)[0];
    let clusters = at(route, "route.weightedClusters.clusters").as_array().unwrap();
    let names: Vec<&Value> = clusters.iter().map(|cluster| &cluster["name"]).collect();
    assert_eq!(names, ["outbound|8080||a.example.com", "outbound|9999||b.example.com"]);
}

#[test]
fn rewrites() {
    let of = |rewrite: &str| route(&format!("  - match: [{{uri: {{prefix: /a}}}}]\n    rewrite: {{{rewrite}}}\n    {TO_A}\n"));
    check(&of("uri: /b, authority: c.example.com"), &[
        ("route.prefixRewrite", json!("/b")),
        ("route.hostRewriteLiteral", json!("c.example.com")),
    ]);
    check(&of(r"uriRegexRewrite: {match: '^/a/(.*)$', rewrite: '/\1'}"), &[
        ("route.regexRewrite", json!({"pattern": {"regex": "^/a/(.*)$"}, "substitution": "/\\1"})),
        ("route.prefixRewrite", Value::Null),
    ]);
}

#[test]
fn timeouts_and_retries() {
    let route = route(&format!(
        "  - timeout: 5s\n    retries: {{attempts: 3, perTryTimeout: 2s, retryOn: 'gateway-error,503'}}\n    {TO_A}\n"
    ));
    check(&route, &[
        ("route.timeout", json!("5s")),
        ("route.maxGrpcTimeout", json!("5s")),
        ("route.retryPolicy.numRetries", json!(3)),
        ("route.retryPolicy.perTryTimeout", json!("2s")),
        ("route.retryPolicy.retryOn", json!("gateway-error,retriable-status-codes")),
        ("route.retryPolicy.retriableStatusCodes", json!([503])),
    ]);
    let mesh = "defaultHttpRetryPolicy: {attempts: 0}";
    let http = format!("  - {TO_A}\n");
    assert_eq!(at(&routes_with(&http, &Destinations::at(80), mesh, None)[0], "route.retryPolicy"), &Value::Null);
}

#[test]
fn redirects() {
    let of = |redirect: &str| route(&format!("  - redirect: {{{redirect}}}\n"))["redirect"].clone();
    assert_eq!(of("uri: /b, authority: b.example.com"), json!({"hostRedirect": "b.example.com", "pathRedirect": "/b"}));
    assert_eq!(
        of("scheme: https, redirectCode: 308, port: 8443"),
        json!({"schemeRedirect": "https", "portRedirect": 8443, "responseCode": "PERMANENT_REDIRECT"})
    );
    assert_eq!(of("scheme: https, derivePort: FROM_PROTOCOL_DEFAULT"), json!({"schemeRedirect": "https"}));
    assert_eq!(of("scheme: https, derivePort: FROM_REQUEST_PORT"), json!({"schemeRedirect": "https", "portRedirect": 80}));
    assert_eq!(of("uri: /a, derivePort: FROM_REQUEST_PORT"), json!({"pathRedirect": "/a"}));
    for (code, name) in [(302, "FOUND"), (303, "SEE_OTHER"), (307, "TEMPORARY_REDIRECT")] {
        assert_eq!(of(&format!("uri: /b, redirectCode: {code}"))["responseCode"], name);
    }
}

#[test]
fn fixed_responses() {
    let of = |response: &str| route(&format!("  - directResponse: {{{response}}}\n"));
    check(&of("status: 503, body: {string: down}"), &[
        ("directResponse", json!({"status": 503, "body": {"inlineString": "down"}})),
        ("decorator.operation", json!("vs:80/*")),
    ]);
    check(&of("status: 200, body: {bytes: Zm9v}"), &[("directResponse.body", json!({"inlineBytes": "Zm9v"}))]);
    check(&of("status: 404"), &[("directResponse", json!({"status": 404}))]);
}

#[test]
fn faults() {
    let of = |fault: &str| {
        let route = route(&format!("  - fault: {{{fault}}}\n    {TO_A}\n"));
        let mut options = route["typedPerFilterConfig"]["envoy.filters.http.fault"].clone();
        if let Some(options) = options.as_object_mut() {
            options.remove("@type");
        }
        options
    };
    assert_eq!(
        of("delay: {percentage: {value: 0.1}, fixedDelay: 5s}, abort: {httpStatus: 400, percentage: {value: 50}}"),
        json!({
            "delay": {"percentage": {"numerator": 1000, "denominator": "MILLION"}, "fixedDelay": "5s"},
            "abort": {"percentage": {"numerator": 500000, "denominator": "MILLION"}, "httpStatus": 400},
        })
    );
    assert_eq!(
        of("abort: {grpcStatus: UNAVAILABLE, percentage: {value: 100}}"),
        json!({"abort": {"percentage": {"numerator": 1000000, "denominator": "MILLION"}, "grpcStatus": 14}})
    );
}

#[test]
fn cross_origin_sharing() {
    let route = route(&format!(
        "  - corsPolicy: {{allowOrigins: [{{exact: a}}, {{regex: '.*b'}}], allowMethods: [GET, PUT], allowHeaders: [x, y],
      exposeHeaders: [z], maxAge: 24h, allowCredentials: true, unmatchedPreflights: IGNORE}}\n    {TO_A}\n"
    ));
    let mut options = route["typedPerFilterConfig"]["envoy.filters.http.cors"].clone();
    options.as_object_mut().unwrap().remove("@type");
    assert_eq!(options, json!({
        "allowOriginStringMatch": [{"exact": "a"}, {"safeRegex": {"regex": ".*b"}}],
        "allowMethods": "GET,PUT", "allowHeaders": "x,y", "exposeHeaders": "z", "maxAge": "86400", "allowCredentials": true,
        "filterEnabled": {"defaultValue": {"numerator": 100}}, "forwardNotMatchingPreflights": false,
    }));
}

#[test]
fn copies_of_requests() {
    let route = route(&format!(
        "  - mirror: {{host: b.example.com, port: {{number: 80}}}}\n    mirrorPercentage: {{value: 25}}\n    {TO_A}\n"
    ));
    assert_eq!(at(&route, "route.requestMirrorPolicies"), &json!([{
        "cluster": "outbound|80||b.example.com",
        "runtimeFraction": {"defaultValue": {"numerator": 250000, "denominator": "MILLION"}},
        "traceSampled": false,
        "disableShadowHostSuffixAppend": true,
    }]));
    let several = routes(&format!(
        "  - mirrors: [{{destination: {{host: b.example.com, port: {{number: 80}}}}}}, {{destination: {{host: c.example.com, port: {{number: 80}}}}, percentage: {{value: 0}}}}]\n    {TO_A}\n"
    ));
    let policies = at(&several[0], "route.requestMirrorPolicies").as_array().unwrap();
    assert_eq!(policies.len(), 1);
    assert_eq!(at(&policies[0], "runtimeFraction"), &json!({"defaultValue": {"numerator": 100}}));
}

#[test]
fn hash_policies() {
    let of = |balancer: &str| {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: r, namespace: shop}}\nspec: {{host: a.example.com, trafficPolicy: {{loadBalancer: {{consistentHash: {{{balancer}}}}}}}}}"
        );
        let rule = object::<resources::istio::DestinationRule>(&text);
        let policy = DestinationPolicy { policy: rule.spec.traffic_policy.clone(), ..Default::default() };
        let mut destinations = Destinations::at(80);
        destinations.know("a.example.com", None, Some(policy));
        let route = routes_with(&format!("  - {TO_A}\n"), &destinations, "", None).remove(0);
        // A retry must go to the same endpoint again.
        assert_eq!(at(&route, "route.retryPolicy.retryHostPredicate"), &Value::Null);
        at(&route, "route.hashPolicy").clone()
    };
    assert_eq!(of("httpHeaderName: x-user"), json!([{"header": {"headerName": "x-user"}}]));
    assert_eq!(
        of("httpCookie: {name: user, path: /, ttl: 0s, attributes: [{name: SameSite, value: Lax}]}"),
        json!([{"cookie": {"name": "user", "path": "/", "ttl": "0s", "attributes": [{"name": "SameSite", "value": "Lax"}]}}])
    );
    assert_eq!(of("useSourceIp: true"), json!([{"connectionProperties": {"sourceIp": true}}]));
    assert_eq!(of("httpQueryParameterName: q"), json!([{"queryParameter": {"name": "q"}}]));
}

#[test]
fn the_route_of_a_service() {
    let route = defaults::outbound("a.example.com", 80, None, &testing::mesh(""));
    let value = testing::json::<Route>(&route.encode_to_vec());
    check(&value, &[
        ("name", json!("default")),
        ("match", json!({"prefix": "/"})),
        ("decorator.operation", json!("a.example.com:80/*")),
        ("route.cluster", json!("outbound|80||a.example.com")),
        ("route.timeout", json!("0s")),
        ("route.retryPolicy.numRetries", json!(2)),
    ]);
}

fn host(name: &str, require_tls: bool) -> VirtualHostSpec {
    let domains = vec![name.into(), format!("{name}:80").into()];
    VirtualHostSpec { name: name.into(), domains, content: VirtualHostContent::NotFound, require_tls }
}

#[test]
fn tables_are_joined_from_bytes() {
    let mesh = testing::mesh("");
    let encoded = |cluster: &str| {
        let mut specific = defaults::outbound(cluster, 80, None, &mesh);
        specific.r#match = Some(matching::translate(&resources::istio::HttpMatchRequest {
            uri: Some(resources::istio::StringMatch::Exact("/x".into())),
            ..Default::default()
        }));
        EncodedRoutes::of([specific, defaults::outbound(cluster, 80, None, &mesh)])
    };
    let first = virtual_host(&host("a", false), &[encoded("a"), encoded("b")], true);
    let second = virtual_host(&host("b", true), &[], false);
    let bytes = route_configuration("80", [&first[..], &second[..]].into_iter(), true);
    let table = RouteConfiguration::decode(bytes.clone()).unwrap();
    // What prost writes is what is joined here.
    assert_eq!(bytes, table.encode_to_vec());
    let value = testing::json::<RouteConfiguration>(&bytes);
    check(&value, &[
        ("name", json!("80")),
        ("validateClusters", json!(false)),
        ("maxDirectResponseBodySizeBytes", json!(1_048_576)),
        ("ignorePortInHostMatching", json!(true)),
        ("virtualHosts[0].domains", json!(["a", "a:80"])),
        ("virtualHosts[0].includeRequestAttemptCount", json!(true)),
        ("virtualHosts[1]", json!({"name": "b", "domains": ["b", "b:80"], "requireTls": "ALL"})),
    ]);
    // Routes for everything are behind the conditions of all keys.
    let clusters: Vec<&Value> =
        at(&value, "virtualHosts[0].routes").as_array().unwrap().iter().map(|route| at(route, "route.cluster")).collect();
    assert_eq!(clusters, ["outbound|80||a", "outbound|80||b", "outbound|80||a", "outbound|80||b"]);
}

#[test]
fn hosts_that_nobody_knows() {
    let mesh = testing::mesh("defaultConfig: {proxyHeaders: {attemptCount: {disabled: true}, xForwardedHost: {enabled: true}}}");
    assert!(!defaults::counts_attempts(&mesh));
    let any = testing::json::<Route>(&defaults::allow_any(&mesh).encode_to_vec());
    assert_eq!(any, json!({
        "name": "allow_any",
        "match": {"prefix": "/"},
        "route": {"cluster": "PassthroughCluster", "timeout": "0s", "maxGrpcTimeout": "0s", "appendXForwardedHost": true},
    }));
    let none = testing::json::<Route>(&defaults::block_all().encode_to_vec());
    assert_eq!(none, json!({"name": "block_all", "match": {"prefix": "/"}, "directResponse": {"status": 502}}));
}
