//! Sidecars' listeners, and what a change makes run again.

use model::listener::{Bind, ChainKind, ListenerSpec, RouteSource};
use model::proxy::{InterceptionMode, Proxy};
use traffic::audience::Audiences;
use traffic::listeners::ListenerCatalogue;
use traffic::listeners::inbound::InboundListeners;
use traffic::listeners::l4::{L4Rules, TcpPolicies};
use traffic::listeners::outbound::{InstanceAddresses, OutboundListeners, PlainListeners};

use crate::world::*;

/// Chains as short texts: `MATCH -> TARGET`, the default chain last behind `*`.
fn chains(listener: &ListenerSpec) -> Vec<String> {
    let target = |kind: &ChainKind| match kind {
        ChainKind::Http(http) => match &http.routes {
            RouteSource::Discovered(name) => format!("routes {name}"),
            RouteSource::Inbound { cluster, .. } => format!("http {cluster}"),
            RouteSource::DynamicForwardProxy => "anywhere".to_owned(),
        },
        ChainKind::Tcp(tcp) => tcp.clusters.iter().map(|(c, w)| format!("{c}*{w}")).collect::<Vec<_>>().join("+"),
    };
    let condition = |m: &model::listener::ChainMatch| {
        let mut parts: Vec<String> = m.destination_port.iter().map(|p| format!(":{p}")).collect();
        parts.extend(m.prefix_ranges.iter().map(ToString::to_string));
        parts.extend(m.server_names.iter().map(ToString::to_string));
        parts.extend(m.application_protocols.iter().map(ToString::to_string));
        parts.join(" ")
    };
    let chain = |c: &model::listener::ChainSpec| format!("{} -> {}", condition(&c.matches), target(&c.kind));
    let default = listener.default_chain.iter().map(|c| format!("* -> {}", target(&c.kind)));
    listener.chains.iter().map(chain).chain(default).collect()
}

#[test]
fn an_endpoint_runs_no_listener_again() {
    let ports = ["http:80", "tcp:9000", "any:7000"];
    let mut world = World::new(&[service("web", 1, &ports), slice("web", &ports, &["10.1.0.5"])].concat());
    world.connect(sidecar("10.1.0.1"));
    world.connect(gateway());
    let delta = world.apply(&slice("web", &ports, &["10.1.0.5", "10.1.0.6"]));
    assert_eq!(runs::<Audiences>(&delta), 0);
    assert_eq!(runs::<OutboundListeners>(&delta) + runs::<InboundListeners>(&delta), 0);
    assert_eq!(runs::<ListenerCatalogue>(&delta) + runs::<InstanceAddresses>(&delta), 0);
}

#[test]
fn instances_of_headless_services_do() {
    let mut world = World::new(&[service("db", 0, &["tcp:5432"]), slice("db", &["tcp:5432"], &["10.1.0.5"])].concat());
    let token = world.connect(sidecar("10.1.0.1"));
    let delta = world.apply(&slice("db", &["tcp:5432"], &["10.1.0.5", "10.1.0.6"]));
    assert_eq!((runs::<InstanceAddresses>(&delta), runs::<OutboundListeners>(&delta)), (1, 1));
    assert_eq!(world.names(token), ["10.1.0.5_5432", "10.1.0.6_5432", "virtualInbound", "virtualOutbound"]);
    // A service of another kind of port at the same pods has listeners of its own.
    let delta = world.apply(&slice("db", &["tcp:5432", "http:80"], &["10.1.0.5", "10.1.0.6"]));
    assert_eq!((runs::<InstanceAddresses>(&delta), runs::<OutboundListeners>(&delta)), (1, 0));
}

#[test]
fn routes_and_policies_for_http_run_no_listener_again() {
    let vs = |timeout: u32, subset: &str| {
        let spec = format!(
            "{{hosts: [db], http: [{{timeout: {timeout}s, route: [{{destination: {{host: db, port: {{number: 80}}}}}}]}}], \
             tcp: [{{match: [{{port: 5432}}], route: [{{destination: {{host: db, subset: {subset}, port: {{number: 5432}}}}}}]}}]}}"
        );
        istio("VirtualService", "vs", &spec)
    };
    let rule = |limit: u32| {
        let spec = format!(
            "{{host: db, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {limit}, idleTimeout: 9s}}}}}}}}"
        );
        istio("DestinationRule", "dr", &spec)
    };
    let mut world = World::new(&[service("db", 1, &["http:80", "tcp:5432"]), vs(1, "a"), rule(1)].concat());
    let token = world.connect(sidecar("10.1.0.1"));
    let delta = world.apply(&vs(2, "a"));
    assert_eq!((runs::<L4Rules>(&delta), runs::<OutboundListeners>(&delta)), (1, 0));
    let delta = world.apply(&rule(2));
    assert_eq!((runs::<TcpPolicies>(&delta), runs::<OutboundListeners>(&delta)), (1, 0));
    let delta = world.apply(&vs(2, "b"));
    assert_eq!(runs::<OutboundListeners>(&delta), 1);
    let listener = world.listener(token, "10.96.0.1_5432");
    assert_eq!(chains(&listener), [" -> outbound|5432|b|db.default.svc.cluster.local*1"]);
}

