//! Routes of HTTPRoutes from rules and resolved backends.

mod hosts;
mod paths;
mod times;

use config::gateway_api::filter::PathModifierType;
use gateway_api::backends::{BackendProblem, BackendReason, Target};
use model::audience::DestinationRef;
use model::kube::{RouteId, RouteKind};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use protos::envoy::config::route::v3::VirtualHost;
use serde_json::{Value, json};

use super::action::PathChange;
use super::*;
use crate::testing::{self, check, object};

fn key(port: u16, secure: bool) -> HttpRouteKey {
    let id = ObjectId { namespace: "shop".into(), name: "cart".into() };
    let route = RouteId { kind: RouteKind::Http, id };
    HttpRouteKey { route, port, secure, mesh: false, destinations: Arc::default(), overrides: None }
}

/// The backend with this name: `NAME.shop…` port 80, or none if it is `gone`.
fn backend(name: &str) -> Backend {
    let hostname = Hostname::of_service(name, "shop", "cluster.local").unwrap();
    let problem = BackendProblem { reason: BackendReason::BackendNotFound, message: "not found".into() };
    let target = Target { service: ServiceKey { hostname, namespace: "shop".into() }, port: 80, picker: None };
    Backend { target: if name == "gone" { Err(problem) } else { Ok(target) } }
}

/// The matches of an HTTPRoute with these rules (a YAML list in one line), at a listener.
fn matches_at(rules: &str, port: u16, secure: bool, mesh: &str) -> Vec<Option<Value>> {
    let text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: cart, namespace: shop}}\nspec: {{rules: {rules}}}"
    );
    let object = object::<HttpRoute>(&text);
    let mut backends = Vec::new();
    for rule in &object.spec.rules {
        backends.extend(rule.backend_refs.iter().map(|one| backend(&one.name)));
        let mirrors = rule.filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
        backends.extend(mirrors.map(|mirror| backend(&mirror.backend_ref.name)));
    }
    let (key, config) = (key(port, secure), testing::mesh(mesh));
    let context = Context { key: &key, config: &config, destinations: &Destinations::at(port) };
    let decode = |bytes: &Bytes| {
        let route = || testing::json::<VirtualHost>(bytes)["routes"][0].clone();
        (!bytes.is_empty()).then(route)
    };
    encoded(&object.spec, &backends, &context, Some).iter().map(decode).collect()
}

/// The route of the only match at port 80.
#[track_caller]
fn route(rule: &str) -> Value {
    let [Some(route)] = &matches_at(&format!("[{{{rule}}}]"), 80, false, "")[..] else { panic!("not one route") };
    route.clone()
}

const TO_A: &str = "backendRefs: [{name: a, port: 80}]";
const A: &str = "outbound|80||a.shop.svc.cluster.local";

#[test]
fn a_rule_without_conditions() {
    check(
        &route(TO_A),
        &[
            ("name", json!("shop.cart.0")),
            ("match", json!({"prefix": "/"})),
            ("decorator.operation", json!("a.shop.svc.cluster.local:80/*")),
            (
                "metadata.filterMetadata.istio.config",
                json!("/apis/gateway.networking.k8s.io/v1/namespaces/shop/httproute/cart"),
            ),
            ("route.cluster", json!(A)),
            ("route.clusterNotFoundResponseCode", json!("INTERNAL_SERVER_ERROR")),
            ("route.timeout", json!("0s")),
            ("route.retryPolicy.numRetries", json!(2)),
        ],
    );
}

