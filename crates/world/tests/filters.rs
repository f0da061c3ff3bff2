//! Random edits of EnvoyFilters, and of what they change: after each, what was derived step by step equals what is derived
//! anew, and every resource that is listed is there.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use model::proxy::{Proxy, ProxyKind};
use model::xds::ResourceType;
use registry::inputs::{ProxyToken, Sharing};
use resources::{Kind, ObjectKey};
use support::{Edit, Random};
use world::World;

/// Patches of every sort.
const PATCHES: [&str; 14] = [
    "{applyTo: CLUSTER, patch: {operation: MERGE, value: {connectTimeout: 3s}}}",
    "{applyTo: CLUSTER, match: {cluster: {service: a.shop.svc.cluster.local}}, patch: {operation: REMOVE}}",
    "{applyTo: CLUSTER, patch: {operation: ADD, value: {name: mine, connectTimeout: 1s}}}",
    "{applyTo: LISTENER, match: {listener: {portNumber: 80}}, patch: {operation: MERGE, value: {perConnectionBufferLimitBytes: 9}}}",
    "{applyTo: LISTENER, match: {listener: {name: virtualInbound}}, patch: {operation: REMOVE}}",
    "{applyTo: LISTENER, patch: {operation: ADD, value: {name: mine, address: {socketAddress: {address: 127.0.0.1, portValue: 7}}}}}",
    "{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: {name: mine, typedConfig: {\"@type\": t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
    "{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: INSERT_FIRST, value: {name: found, configDiscovery: {configSource: {ads: {}}, typeUrls: [t/x]}}}}",
    "{applyTo: FILTER_CHAIN, match: {listener: {name: virtualOutbound}}, patch: {operation: MERGE, value: {name: other}}}",
    "{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {requestHeadersToRemove: [x]}}}",
    "{applyTo: VIRTUAL_HOST, match: {routeConfiguration: {vhost: {name: \"a.shop.svc.cluster.local:80\"}}}, patch: {operation: REMOVE}}",
    "{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: mine, domains: [mine.example.com]}}}",
    "{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: {maxDirectResponseBodySizeBytes: 5}}}",
    "{applyTo: EXTENSION_CONFIG, patch: {operation: ADD, value: {name: found, typedConfig: {\"@type\": t/envoy.extensions.filters.http.cors.v3.Cors}}}}",
];

fn edit(r: &mut Random) -> Edit {
    let (kind, namespace, name, text) = match r.below(5) {
        0 => {
            let name = r.one(&["a", "b"]);
            let ip = r.one(&["10.96.0.1", "10.96.0.2"]);
            let text = format!(
                "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, spec: {{clusterIP: {ip}, \
                 selector: {{app: a}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}}}"
            );
            (Kind::Service, "shop", name, text)
        }
        1 => {
            let timeout = r.below(9) + 1;
            let text = format!(
                "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: a, namespace: shop}}, spec: \
                 {{hosts: [a], http: [{{timeout: {timeout}s, route: [{{destination: {{host: a}}}}]}}]}}}}"
            );
            (Kind::VirtualService, "shop", "a", text)
        }
        _ => {
            let (namespace, name) = (r.one(&["shop", "istio-system"]), r.one(&["x", "y"]));
            let priority = r.below(3);
            let selector = r.one(&["", "workloadSelector: {labels: {app: a}},"]);
            let patches: Vec<&str> = (0..r.below(4)).map(|_| r.one(&PATCHES)).collect();
            let text = format!(
                "{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: {name}, namespace: {namespace}}}, \
                 spec: {{priority: {priority}, {selector} configPatches: [{}]}}}}",
                patches.join(", ")
            );
            (Kind::EnvoyFilter, namespace, name, text)
        }
    };
    let there = r.below(3) > 0;
    (there.then_some(text), ObjectKey::new(kind, namespace, name))
}

fn proxy(name: &str, kind: ProxyKind, app: &str) -> Arc<Proxy> {
    Arc::new(Proxy {
        labels: [("app".into(), app.into())].into(),
        ..support::proxy(name, "shop", kind)
    })
}

/// Subscribes to all that the proxies have.
fn open(world: &mut World, proxies: &[ProxyToken]) -> Vec<flow::CellId> {
    let mut cells = Vec::new();
    for token in proxies {
        for kind in [ResourceType::Cluster, ResourceType::Listener] {
            let audience = world.audience(*token, kind).unwrap();
            let (cell, catalogue) = world.open_catalogue(&audience, &Arc::default()).unwrap();
            cells.push(cell);
            for (name, key) in &catalogue.entries {
                let (cell, resource) = world.open(key);
                assert_eq!(
                    resource.map(|r| r.name().clone()).as_ref(),
                    Some(name),
                    "listed under its name"
                );
                cells.push(cell);
            }
        }
        for (kind, name) in [(ResourceType::Route, "80"), (ResourceType::Extension, "found")] {
            let audience = world.audience(*token, kind).unwrap();
            let key = world.resolve(&audience, &name.into()).unwrap();
            cells.push(world.open(&key).0);
        }
    }
    cells
}

#[test]
fn derived_step_by_step_and_anew() {
    for seed in 1..=3u64 {
        let mut r = Random::new(seed);
        let mut world = World::new(support::settings(Sharing::All), 1);
        let proxies = [
            world.connect(proxy("a", ProxyKind::Sidecar, "a")),
            world.connect(proxy("b", ProxyKind::Sidecar, "b")),
            world.connect(proxy("gw", ProxyKind::Router, "a")),
        ];
        support::step_by_step(&mut world, &mut r, (2, edit), |world| open(world, &proxies));
    }
}
