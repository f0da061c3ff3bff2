//! Random edits of services, endpoints and workloads in several clusters: after each edit, the incremental state equals a
//! recomputation.
#![allow(clippy::unwrap_used)]

mod support;

use envoy::types;
use std::sync::Arc;

use config::{Kind, ObjectKey};
use model::proxy::{Proxy, ProxyKind};
use registry::inputs::Sharing;
use support::{Edit, Random};
use world::World;

const CLUSTERS: [&str; 3] = ["", "west", "east"];
const NAMES: [&str; 2] = ["web", "db"];
const PODS: [&str; 4] = ["a", "b", "c", "d"];

/// An edit: an object's text and its key, or its removal.
fn edit(r: &mut Random) -> Edit {
    let cluster = r.one(&CLUSTERS);
    let name = r.one(&NAMES);
    let (kind, namespace, name, text, cluster) = match r.below(12) {
        0 => (Kind::Service, "shop", name, service(r, name), cluster),
        1 | 2 => (Kind::EndpointSlice, "shop", name, slice(r, name), cluster),
        3 | 4 => {
            let pod = r.one(&PODS);
            (Kind::Pod, "shop", pod, pod_text(r, pod), cluster)
        }
        5 => {
            let node = r.one(&["n1", "n2"]);
            (Kind::Node, "", node, node_text(r, node), cluster)
        }
        6 => (Kind::Namespace, "", "istio-system", namespace_text(r), cluster),
        7 => (Kind::Service, "istio-system", "gateway", gateway(r), cluster),
        8 | 9 => (Kind::ServiceExport, "shop", name, export(name), cluster),
        10 => (Kind::DestinationRule, "shop", name, rule(r, name), ""),
        _ => (Kind::MeshNetworks, "", "default", networks(r), ""),
    };
    let key = ObjectKey::new(kind, namespace, name).in_cluster(cluster);
    (r.chance().then_some(text), key)
}

fn service(r: &mut Random, name: &str) -> String {
    let ip = r.one(&["10.96.0.1", "10.96.0.2", "None"]);
    let more = r.one(&[
        "",
        "internalTrafficPolicy: Local,",
        "trafficDistribution: PreferSameNode,",
        "trafficDistribution: PreferClose,",
    ]);
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{clusterIP: {ip}, {more} selector: {{app: {name}}}, ports: [{{name: tcp, port: 80, targetPort: 8080}}]}}}}"
    )
}

fn slice(r: &mut Random, name: &str) -> String {
    let endpoints: Vec<String> = (0..r.below(4))
        .map(|_| {
            let (pod, ready) = (r.below(PODS.len()), r.chance());
            let target = match r.chance() {
                true => format!(", targetRef: {{kind: Pod, namespace: shop, name: {}}}", PODS[pod]),
                false => ", nodeName: n1".to_owned(),
            };
            format!("{{addresses: [10.0.0.{pod}], conditions: {{ready: {ready}}}{target}}}")
        })
        .collect();
    format!(
        "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
         metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}, \
         ports: [{{name: tcp, port: 8080}}], endpoints: [{}]}}",
        endpoints.join(", ")
    )
}

fn pod_text(r: &mut Random, name: &str) -> String {
    let at = PODS.iter().position(|p| *p == name).unwrap();
    let label = r.one(&["x: y", "security.istio.io/tlsMode: istio", "topology.istio.io/network: south", "version: v1"]);
    let (app, node, phase) = (r.one(&NAMES), r.one(&["n1", "n2"]), r.one(&["Running", "Running", "Failed"]));
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, labels: {{app: {app}, {label}}}}}, \
         spec: {{nodeName: {node}}}, status: {{podIP: 10.0.0.{at}, phase: {phase}}}}}"
    )
}

fn node_text(r: &mut Random, name: &str) -> String {
    let (region, zone) = (r.one(&["eu", "us"]), r.one(&["west", "east"]));
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{topology.kubernetes.io/region: {region}, \
         topology.kubernetes.io/zone: {zone}}}}}, status: {{addresses: [{{type: ExternalIP, address: 203.0.113.1}}]}}}}"
    )
}

