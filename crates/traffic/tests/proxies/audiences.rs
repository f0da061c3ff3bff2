//! Sharing of audiences between proxies.

use std::sync::Arc;

use model::audience::{ALL_ADDRESSES, DefaultEndpoint, IpFamilies, SidecarListenerFacts};
use model::proxy::{InterceptionMode, Proxy};
use traffic::audience::{Audiences, ProxyAudiences};
use traffic::listeners::ListenerCatalogue;
use traffic::listeners::inbound::InboundListeners;
use traffic::listeners::outbound::OutboundListeners;

use crate::world::*;

fn sidecar_facts(audiences: &ProxyAudiences) -> &SidecarListenerFacts {
    audiences.listener.class.sidecar().expect("a sidecar")
}

#[test]
fn what_nobody_asks_for_sets_nobody_apart() {
    let mut world = World::new(&service("web", 1, &["http:80"]));
    let mut one = labelled(sidecar("10.1.0.1"), &[("app", "a"), ("pod", "1")]);
    one.version = "1.28".into();
    let one = world.connect(one);
    let mut other = labelled(sidecar("10.1.0.2"), &[("app", "b"), ("pod", "2")]);
    other.id = "another.default".into();
    other.version = "1.29".into();
    let two = world.connect(other);
    assert_eq!(world.audiences(one), world.audiences(two));
}

#[test]
fn labels_count_where_routes_of_that_kind_ask_for_them() {
    let http = "{hosts: [web], http: [{match: [{sourceLabels: {app: x}}], route: [{destination: {host: web}}]}]}";
    let tcp = "{hosts: [web], tcp: [{match: [{sourceLabels: {zone: x}}], route: [{destination: {host: web}}]}]}";
    let objects =
        [service("web", 1, &["http:80"]), istio("VirtualService", "h", http), istio("VirtualService", "t", tcp)];
    let mut world = World::new(&objects.concat());
    let labels = [("app", "a"), ("zone", "z"), ("pod", "1")];
    let token = world.connect(labelled(sidecar("10.1.0.1"), &labels));
    let audiences = world.audiences(token);
    let keys = |source: &model::audience::Source| source.labels.keys().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(keys(&audiences.route.source), ["app"]);
    assert_eq!(keys(&sidecar_facts(&audiences).source), ["zone"]);
}

#[test]
fn what_a_workload_serves_is_no_part_of_what_it_calls() {
    let objects = [
        service("one", 1, &["http:80"]),
        service("two", 2, &["http:80"]),
        slice("one", &["http:8001"], &["10.1.0.1"]),
        slice("two", &["http:8002"], &["10.1.0.2"]),
    ];
    let mut world = World::new(&objects.concat());
    let (one, two) = (world.connect(sidecar("10.1.0.1")), world.connect(sidecar("10.1.0.2")));
    assert_ne!(world.audiences(one).listener, world.audiences(two).listener);
    let delta = world.apply(&service("more", 3, &["tcp:5432"]));
    assert_eq!(runs::<OutboundListeners>(&delta), 1);
    assert_eq!(runs::<ListenerCatalogue>(&delta), 2);
    assert_eq!((runs::<InboundListeners>(&delta), runs::<Audiences>(&delta)), (0, 0));
}

#[test]
fn ports_of_the_workload_follow_its_own_endpoints_only() {
    let mut world =
        World::new(&[service("web", 1, &["http:80", "udp:53"]), slice("web", &["http:8080"], &["10.1.0.1"])].concat());
    let token = world.connect(sidecar("10.1.0.1"));
    let ports =
        |world: &World| -> Vec<u16> { sidecar_facts(&world.audiences(token)).inbound.iter().map(|p| p.port).collect() };
    assert_eq!(ports(&world), [8080]);
    let delta = world.apply(&slice("web", &["http:8080"], &["10.1.0.1", "10.1.0.2", "10.1.0.3"]));
    assert_eq!(runs::<Audiences>(&delta), 0);
    world.apply(&slice("web", &["http:9090"], &["10.1.0.1"]));
    assert_eq!(ports(&world), [9090]);
    world.apply(&slice("web", &["http:9090"], &["10.1.0.2"]));
    assert_eq!(ports(&world), [0; 0]);
}

