//! Endpoints that depend on a client's node are the only ones that the nodes do not share.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use config::{ParseOptions, parse_documents};
use envoy::{Endpoints, LoadAssignments, types};
use model::audience::ResourceKey;
use model::proxy::{Locality, Proxy, ProxyKind};
use model::xds::Resource;
use protos::Message;
use protos::envoy::config::listener::v3::Listener;
use registry::inputs::{ProxyToken, Sharing};
use world::{Batch, World};

const NODES: usize = 97;
const PROXIES: usize = 200;
const SERVICES: usize = 100;

fn service(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{clusterIP: 10.96.0.1, ports: [{{name: http, port: 80}}]{more}}}\n---\n{}",
        slice(name, "10.0.0.1")
    )
}

fn slice(name: &str, address: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {name}-1, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: 8080}}]\n\
         endpoints: [{{addresses: [{address}], nodeName: n1}}, {{addresses: [10.0.0.9], nodeName: n2}}]\n---\n"
    )
}

fn commit(world: &mut World, text: &str) -> world::Changes {
    let parsed = parse_documents(text.as_bytes(), "mesh.yaml", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
    let mut batch = Batch::new();
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    world.commit(batch)
}

/// A mesh of ordinary services, and proxies on all nodes, which are in three zones.
fn mesh(services: usize, proxies: usize) -> (World, Vec<ProxyToken>) {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let mut text = String::new();
    for number in 0..services {
        write!(text, "{}", service(&format!("s{number}"), "")).unwrap();
    }
    commit(&mut world, &text);
    let proxy = |number: usize| Proxy {
        // They serve none of the services.
        addresses: vec![Ipv4Addr::from_bits(0x0b00_0000 + u32::try_from(number).unwrap()).into()],
        node: format!("n{}", number % NODES).into(),
        locality: Locality::parse(["eu/1", "eu/2", "eu/3"][number % NODES % 3]),
        ..support::proxy(&format!("p{number}"), "shop", ProxyKind::Sidecar)
    };
    let tokens = (0..proxies).map(|number| world.connect(Arc::new(proxy(number))).0).collect();
    (world, tokens)
}

/// Subscribes each proxy to the endpoints of all clusters. Returns the keys of the resources.
fn subscribe(world: &mut World, tokens: &[ProxyToken], hosts: &[String]) -> BTreeSet<ResourceKey> {
    let names: Vec<Arc<str>> =
        hosts.iter().map(|host| format!("outbound|80||{host}.shop.svc.cluster.local").into()).collect();
    let mut keys = BTreeSet::new();
    for token in tokens {
        let shared = world.audience(*token, types::ENDPOINTS).unwrap();
        let own = world.own_audience(*token, types::ENDPOINTS);
        for name in &names {
            let key = own.as_ref().and_then(|own| world.resolve(own, name));
            keys.insert(key.unwrap_or_else(|| world.resolve(&shared, name).unwrap()));
        }
    }
    for key in &keys {
        assert!(world.open(key).1.is_some(), "{key:?}");
    }
    keys
}

fn hosts(services: usize, more: &[&str]) -> Vec<String> {
    (0..services).map(|number| format!("s{number}")).chain(more.iter().map(|name| (*name).to_owned())).collect()
}

/// The number of runs of a rule since the world began.
fn runs<R: flow::Relation>(world: &World) -> usize {
    world.engine().stats().relation(R::NAME).unwrap().runs
}

#[test]
fn only_node_local_endpoints_are_held_for_each_node() {
    let (mut world, tokens) = mesh(SERVICES, PROXIES);
    let shared = subscribe(&mut world, &tokens, &hosts(SERVICES, &[]));
    assert_eq!(shared.len(), SERVICES);

    let before = runs::<Endpoints>(&world);
    commit(&mut world, &service("agent", ", internalTrafficPolicy: Local"));
    assert_eq!(runs::<Endpoints>(&world), before, "other endpoints are not derived again");
    let keys = subscribe(&mut world, &tokens, &hosts(SERVICES, &["agent"]));
    assert_eq!(keys.len(), SERVICES + NODES);
    assert!(shared.is_subset(&keys), "the others are the same resources");

    let before = (runs::<LoadAssignments>(&world), runs::<Endpoints>(&world));
    let changes = commit(&mut world, &slice("s7", "10.0.0.2"));
    assert_eq!(changes.resources.len(), 1);
    assert_eq!((runs::<LoadAssignments>(&world), runs::<Endpoints>(&world)), (before.0 + 1, before.1 + 1));
}

#[test]
fn a_fact_that_many_services_need_separates_all_endpoints_by_this_fact_only() {
    let (mut world, tokens) = mesh(SERVICES, PROXIES);
    let mut text = service("agent", ", internalTrafficPolicy: Local");
    for number in 0..SERVICES / 2 {
        text += &service(&format!("s{number}"), ", trafficDistribution: PreferClose");
    }
    commit(&mut world, &text);
    let keys = subscribe(&mut world, &tokens, &hosts(SERVICES, &["agent"]));
    // Each zone has its own, and the node-local service has one for each node.
    assert_eq!(keys.len(), 3 * SERVICES + NODES);
}

/// The cost of a node-local service, and the cost if all endpoints were held for each node because of it:
/// `cargo test -p world --test sharing -- --ignored --nocapture`.
/// The inbound listeners of workloads differ in names and ports. Most of their bytes are in memory once.
#[test]
fn inbound_listeners_share_what_they_have_in_common() {
    let mut world = World::new(support::settings(Sharing::All), 1);
    let service = |name: &str, port: u16| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{clusterIP: 10.96.0.1, selector: {{app: {name}}}, ports: [{{name: http, port: {port}}}, {{name: any, port: 7{port}}}]}}\n---\n"
        )
    };
    commit(&mut world, &(service("a", 80) + &service("b", 81)));
    let listeners = ["a", "b"].map(|app| {
        let labels = [("app".into(), app.into())].into();
        let proxy = Proxy { labels, version: "1.30".into(), ..support::proxy(app, "shop", ProxyKind::Sidecar) };
        let token = world.connect(Arc::new(proxy)).0;
        let listeners = support::open_list(&mut world, token, (types::LISTENER, &Arc::default()), &mut Vec::new());
        listeners.into_iter().find(|listener| **listener.name() == *"virtualInbound").unwrap()
    });
    assert_ne!(listeners[0], listeners[1]);
    let places = |listener: &Resource| listener.pieces().iter().map(|piece| piece.as_ptr()).collect::<BTreeSet<_>>();
    let [first, second] = listeners.each_ref().map(places);
    let shared = listeners[0].pieces().iter().filter(|piece| second.contains(&piece.as_ptr()));
    let shared: usize = shared.map(|piece| piece.len()).sum();
    assert!(2 * shared > listeners[0].len(), "{shared} of {} bytes", listeners[0].len());
    assert!(first.len() < listeners[0].pieces().len(), "chains of a listener share as well");
    // The pieces are the message.
    let body = listeners[0].body();
    assert_eq!(Listener::decode(body.clone()).unwrap().encode_to_vec(), body);
}

