//! Objects that say odd things: nothing panics, and nothing else suffers.

use config::istio::{
    Destination, EgressListener, Gateway, IngressListener, L4MatchAttributes, Port, RouteDestination, Server, Sidecar,
    SidecarPort, TcpRoute, VirtualService,
};
use config::{AnyObject, Object, Resource};
use flow::Batch;
use model::listener::ChainKind;
use model::proxy::{InterceptionMode, Proxy};
use registry::objects;

use crate::world::*;

/// An object past all validation.
fn raw<S: Resource>(spec: S) -> AnyObject {
    Object::new("default", "odd", spec).into()
}

fn port(number: u32) -> Option<SidecarPort> {
    Some(SidecarPort { number, protocol: "TCP".into(), ..Default::default() })
}

#[test]
fn sidecars() {
    let ingress = [
        IngressListener::default(),
        IngressListener { port: port(0), ..Default::default() },
        IngressListener { port: port(70000), ..Default::default() },
        IngressListener { port: port(1), bind: "nowhere".into(), default_endpoint: "x:y".into(), ..Default::default() },
        IngressListener { port: port(2), default_endpoint: "192.0.2.1:5".into(), ..Default::default() },
    ];
    let egress = [
        EgressListener { port: port(70000), hosts: vec!["*/*".into()], ..Default::default() },
        EgressListener { bind: "nowhere".into(), hosts: vec!["*/*".into()], ..Default::default() },
        EgressListener { hosts: vec!["bad".into(), "*/*".into()], ..Default::default() },
    ];
    let spec = Sidecar { ingress: ingress.to_vec(), egress: egress.to_vec(), ..Default::default() };
    let mut world = World::new(&service("web", 1, &["http:80"]));
    let mut batch = Batch::new();
    let object = raw(spec);
    objects::put(&mut batch, object);
    world.commit(batch);
    let captured = world.connect(sidecar("10.1.0.1"));
    let ports: Vec<u16> = world
        .audiences(captured)
        .listener
        .class
        .sidecar()
        .into_iter()
        .flat_map(|facts| facts.inbound.iter())
        .map(|p| p.port)
        .collect();
    assert_eq!(ports, [1, 2]);
    assert!(world.names(captured).contains(&"0.0.0.0_80".to_owned()));
    let bound = world.connect(Proxy { interception: InterceptionMode::None, ..sidecar("10.1.0.2") });
    assert!(world.names(bound).contains(&"10.1.0.2_2".to_owned()));
    assert!(!world.names(bound).iter().any(|n| n.contains("nowhere")));
}

#[test]
fn gateways() {
    let server = |number: u32, bind: &str| Server {
        port: Some(Port { number, protocol: "HTTP".into(), ..Default::default() }),
        bind: bind.into(),
        hosts: vec!["not a host".into(), "*".into()],
        ..Default::default()
    };
    let servers = vec![Server::default(), server(0, ""), server(70000, ""), server(81, "nowhere"), server(82, "")];
    let object = raw(Gateway { servers, ..Default::default() });
    let mut world = World::new("");
    let mut batch = Batch::new();
    objects::put(&mut batch, object);
    world.commit(batch);
    let token = world.connect(gateway());
    assert_eq!(world.names(token), ["0.0.0.0_82"]);
}

#[test]
fn tcp_routes() {
    let to = |host: &str, weight| RouteDestination {
        destination: Destination { host: host.into(), ..Default::default() },
        weight,
    };
    let matches = vec![L4MatchAttributes { destination_subnets: vec!["nonsense".into()], ..Default::default() }];
    let tcp = vec![
        TcpRoute { route: Vec::new(), matches: Vec::new() },
        TcpRoute { route: vec![to("a b", 1)], matches: Vec::new() },
        TcpRoute { route: vec![to("x.com", 0), to("y.com", -5)], matches: Vec::new() },
        TcpRoute { route: vec![to("x.com", 1)], matches },
    ];
    let hosts = vec!["db.default.svc.cluster.local".into()];
    let object = raw(VirtualService { hosts, tcp, ..Default::default() });
    let mut world = World::new(&service("db", 1, &["tcp:5432"]));
    let mut batch = Batch::new();
    objects::put(&mut batch, object);
    world.commit(batch);
    let token = world.connect(sidecar("10.1.0.1"));
    let listener = world.listener(token, "10.96.0.1_5432");
    let [chain] = &listener.chains[..] else { panic!("one chain") };
    // None of the routes can ever be taken; the service itself is left.
    let ChainKind::Tcp(tcp) = &chain.kind else { panic!("a TCP chain") };
    assert_eq!(&*tcp.clusters[0].0, "outbound|5432||db.default.svc.cluster.local");
}
