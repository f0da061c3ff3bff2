//! Virtual hosts with matches of several HTTPRoutes, derived from objects.

use std::sync::Arc;

use config::AnyObject;
use config::core::Service;
use model::audience::{VirtualHostContent, VirtualHostSpec};
use model::kube::MatchRef;
use protos::envoy::config::route::v3::RouteConfiguration;
use registry::inputs::MeshDefaults;

use super::*;
use crate::VirtualHosts;

const OBJECTS: [&str; 2] = [
    "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: one, namespace: shop}\nspec: {rules: [
      {matches: [{path: {value: /a}}, {path: {value: /}}], backendRefs: [{name: web, port: 80}]},
      {matches: [{path: {type: RegularExpression, value: '('}}], backendRefs: [{name: web, port: 80}]}]}",
    "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: two, namespace: shop}\nspec: {rules: [
      {matches: [{path: {value: /b}}], backendRefs: [{name: web, port: 81}, {name: web, namespace: other, port: 80}],
       filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 80}}}]}]}",
];

#[test]
fn matches_of_several_routes_alternate() {
    let mut relations = flow::Engine::builder();
    registry::register(&mut relations);
    gateway_api::register(&mut relations);
    security::register(&mut relations);
    traffic::register(&mut relations);
    crate::register(&mut relations);
    let mut engine = relations.build();
    let mut batch = flow::Batch::new();
    batch.put::<MeshDefaults>((), Arc::new(testing::settings("")));
    for text in OBJECTS {
        registry::objects::put(&mut batch, AnyObject::HttpRoute(object::<HttpRoute>(text)));
    }
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {istio.io/persistent-session: c}}\n\
        spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}";
    registry::objects::put(&mut batch, AnyObject::Service(object::<Service>(service)));
    engine.commit(batch);

    let hostname = Hostname::of_service("web", "shop", "cluster.local").unwrap();
    let service = Some(ServiceKey { hostname: hostname.clone(), namespace: "shop".into() });
    let destinations = Arc::new([(hostname, DestinationRef { service, policy: None })].into());
    let at = |name: &str| {
        let route = RouteId { kind: RouteKind::Http, id: ObjectId { namespace: "shop".into(), name: name.into() } };
        Arc::new(HttpRouteKey { route, destinations: Arc::clone(&destinations), ..key(80, false) })
    };
    let (one, two) = (at("one"), at("two"));
    let order = [(&one, 0), (&two, 0), (&one, 2), (&one, 9), (&one, 1)];
    let spec = VirtualHostSpec {
        name: "a:80".into(),
        domains: vec!["a".into()],
        content: VirtualHostContent::Matches(order.map(|(key, index)| MatchRef { key: key.clone(), index }).into()),
        require_tls: false,
        session: None,
        overrides: None,
    };
    let cell = engine.subscribe::<VirtualHosts>(Arc::new(spec));
    let table = testing::json::<RouteConfiguration>(&engine.row::<VirtualHosts>(cell).unwrap());
    let routes = table["virtualHosts"][0]["routes"].as_array().unwrap();
    let found: Vec<_> = routes.iter().map(|route| (&route["name"], &route["match"])).collect();
    assert_eq!(
        found,
        [
            (&json!("shop.one.0"), &json!({"pathSeparatedPrefix": "/a"})),
            (&json!("shop.two.0"), &json!({"pathSeparatedPrefix": "/b"})),
            (&json!("shop.one.0"), &json!({"prefix": "/"})),
        ]
    );
    let web = "outbound|80||web.shop.svc.cluster.local";
    check(
        &routes[0],
        &[("route.cluster", json!(web)), ("decorator.operation", json!("web.shop.svc.cluster.local:80/a*"))],
    );
    assert!(routes[0]["typedPerFilterConfig"]["envoy.filters.http.stateful_session"].is_object());
    // No such port, and no ReferenceGrant. The mirror follows the backends of its rule.
    check(
        &routes[1],
        &[
            ("route.weightedClusters.clusters[0].name", json!("UnknownService")),
            ("route.weightedClusters.clusters[1].name", json!("UnknownService")),
            ("route.requestMirrorPolicies[0].cluster", json!(web)),
        ],
    );
}