#[test]
#[ignore = "a measurement"]
fn cost_of_a_node_local_service() {
    let (services, proxies) = (1000, 1000);
    let (mut world, tokens) = mesh(services, proxies);
    let show = |world: &World, start: Instant, what: &str| {
        let (cells, edges) = (world.engine().stats().cells(), world.engine().stats().edges());
        println!("{what}: {:.2?}, {cells} cells, {edges} edges", start.elapsed());
    };
    let start = Instant::now();
    subscribe(&mut world, &tokens, &hosts(services, &[]));
    show(&world, start, "endpoints of all services");
    let start = Instant::now();
    commit(&mut world, &service("agent", ", internalTrafficPolicy: Local"));
    show(&world, start, "the commit of a node-local service");
    let start = Instant::now();
    let keys = subscribe(&mut world, &tokens, &hosts(services, &["agent"]));
    show(&world, start, "endpoints of all services for all nodes");
    let of_nodes = keys.iter().filter_map(|key| match key {
        ResourceKey::Endpoints(audience, _) if !audience.location.node.is_empty() => Some(audience.clone()),
        _ => None,
    });
    let start = Instant::now();
    for audience in of_nodes.collect::<BTreeSet<_>>() {
        for host in hosts(services, &[]) {
            let name = format!("outbound|80||{host}.shop.svc.cluster.local");
            world.open(&ResourceKey::Endpoints(audience.clone(), name.into()));
        }
    }
    show(&world, start, "endpoints of all services, held for each node");
}
