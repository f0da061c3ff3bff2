//! Many edits in any order come to what a fresh derivation comes to.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{Kind, ObjectKey};
use flow::Batch;
use model::listener::ListenerSpec;
use model::proxy::{InterceptionMode, Proxy, ProxyKind};
use registry::inputs::*;
use registry::objects;
use traffic::routes::RouteTables;

use crate::world::*;

/// A small generator (xorshift): the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const PORTS: [&str; 6] = ["http:80", "tcp:80", "any:80", "mongo:80", "tls:443", "tcp:5432"];
const IPS: [&str; 3] = ["10.1.0.1", "10.1.0.2", "10.1.0.100"];

fn object(dice: &mut Dice) -> String {
    let name = dice.of(&NAMES);
    match dice.below(7) {
        0 => service(name, dice.below(5) as u8, &[dice.of(&PORTS)]),
        1 => slice(name, &[dice.of(&PORTS)], &[dice.of(&IPS), dice.of(&IPS)]),
        2 => {
            let (port, address) = (dice.of(&["http", "tcp", "tls", "any"]), dice.of(&["", "10.9.0.0/16", "240.0.0.1"]));
            let spec = format!(
                "{{hosts: [{name}.com], resolution: NONE, addresses: [{address}], \
                 ports: [{{name: p, number: 80, protocol: '{port}'}}]}}"
            );
            istio("ServiceEntry", name, &spec)
        }
        3 => virtual_service(dice, name),
        4 => {
            let spec = format!(
                "{{host: '{}', trafficPolicy: {{connectionPool: {{tcp: {{idleTimeout: {}s}}}}}}}}",
                dice.of(&["one", "two.com", "*.com"]),
                1 + dice.below(2)
            );
            istio("DestinationRule", name, &spec)
        }
        5 => {
            let number = dice.of(&["80", "443", "81"]);
            let protocol = dice.of(&["HTTP", "TCP", "TLS"]);
            let tls = if protocol == "TLS" { ", tls: {mode: PASSTHROUGH}" } else { "" };
            let (selector, host) =
                (dice.of(&["{}", "{istio: gw}", "{istio: x}"]), dice.of(&["'*'", "one.com", "'*.com'"]));
            let server = format!("{{port: {{number: {number}, protocol: {protocol}, name: p}}, hosts: [{host}]{tls}}}");
            istio("Gateway", name, &format!("{{selector: {selector}, servers: [{server}]}}"))
        }
        _ => {
            let selector = dice.of(&["", "workloadSelector: {labels: {app: a}}, "]);
            let ingress = dice.of(&["", "ingress: [{port: {number: 7000, protocol: TCP, name: i}}], "]);
            let mode = dice.of(&["DEFAULT", "NONE"]);
            let egress = dice.of(&["", "port: {number: 80, protocol: HTTP, name: e}, bind: 127.0.0.1, "]);
            let spec = format!("{{{selector}{ingress}egress: [{{{egress}captureMode: {mode}, hosts: ['./*']}}]}}");
            istio("Sidecar", name, &spec)
        }
    }
}

fn virtual_service(dice: &mut Dice, name: &str) -> String {
    let (host, gateways) = (dice.of(&["one", "one.com", "'*.com'", "'*'"]), dice.of(&["mesh", "one", "'mesh', two"]));
    let labels = dice.of(&["", "sourceLabels: {app: a}, "]);
    let to =
        format!("route: [{{destination: {{host: {}, subset: s{}}}}}]", dice.of(&["two", "two.com"]), dice.below(2));
    let rules = match dice.below(3) {
        0 => format!("http: [{{match: [{{{labels}port: 80}}], {to}}}]"),
        1 => format!("tcp: [{{match: [{{{labels}port: 80}}], {to}}}]"),
        _ => format!("tls: [{{match: [{{{labels}sniHosts: [{host}]}}], {to}}}]"),
    };
    istio("VirtualService", name, &format!("{{hosts: [{host}], gateways: [{gateways}], {rules}}}"))
}

fn removal(dice: &mut Dice, world: &mut World) {
    let name = dice.of(&NAMES);
    let mut batch = Batch::new();
    let key = match dice.below(7) {
        0 => ObjectKey::new(Kind::Service, "default", name),
        1 => ObjectKey::new(Kind::ServiceEntry, "default", name),
        2 => ObjectKey::new(Kind::EndpointSlice, "default", format!("{name}-1")),
        3 => ObjectKey::new(Kind::VirtualService, "default", name),
        4 => ObjectKey::new(Kind::DestinationRule, "default", name),
        5 => ObjectKey::new(Kind::Gateway, "default", name),
        _ => ObjectKey::new(Kind::Sidecar, "default", name),
    };
    objects::remove(&mut batch, &key);
    world.commit(batch);
}

/// Envoy refuses a listener in which two chains match the same in every way.
fn no_condition_twice(listener: &ListenerSpec) {
    let mut seen = BTreeSet::new();
    for chain in &*listener.chains {
        let m = &chain.matches;
        let names = if m.server_names.is_empty() { vec![Arc::from("")] } else { m.server_names.clone() };
        let any = m.prefix_ranges.is_empty().then_some(None);
        let networks: Vec<_> = m.prefix_ranges.iter().map(Some).chain(any).collect();
        for name in &names {
            for network in &networks {
                let key = (m.destination_port, name.clone(), *network, m.transport_protocol, &m.application_protocols);
                assert!(seen.insert(key), "{} has {m:?} twice", listener.name);
            }
        }
    }
}

#[test]
fn edits_and_recomputation_agree() {
    let mut dice = Dice(0x0dd_ba11);
    let mut world = World::new("");
    let proxies = [
        labelled(sidecar("10.1.0.1"), &[("app", "a")]),
        labelled(sidecar("10.1.0.2"), &[("app", "b")]),
        Proxy { interception: InterceptionMode::None, ..sidecar("10.1.0.1") },
        Proxy { kind: ProxyKind::Router, ..gateway() },
    ];
    let tokens: Vec<ProxyToken> = proxies.into_iter().map(|p| world.connect(p)).collect();
    for round in 0..120 {
        for _ in 0..=dice.below(3) {
            match dice.below(4) {
                0 => removal(&mut dice, &mut world),
                _ => {
                    let yaml = object(&mut dice);
                    world.apply(&yaml);
                }
            }
        }
        // Proxies change their audience: the listeners of the new one are requested, and those of the former one stay open.
        for token in &tokens {
            let listeners = world.listeners(*token);
            assert!(listeners.windows(2).all(|pair| pair[0].name < pair[1].name));
            listeners.iter().for_each(|l| no_condition_twice(l));
            let audience = world.audiences(*token).route.clone();
            world.engine.subscribe::<RouteTables>((audience, Arc::from("http.80")));
        }
        if let Err(mismatch) = world.engine.agree(&world.engine.recompute()) {
            panic!("round {round}: {mismatch}");
        }
    }
}