#[test]
fn ingress_listeners() {
    let spec = "{ingress: [\
        {port: {number: 7001, protocol: HTTP, name: a}, defaultEndpoint: '127.0.0.1:17001'}, \
        {port: {number: 7002, protocol: TCP, name: b}, defaultEndpoint: '0.0.0.0:17002', captureMode: NONE}, \
        {port: {number: 7003, protocol: TCP, name: c}, defaultEndpoint: 'unix:///run/c', bind: 192.0.2.1}, \
        {port: {number: 7004, protocol: TCP, name: d}, captureMode: IPTABLES}, \
        {port: {number: 7005, protocol: TCP, name: e}, defaultEndpoint: '[::1]:17005'}]}";
    let mut world = World::new(&istio("Sidecar", "mine", spec));
    let captured = world.connect(sidecar("10.1.0.1"));
    let bound = world.connect(Proxy { interception: InterceptionMode::None, ..sidecar("10.1.0.2") });
    let show = |world: &World, token| -> Vec<String> {
        let audiences = world.audiences(token);
        let ports = sidecar_facts(&audiences).inbound.iter();
        ports.map(|p| format!("{} {} {}", p.port, p.bind.as_deref().unwrap_or("-"), p.captured)).collect()
    };
    let want = ["7001 - true", "7002 10.1.0.1 false", "7003 192.0.2.1 true", "7004 - true", "7005 - true"];
    assert_eq!(show(&world, captured), want);
    let want =
        ["7001 10.1.0.2 false", "7002 10.1.0.2 false", "7003 192.0.2.1 false", "7004 - true", "7005 10.1.0.2 false"];
    assert_eq!(show(&world, bound), want);
    let endpoints: Vec<_> =
        sidecar_facts(&world.audiences(captured)).inbound.iter().map(|p| p.endpoint.clone()).collect();
    let unix = Some(DefaultEndpoint::Unix("/run/c".into()));
    let loopback = |port, v6| Some(DefaultEndpoint::Loopback { port, v6 });
    let instance = Some(DefaultEndpoint::Instance(17002));
    assert_eq!(endpoints, [loopback(17001, false), instance, unix, None, loopback(17005, true)]);
}

#[test]
fn a_loopback_address_is_nobodys_own() {
    let spec = "{ingress: [{port: {number: 7001, protocol: HTTP, name: a}, captureMode: NONE}]}";
    let mut world = World::new(&istio("Sidecar", "mine", spec));
    let local = world.connect(sidecar("127.0.0.1"));
    assert_eq!(sidecar_facts(&world.audiences(local)).inbound[0].bind.as_deref(), Some(ALL_ADDRESSES));
    let mut six = sidecar("::1");
    six.addresses.push("fe80::1".parse().unwrap());
    let six = world.connect(six);
    assert_eq!(sidecar_facts(&world.audiences(six)).inbound[0].bind.as_deref(), Some(ALL_ADDRESSES));
    assert_eq!(world.audiences(six).listener.ip, IpFamilies::V6);
}

#[test]
fn gateways_in_order_of_age_and_ports_where_services_lead() {
    let gw = |name: &str, selector: &str, created: &str| {
        let text = istio(
            "Gateway",
            name,
            &format!(
                "{{selector: {selector}, servers: [{{port: {{number: 80, protocol: HTTP, name: h}}, hosts: ['*']}}]}}"
            ),
        );
        text.replace("namespace: default}", &format!("namespace: default, creationTimestamp: '{created}'}}"))
    };
    let objects = [
        gw("young", "{istio: gw}", "2026-03-01T00:00:00Z"),
        gw("old", "{istio: gw}", "2026-01-01T00:00:00Z"),
        gw("everybody", "{}", "2026-02-01T00:00:00Z"),
        gw("other", "{istio: gw, zone: b}", "2026-01-01T00:00:00Z"),
        service("edge", 9, &["http:80", "https:443"]),
        slice("edge", &["http:8080", "https:443"], &["10.1.0.100"]),
    ];
    let mut world = World::new(&objects.concat());
    let token = world.connect(gateway());
    let audiences = world.audiences(token);
    let facts = audiences.listener.class.gateway().expect("a gateway");
    let names: Vec<_> = facts.set.gateways.iter().map(|g| g.name.to_string()).collect();
    assert_eq!(names, ["old", "everybody", "young"]);
    assert_eq!(&*facts.set.ports, [(80, 8080)]);
    assert!(Arc::ptr_eq(facts, audiences.route.class.gateway().expect("a gateway")));
}