#[test]
fn a_listener_of_its_own_is_bound_only_without_capture() {
    let mut world = World::new(&service("web", 1, &["http:8080", "tcp:9000"]));
    let bound = world.connect(Proxy { interception: InterceptionMode::None, ..sidecar("10.1.0.1") });
    assert_eq!(world.names(bound), ["127.0.0.1_8080", "127.0.0.1_9000"]);
    assert!(world.listeners(bound).iter().all(|l| l.bind_to_port));
    let captured = world.connect(sidecar("10.1.0.1"));
    let listeners = world.listeners(captured);
    let really: Vec<&str> = listeners.iter().filter(|l| l.bind_to_port).map(|l| &*l.name).collect();
    assert_eq!(really, ["virtualInbound", "virtualOutbound"]);
}

#[test]
fn inbound_ports_whose_protocol_is_declared_are_not_looked_into() {
    let ports = ["http:8001", "tcp:8002", "any:8003"];
    let mut world = World::new(&[service("web", 1, &ports), slice("web", &ports, &["10.1.0.1"])].concat());
    let token = world.connect(sidecar("10.1.0.1"));
    let listener = world.listener(token, "virtualInbound");
    assert_eq!(listener.server_first_ports, [8001, 8002, 15006]);
    let want = [
        ":15006 -> BlackHoleCluster*1",
        "http/1.1 h2c -> http InboundPassthroughCluster",
        " -> InboundPassthroughCluster*1",
        ":8001 -> http inbound|8001||",
        ":8002 -> inbound|8002||*1",
        ":8003 http/1.1 h2c -> http inbound|8003||",
        ":8003 -> inbound|8003||*1",
    ];
    assert_eq!(chains(&listener), want);
}

#[test]
fn declared_listeners_keep_others_out() {
    let spec = "{egress: [\
        {port: {number: 9080, protocol: HTTP, name: a}, hosts: ['./a.default.svc.cluster.local']}, \
        {port: {number: 0, protocol: TCP, name: u}, bind: 'unix:///run/u', hosts: ['./b.default.svc.cluster.local']}, \
        {hosts: ['./*']}]}";
    let objects = [
        service("a", 1, &["http:9080"]),
        service("b", 2, &["http:9080"]),
        service("c", 3, &["any:9080"]),
        istio("Sidecar", "s", spec),
    ];
    let mut world = World::new(&objects.concat());
    let token = world.connect(sidecar("10.1.0.1"));
    assert_eq!(
        world.names(token),
        ["0.0.0.0_9080", "10.96.0.3_9080", "unix:///run/u_0", "virtualInbound", "virtualOutbound"]
    );
    let unix = world.listener(token, "unix:///run/u_0");
    assert_eq!(unix.bind, Bind::Unix("/run/u".into()));
    assert!(unix.bind_to_port);
    assert_eq!(chains(&unix), [" -> outbound|9080||b.default.svc.cluster.local*1"]);
}

#[test]
fn a_listener_is_made_once_for_all_who_see_its_service() {
    let mut world = World::new(&service("db", 1, &["tcp:5432", "any:7000"]));
    let mut tokens = Vec::new();
    for namespace in ["a", "b", "c"] {
        tokens.push(world.connect(Proxy { namespace: namespace.into(), ..sidecar("10.1.0.1") }));
    }
    let delta = world.apply(&service("more", 2, &["tcp:5432"]));
    assert_eq!((runs::<PlainListeners>(&delta), runs::<OutboundListeners>(&delta)), (1, 3));
    let mut listener = |at: usize| world.listener(tokens[at], "10.96.0.1_7000");
    let (one, two) = (listener(0), listener(1));
    assert!(std::sync::Arc::ptr_eq(&one, &two));
    // A policy of one namespace sets it apart, for the services that the policy is for.
    let spec = "{host: db.default.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {idleTimeout: 9s}}}}";
    world.apply(&istio("DestinationRule", "dr", spec).replace("namespace: default", "namespace: a"));
    let mut listener = |at: usize, name| world.listener(tokens[at], name);
    assert_ne!(listener(0, "10.96.0.1_7000"), listener(1, "10.96.0.1_7000"));
    assert_eq!(listener(0, "10.96.0.2_5432"), listener(1, "10.96.0.2_5432"));
}

#[test]
fn routes_by_server_name_that_overlap() {
    let entry = "{hosts: [a.com], resolution: DNS, ports: [{name: tls, number: 443, protocol: TLS}]}";
    let vs = "{hosts: ['*.com'], tls: [\
        {match: [{sniHosts: [a.com, b.com]}], route: [{destination: {host: one.com}}]}, \
        {match: [{sniHosts: [b.com, c.com]}], route: [{destination: {host: two.com}}]}, \
        {match: [{sniHosts: [c.com], destinationSubnets: [10.0.0.0/8]}], route: [{destination: {host: three.com}}]}, \
        {match: [{sniHosts: [a.com]}], route: [{destination: {host: never.com}}]}]}";
    let mut world = World::new(&[istio("ServiceEntry", "a", entry), istio("VirtualService", "vs", vs)].concat());
    let token = world.connect(sidecar("10.1.0.1"));
    let want = [
        "a.com b.com -> outbound|443||one.com*1",
        "c.com -> outbound|443||two.com*1",
        "10.0.0.0/8 c.com -> outbound|443||three.com*1",
        "* -> PassthroughCluster*1",
    ];
    assert_eq!(chains(&world.listener(token, "0.0.0.0_443")), want);
}
