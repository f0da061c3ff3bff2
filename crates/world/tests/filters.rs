//! Random edits of EnvoyFilters, and of what they change: after each, what was derived step by step equals what is derived
//! anew, and every resource that is listed is there.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use model::proxy::{Capabilities, InterceptionMode, Proxy, ProxyKind};
use model::xds::ResourceType;
use registry::inputs::{MeshSettings, ProxyToken, Sharing};
use resources::{Kind, MeshConfig, ObjectKey, ParseOptions, parse_documents};
use world::{Batch, World};

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

/// Small numbers that look random (xorshift); the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

fn edit(r: &mut Random) -> (Option<String>, ObjectKey) {
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
        kind,
        virtual_hosts_apart: false,
        trusted: false,
        own_workload: None,
        resolver: None,
        id: format!("{name}.shop").into(),
        namespace: "shop".into(),
        dns_domain: "shop.svc.cluster.local".into(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        labels: [("app".into(), app.into())].into(),
        locality: Default::default(),
        network: "".into(),
        network_view: Vec::new(),
        node: "".into(),
        cluster_id: "home".into(),
        service_account: "".into(),
        interception: InterceptionMode::Redirect,
        capabilities: Capabilities::default(),
        accepts_http10: false,
        unprivileged: false,
        ports: Default::default(),
        version: "".into(),
        metadata: Default::default(),
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
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mesh = MeshSettings {
            config: MeshConfig::default(),
            domain: "cluster.local".into(),
            cluster_id: "home".into(),
            sharing: Sharing::All,
        };
        let mut world = World::new(mesh, 1);
        let proxies = [
            world.connect(proxy("a", ProxyKind::Sidecar, "a")),
            world.connect(proxy("b", ProxyKind::Sidecar, "b")),
            world.connect(proxy("gw", ProxyKind::Router, "a")),
        ];
        let mut cells = Vec::new();
        for step in 0..100 {
            let mut batch = Batch::new();
            for _ in 0..=r.below(2) {
                match edit(&mut r) {
                    (Some(text), key) => {
                        let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
                        let object = parsed.objects.into_iter().next();
                        batch.put(object.unwrap_or_else(|| panic!("{key}: {:?}", parsed.diagnostics)));
                    }
                    (None, key) => batch.remove(&key),
                }
            }
            let changes = world.commit(batch);
            assert!(changes.panics.is_empty(), "{:?}", changes.panics);
            let now = open(&mut world, &proxies);
            std::mem::replace(&mut cells, now)
                .into_iter()
                .for_each(|cell| world.close(cell));
            world
                .check()
                .unwrap_or_else(|m| panic!("seed {seed}, step {step}: {m}"));
        }
    }
}
