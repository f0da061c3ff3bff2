//! Routes derived from keys and rows.

mod conditions;
mod options;
mod tables;

use config::istio::VirtualService;
use model::audience::{DestinationRef, Source};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use serde_json::{Value, json};
use traffic::policy::DestinationPolicy;

use super::*;
use crate::testing::{self, at, check, object};

/// The key of a sidecar at port 80 whose client has the label `app: web`.
fn key(gateway: Option<&str>) -> RoutesKey {
    let host = |name: &str| Hostname::parse(name).unwrap();
    let reference = |name: &str| {
        let service = ServiceKey { hostname: host(name), namespace: "shop".into() };
        (host(name), DestinationRef { service: Some(service), policy: None })
    };
    RoutesKey {
        virtual_service: None,
        overrides: None,
        host: host("reviews.shop.svc.cluster.local"),
        port: 80,
        gateway: gateway.map(|name| ObjectId { namespace: "shop".into(), name: name.into() }),
        source: Arc::new(Source {
            namespace: "shop".into(),
            labels: [("app".into(), "web".into())].into(),
            regex_limit: None,
        }),
        destinations: Arc::new([reference("a.example.com"), reference("b.example.com")]),
    }
}

/// The routes of a VirtualService with this `http` (indented by two), with mesh settings.
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
    check(
        &route,
        &[
            ("match", json!({"prefix": "/"})),
            ("decorator.operation", json!("a.example.com:80/*")),
            (
                "metadata.filterMetadata.istio.config",
                json!("/apis/networking.istio.io/v1/namespaces/shop/virtual-service/vs"),
            ),
            ("route.cluster", json!("outbound|80||a.example.com")),
            ("route.timeout", json!("0s")),
            ("route.maxGrpcTimeout", json!("0s")),
            (
                "route.retryPolicy",
                json!({
                    "retryOn": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
                    "numRetries": 2,
                    "hostSelectionRetryMaxAttempts": "5",
                    "retryHostPredicate": [{
                        "name": "envoy.retry_host_predicates.previous_hosts",
                        "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
                    }],
                }),
            ),
        ],
    );
}

#[test]
fn names() {
    let named = |name: &str, matches: &str| {
        route(&format!("  - name: {name}\n    match: [{{uri: {{exact: /a}}{matches}}}]\n    {TO_A}\n"))
    };
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
    let header =
        |key: &str, value: &str, action: &str| json!({"header": {"key": key, "value": value}, "appendAction": action});
    let overwrite = "OVERWRITE_IF_EXISTS_OR_ADD";
    // JSON omits the first value of an enumeration.
    let mut appended = header("x-a", "2", "");
    appended.as_object_mut().unwrap().remove("appendAction");
    check(
        &route,
        &[
            ("requestHeadersToAdd", json!([header("x-s", "1", overwrite), appended])),
            ("requestHeadersToRemove", json!(["x-r"])),
            ("responseHeadersToRemove", json!(["x-b"])),
            (
                "route.weightedClusters",
                json!({"clusters": [
                    {"name": "outbound|80||a.example.com", "weight": 90, "responseHeadersToAdd": [header("x-v", "a", overwrite)]},
                    {"name": "outbound|81|v2|b.example.com", "weight": 10, "hostRewriteLiteral": "b"},
                ]}),
            ),
            ("decorator.operation", json!("vs:80/*")),
        ],
    );
}

#[test]
fn a_single_destination_keeps_its_headers_in_the_route() {
    let route = route(
        "  - headers: {request: {set: {':authority': rule}}}
    route: [{destination: {host: a.example.com, subset: v1}, headers: {request: {set: {host: destination, x: y}, remove: [z]}}}]
",
    );
    check(
        &route,
        &[
            ("route.cluster", json!("outbound|80|v1|a.example.com")),
            ("route.hostRewriteLiteral", json!("rule")),
            ("requestHeadersToAdd[0].header", json!({"key": "x", "value": "y"})),
            ("requestHeadersToAdd[1]", Value::Null),
            ("requestHeadersToRemove", json!(["z"])),
        ],
    );
}

#[test]
fn destinations_without_a_port_use_the_services_only_one() {
    let mut destinations = Destinations::at(9999);
    destinations.know("a.example.com", Some(8080), None);
    let http = "  - route: [{destination: {host: a.example.com}, weight: 1}, {destination: {host: b.example.com}, weight: 1}]\n";
    let route = &routes_with(http, &destinations, "", None)[0];
    let clusters = at(route, "route.weightedClusters.clusters").as_array().unwrap();
    let names: Vec<&Value> = clusters.iter().map(|cluster| &cluster["name"]).collect();
    assert_eq!(names, ["outbound|8080||a.example.com", "outbound|9999||b.example.com"]);
}