#[test]
fn each_match_is_a_route() {
    let matches = "[{path: {value: /cart/}}, {path: {type: Exact, value: /b/}, method: GET}, {path: {type: RegularExpression, value: '/c+'}}, \
        {path: {type: RegularExpression, value: '/(c'}}, {headers: [{name: B, value: x}, {name: a, type: RegularExpression, value: 'y+'}]}, \
        {queryParams: [{name: q, value: x}, {name: Q, type: RegularExpression, value: 'y+'}]}, \
        {headers: [{name: a, type: RegularExpression, value: '*'}]}]";
    let all = matches_at(&format!("[{{name: one, matches: {matches}, {TO_A}}}, {{{TO_A}}}]"), 80, false, "");
    let conditions: Vec<Value> =
        all.iter().map(|route| route.as_ref().map_or(Value::Null, |r| r["match"].clone())).collect();
    let header = |name: &str, text: Value| json!({"name": name, "stringMatch": text});
    assert_eq!(
        conditions,
        [
            json!({"pathSeparatedPrefix": "/cart"}),
            json!({"path": "/b/", "headers": [header(":method", json!({"exact": "GET"}))]}),
            json!({"safeRegex": {"regex": "/c+"}}),
            Value::Null,
            json!({"prefix": "/", "headers": [
                header("B", json!({"exact": "x"})), header("a", json!({"safeRegex": {"regex": "y+"}})),
            ]}),
            json!({"prefix": "/", "queryParameters": [
                header("q", json!({"exact": "x"})), header("Q", json!({"safeRegex": {"regex": "y+"}})),
            ]}),
            Value::Null,
            json!({"prefix": "/"}),
        ]
    );
    let names: Vec<&Value> = all.iter().flatten().map(|route| &route["name"]).collect();
    assert_eq!(names, ["one", "one", "one", "one", "one", "shop.cart.1"]);
}

#[test]
fn of_equal_names_the_first_counts() {
    let route = route(&format!(
        "matches: [{{headers: [{{name: a, value: x}}, {{name: A, value: y}}]}}], filters: [{{type: RequestHeaderModifier, \
         requestHeaderModifier: {{set: [{{name: b, value: x}}, {{name: B, value: y}}]}}}}], {TO_A}"
    ));
    let want = json!([{"name": "a", "stringMatch": {"exact": "x"}}]);
    check(&route, &[("match.headers", want), ("requestHeadersToAdd[0].header.value", json!("x"))]);
    assert_eq!(route["requestHeadersToAdd"].as_array().map(Vec::len), Some(1));
}

#[test]
fn weights() {
    let of = |backends: &str| route(&format!("backendRefs: [{backends}]"));
    let two = of("{name: a, port: 80, weight: 3}, {name: gone, port: 80}, {name: b, port: 80, weight: 0}");
    let clusters = json!([{"name": A, "weight": 3}, {"name": "UnknownService", "weight": 1}]);
    check(
        &two,
        &[
            ("route.weightedClusters.clusters", clusters),
            ("route.clusterNotFoundResponseCode", json!("INTERNAL_SERVER_ERROR")),
            ("decorator.operation", json!("cart:80/*")),
        ],
    );
    check(&of("{name: gone, port: 80}"), &[("route.cluster", json!("UnknownService"))]);
    check(&of("{name: a, port: 80}, {name: b, port: 80, weight: 0}"), &[("route.cluster", json!(A))]);
    for none in ["", "{name: a, port: 80, weight: 0}"] {
        check(&of(none), &[("directResponse.status", json!(500)), ("route", Value::Null)]);
    }
}

#[test]
fn unsupported_filters_fail() {
    let extension = "{type: ExtensionRef, extensionRef: {group: a.example.com, kind: A, name: a}}";
    check(&route(&format!("filters: [{extension}], {TO_A}")), &[("directResponse.status", json!(500))]);
    let backend = format!("backendRefs: [{{name: a, port: 80, filters: [{extension}]}}]");
    check(&route(&backend), &[("directResponse.status", json!(500)), ("match.prefix", json!("/"))]);
}

/// The keys of headers to add.
fn keys(headers: &Value) -> Vec<&str> {
    headers.as_array().into_iter().flatten().filter_map(|option| option["header"]["key"].as_str()).collect()
}

