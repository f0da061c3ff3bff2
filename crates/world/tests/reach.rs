//! The resources that depend on an object.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use config::{Kind, ObjectKey, ParseOptions, parse_documents};
use envoy::types;
use model::kube::GATEWAY_NAME;
use model::proxy::ProxyKind;
use registry::inputs::Sharing;
use world::{Batch, World};

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: x, namespace: shop}
spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: y, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: for-all, namespace: shop}
spec:
  hosts: [x.shop.svc.cluster.local]
  http: [{route: [{destination: {host: x.shop.svc.cluster.local}}], timeout: 1s}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: own, namespace: other}
spec:
  exportTo: [.]
  hosts: [x.shop.svc.cluster.local]
  http: [{route: [{destination: {host: x.shop.svc.cluster.local}}], timeout: 2s}]
";

/// A route table refers to the virtual hosts that tables share. An object that only those depend on which a table replaces is
/// not counted for it.
#[test]
fn a_replaced_virtual_host_does_not_count() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let mut batch = Batch::new();
    for object in parse_documents(OBJECTS.as_bytes(), "f", &ParseOptions::default()).objects {
        batch.put(object);
    }
    world.commit(batch);
    let mut table = |namespace: &str| {
        let (token, _) = world.connect(Arc::new(support::proxy("app", namespace, ProxyKind::Sidecar)));
        let audience = world.audience(token, types::ROUTE).unwrap();
        let key = world.resolve(&audience, &"80".into()).unwrap();
        world.open(&key).0
    };
    let (other, third) = (table("other"), table("third"));
    let reached = |name: &str, namespace: &str| {
        let reach = world.reach(&ObjectKey::new(Kind::VirtualService, namespace, name));
        assert!(reach.complete);
        reach.resources
    };
    assert_eq!(reached("for-all", "shop"), [third]);
    assert_eq!(reached("own", "other"), [other]);
}

const POLICIES: &str = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: rules, namespace: shop}
spec: {rules: [{from: [{source: {principals: [a]}}]}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: shop}
spec: {jwtRules: [{issuer: a, jwks: '{\"keys\": []}'}]}
";

/// Listeners read the policies of their workload. Without them, the status would say that no proxy enforces a policy.
#[test]
fn policies_reach_the_listeners_that_enforce_them() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let mut batch = Batch::new();
    for object in parse_documents(POLICIES.as_bytes(), "f", &ParseOptions::default()).objects {
        batch.put(object);
    }
    world.commit(batch);
    let mut listener = |namespace: &str| {
        let (token, _) = world.connect(Arc::new(support::proxy("app", namespace, ProxyKind::Sidecar)));
        let (own, shared) = (world.own_audience(token, types::LISTENER), world.audience(token, types::LISTENER));
        for audience in own.into_iter().chain(shared) {
            let Some((_, catalogue)) = world.open_catalogue(&audience, &Arc::default()) else { continue };
            if let Some((_, key)) = catalogue.entries.iter().find(|(name, _)| name.to_string() == "virtualInbound") {
                return world.open(key).0;
            }
        }
        panic!("no inbound listener");
    };
    let (enforcing, other) = (listener("shop"), listener("other"));
    assert_ne!(enforcing, other);
    for (kind, name) in [(Kind::AuthorizationPolicy, "rules"), (Kind::RequestAuthentication, "tokens")] {
        let reach = world.reach(&ObjectKey::new(kind, "shop", name));
        assert!(reach.complete);
        assert_eq!(reach.resources, [enforcing], "{kind:?}");
    }
}

const LISTENERS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: istio
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: shop}
spec: {parentRef: {name: edge}, listeners: [{name: http, port: 81, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: foreign, namespace: other}
spec: {parentRef: {name: edge, namespace: shop}, listeners: [{name: http, port: 82, protocol: HTTP}]}
";

/// The proxies of a Gateway are counted for its ListenerSets, and not for those that it does not allow. Tables of other objects do
/// not count.
#[test]
fn listener_sets_reach_the_listeners_of_their_gateway() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let mut batch = Batch::new();
    for object in parse_documents(LISTENERS.as_bytes(), "f", &ParseOptions::default()).objects {
        batch.put(object);
    }
    world.commit(batch);
    let mut proxy = support::proxy("edge", "shop", ProxyKind::Router);
    proxy.labels = [(GATEWAY_NAME.into(), "edge".into())].into();
    let (token, _) = world.connect(Arc::new(proxy));
    let (mut catalogues, mut second) = (Vec::new(), None);
    for audience in world.own_audience(token, types::LISTENER).into_iter().chain(world.audience(token, types::LISTENER))
    {
        let Some((cell, catalogue)) = world.open_catalogue(&audience, &Arc::default()) else { continue };
        if let Some((_, key)) = catalogue.entries.iter().find(|(name, _)| name.to_string() == "0.0.0.0_81") {
            catalogues.push(cell);
            second = Some(world.open(key).0);
        }
    }
    let audience = world.audience(token, types::ROUTE).unwrap();
    let mut table = |name: &str| world.open(&world.resolve(&audience, &name.into()).unwrap()).0;
    let tables = [table("http.80"), table("http.81")];
    let objects = [(Kind::KubeGateway, "edge", "0.0.0.0_80"), (Kind::ListenerSet, "more", "0.0.0.0_81")];
    for ((kind, name, listener), table) in objects.into_iter().zip(tables) {
        let reach = world.reach(&ObjectKey::new(kind, "shop", name));
        assert!(reach.complete);
        let own: Vec<_> = catalogues.iter().map(|cell| (*cell, Some(vec![listener.into()]))).collect();
        assert_eq!(reach.catalogues, own, "{kind}");
        assert_eq!(reach.resources, [table], "{kind}: its own route table");
        assert_eq!(catalogues.len(), 1, "the listener of the set is in one list");
    }
    let behind = world.objects_behind(second.expect("the listener of the set"), None);
    assert_eq!(behind, ["ListenerSet shop/more"]);
    let reach = world.reach(&ObjectKey::new(Kind::ListenerSet, "other", "foreign"));
    assert!(reach.complete && reach.resources.is_empty() && reach.catalogues.is_empty(), "{reach:?}");
}