fn namespace_text(r: &mut Random) -> String {
    let network = r.one(&["north", "south"]);
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: istio-system, labels: {{topology.istio.io/network: {network}}}}}}}"
    )
}

fn gateway(r: &mut Random) -> String {
    let network = r.one(&["north", "south"]);
    let more = r.one(&["externalIPs: [192.0.2.1]", "externalIPs: [192.0.2.2, 192.0.2.3]"]);
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: gateway, namespace: istio-system, \
         labels: {{topology.istio.io/network: {network}}}}}, spec: {{clusterIP: 10.96.0.9, {more}, \
         ports: [{{name: tls, port: 15443}}]}}}}"
    )
}

fn rule(r: &mut Random, name: &str) -> String {
    let policy = r.one(&[
        "outlierDetection: {}",
        "outlierDetection: {}, loadBalancer: {localityLbSetting: {failoverPriority: [version, topology.istio.io/network]}}",
        "loadBalancer: {localityLbSetting: {distribute: [{from: 'eu/*', to: {'eu/*': 60, 'us/*': 40}}]}}",
        "tls: {mode: DISABLE}",
    ]);
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: {name}, namespace: shop}}, \
         spec: {{host: {name}, trafficPolicy: {{{policy}}}, \
         subsets: [{{name: west, labels: {{topology.istio.io/cluster: west}}}}]}}}}"
    )
}

fn export(name: &str) -> String {
    format!(
        "{{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ServiceExport, metadata: {{name: {name}, namespace: shop}}}}"
    )
}

fn networks(r: &mut Random) -> String {
    let endpoints = r.one(&["[{fromRegistry: west}]", "[{fromCidr: 10.0.0.0/30}]"]);
    format!(
        "{{apiVersion: mesh.istio.io/v1alpha1, kind: MeshNetworks, spec: {{networks: {{north: {{endpoints: {endpoints}, \
         gateways: [{{address: 198.51.100.1, port: 15443}}]}}}}}}}}"
    )
}

fn proxy(name: &str, kind: ProxyKind, cluster: &str, node: &str) -> Arc<Proxy> {
    Arc::new(Proxy {
        labels: [("version".into(), "v1".into())].into(),
        locality: model::proxy::Locality::parse("eu/west"),
        network: if cluster == "west" { "north" } else { "south" }.into(),
        node: node.into(),
        cluster_id: cluster.into(),
        ..support::proxy(name, "shop", kind)
    })
}

/// Subscribes to all resources of the proxies: catalogues, and the endpoints of their clusters.
fn open(world: &mut World, proxies: &[registry::inputs::ProxyToken]) -> Vec<flow::CellId> {
    let mut cells = Vec::new();
    for token in proxies {
        let endpoints = world.audience(*token, types::ENDPOINTS).unwrap();
        let own = world.own_audience(*token, types::ENDPOINTS);
        let (listed, clusters) = support::open_listed(world, *token);
        cells.extend(listed);
        for name in clusters {
            let key = own.as_ref().and_then(|own| world.resolve(own, &name));
            // Only outbound clusters have discovered endpoints.
            if let Some(key) = key.or_else(|| world.resolve(&endpoints, &name)) {
                cells.push(world.open(&key).0);
            }
        }
    }
    cells
}

#[test]
fn incremental_state_equals_recomputation() {
    for seed in 1..=3u64 {
        let mut r = Random::new(seed);
        let mut world =
            World::new(support::settings([Sharing::All, Sharing::Exported, Sharing::Imported][seed as usize % 3]), 1);
        let proxies = [
            world.connect(proxy("a", ProxyKind::Sidecar, "home", "n1")).0,
            world.connect(proxy("b", ProxyKind::Sidecar, "west", "n2")).0,
            world.connect(proxy("gw", ProxyKind::Router, "", "")).0,
        ];
        support::step_by_step(&mut world, &mut r, (3, edit), |world| open(world, &proxies));
    }
}