#[test]
fn header_modifiers() {
    let rule = "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: s, value: '100%'}, {name: Host, value: h}], add: [{name: a, value: x}], \
        remove: [r]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: b, value: x}], remove: [q]}}]";
    let one = route(&format!("{rule}, {TO_A}"));
    check(
        &one,
        &[
            ("requestHeadersToAdd[0].header", json!({"key": "s", "value": "100%%"})),
            ("requestHeadersToAdd[0].appendAction", json!("OVERWRITE_IF_EXISTS_OR_ADD")),
            ("requestHeadersToAdd[1].header.key", json!("a")),
            ("requestHeadersToRemove", json!(["r"])),
            ("responseHeadersToAdd[0].header.key", json!("b")),
            ("responseHeadersToRemove", json!(["q"])),
            ("route.hostRewriteLiteral", json!("h")),
        ],
    );
    let own =
        "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: s, value: y}], remove: [A]}}]";
    let only = route(&format!("{rule}, backendRefs: [{{name: a, port: 80, {own}}}]"));
    assert_eq!(keys(&only["requestHeadersToAdd"]), ["s", "s"]);
    check(&only, &[("requestHeadersToRemove", json!(["r", "A"]))]);

    // The operations of the rule precede those of a backend, so they are in the clusters.
    let two = route(&format!("{rule}, backendRefs: [{{name: a, port: 80, {own}}}, {{name: b, port: 80}}]"));
    let clusters = &two["route"]["weightedClusters"]["clusters"];
    assert_eq!(keys(&clusters[0]["requestHeadersToAdd"]), ["s", "s"]);
    assert_eq!(keys(&clusters[1]["requestHeadersToAdd"]), ["s", "a"]);
    check(&two, &[("requestHeadersToAdd", Value::Null), ("route.hostRewriteLiteral", Value::Null)]);
    assert_eq!(clusters[1]["hostRewriteLiteral"], "h");
    let shared = route(&format!("{rule}, backendRefs: [{{name: a, port: 80}}, {{name: b, port: 80}}]"));
    assert_eq!(keys(&shared["requestHeadersToAdd"]), ["s", "a"]);
    check(&shared, &[("route.hostRewriteLiteral", json!("h"))]);
    assert_eq!(shared["route"]["weightedClusters"]["clusters"][0], json!({"name": A, "weight": 1}));
}

#[test]
fn mirrors() {
    let mirror = |name: &str, more: &str| {
        format!("{{type: RequestMirror, requestMirror: {{backendRef: {{name: {name}, port: 80}}{more}}}}}")
    };
    let filters = [
        mirror("b", ""),
        mirror("gone", ""),
        mirror("c", ", percent: 5"),
        mirror("d", ", fraction: {numerator: 1, denominator: 3}"),
        mirror("e", ", percent: 0"),
    ];
    let route = route(&format!("filters: [{}], {TO_A}", filters.join(", ")));
    let policies = route["route"]["requestMirrorPolicies"].as_array().unwrap();
    let shares: Vec<_> =
        policies.iter().map(|p| (p["cluster"].as_str().unwrap(), &p["runtimeFraction"]["defaultValue"])).collect();
    assert_eq!(
        shares,
        [
            ("outbound|80||b.shop.svc.cluster.local", &json!({"numerator": 100})),
            ("outbound|80||c.shop.svc.cluster.local", &json!({"numerator": 5})),
            ("outbound|80||d.shop.svc.cluster.local", &json!({"numerator": 333_333, "denominator": "MILLION"})),
        ]
    );
    assert_eq!(policies[0]["disableShadowHostSuffixAppend"], true);
}

#[test]
fn cross_origin_requests() {
    let route = route(&format!(
        "filters: [{{type: CORS, cors: {{allowOrigins: ['https://*.example.com'], allowMethods: [GET, PUT], allowCredentials: true}}}}], {TO_A}"
    ));
    let mut options = route["typedPerFilterConfig"]["envoy.filters.http.cors"].clone();
    options.as_object_mut().unwrap().remove("@type");
    assert_eq!(
        options,
        json!({
            "allowOriginStringMatch": [{"safeRegex": {"regex": r"https://.*\.example\.com"}}],
            "allowMethods": "GET,PUT",
            "maxAge": "5",
            "allowCredentials": true,
            "filterEnabled": {"defaultValue": {"numerator": 100}},
            "forwardNotMatchingPreflights": false,
        })
    );
}
