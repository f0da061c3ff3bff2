//! Many edits in any order come to what a fresh derivation comes to.

mod support;

use config::{Kind, ObjectKey};
use flow::Batch;
use model::audience::Section;
use model::proxy::ProxyKind;
use registry::objects;
use support::*;
use traffic::clusters::ClusterCatalogue;
use traffic::routes::RouteTables;

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

/// How many histories are tried.
const SEEDS: u64 = 3;
const NAMESPACES: [&str; 3] = ["a", "b", "istio-system"];
const HOSTS: [&str; 6] = ["x.com", "y.com", "x.y.com", "*.y.com", "*.com", "s.a.svc.cluster.local"];
const EXPORTS: [&str; 4] = ["[]", "['.']", "['*']", "['a', 'b']"];
const NAMES: [&str; 3] = ["one", "two", "three"];

fn object(dice: &mut Dice) -> String {
    let (namespace, name) = (dice.of(&NAMESPACES), dice.of(&NAMES));
    let (host, export) = (dice.of(&HOSTS), dice.of(&EXPORTS));
    match dice.below(5) {
        0 => {
            let port = dice.of(&["http:80:HTTP", "tcp:80:TCP", "alt:8080:HTTP", "auto:8080:HTTPS"]);
            entry(namespace, name, host, &[port]).replace("spec: {", &format!("spec: {{exportTo: {export}, "))
        }
        1 => service(namespace, dice.of(&["s", "t"]), 1),
        2 => {
            let (other, to) = (dice.of(&HOSTS), dice.of(&["x.com", "y.com", "s"]));
            let condition = dice.of(&[
                "",
                "match: [{sourceNamespace: a}], ",
                "match: [{port: 80}], ",
                "match: [{sourceLabels: {app: x}}], ",
            ]);
            let hosts = if host == other { format!("['{host}']") } else { format!("['{host}', '{other}']") };
            let spec = format!(
                "{{hosts: {hosts}, exportTo: {export}, http: [{{{condition}route: [{{destination: {{host: {to}}}}}]}}]}}"
            );
            istio("VirtualService", namespace, name, &spec)
        }
        3 => {
            let subset = dice.of(&["v1", "v2"]);
            let spec = format!("{{host: '{host}', exportTo: {export}, subsets: [{{name: {subset}}}]}}");
            istio("DestinationRule", namespace, name, &spec)
        }
        _ => {
            let hosts =
                dice.of(&["'./*'", "'*/*.com'", "'*/x.com', 'b/*'", "'a/s.a.svc.cluster.local'", "'*/*', '~/y.com'"]);
            let port = dice.of(&["", "port: {number: 80, protocol: HTTP, name: p}, "]);
            istio("Sidecar", "a", "sidecar", &format!("{{egress: [{{{port}hosts: [{hosts}]}}]}}"))
        }
    }
}

fn removal(dice: &mut Dice, world: &mut World) {
    let (namespace, name) = (dice.of(&NAMESPACES), dice.of(&NAMES));
    let mut batch = Batch::new();
    let kind = match dice.below(3) {
        0 => Kind::VirtualService,
        1 => Kind::DestinationRule,
        _ => Kind::ServiceEntry,
    };
    objects::remove(&mut batch, &ObjectKey::new(kind, namespace, name));
    world.engine.commit(batch);
}

#[test]
fn edits_and_recomputation_agree() {
    let mut dice = Dice(0x5eed_cafe);
    let mut world = World::new("");
    for (namespace, sidecar) in [("a", None), ("a", Some("sidecar")), ("b", None), ("istio-system", None)] {
        let scope = scope(namespace, sidecar);
        for table in ["80", "8080", "x.com:80", "http_proxy"] {
            world.engine.subscribe::<RouteTables>((routes_of(&scope, &[]), table.into()));
        }
        world.engine.subscribe::<ClusterCatalogue>((Section::All, clusters_of(&scope, ProxyKind::Sidecar)));
    }
    for step in 0..250 {
        if dice.below(4) == 0 {
            removal(&mut dice, &mut world);
        } else {
            world.apply_valid(&object(&mut dice));
        }
        if step % 5 == 0 {
            world
                .engine
                .agree(&world.engine.recompute())
                .unwrap_or_else(|mismatch| panic!("step {step}: {mismatch:?}"));
        }
    }
    check_tables(&world);
}

/// The tables of clients who see everything are made from a common one; those of clients with several listeners are
/// not. Where the listeners come to the same, so must the tables.
#[test]
fn the_common_way_and_the_long_way_agree() {
    for seed in 1..=SEEDS {
        compare_ways(&mut Dice(seed * 0xfeed_f00d));
    }
}

fn compare_ways(dice: &mut Dice) {
    let wide = "{egress: [{port: {number: 9999, protocol: HTTP, name: p}, hosts: ['~/*']}, {hosts: ['*/*']}]}";
    let mut world = World::new(&NAMESPACES.map(|n| istio("Sidecar", n, "wide", wide)).concat());
    let mut pairs = Vec::new();
    for namespace in NAMESPACES {
        for table in ["80", "8080"] {
            for labels in [&[][..], &[("app", "x")]] {
                let mut cell = |sidecar| {
                    let audience = routes_of(&scope(namespace, sidecar), labels);
                    world.engine.subscribe::<RouteTables>((audience, table.into()))
                };
                pairs.push((namespace, cell(None), cell(Some("wide"))));
            }
        }
    }
    let mut catalogues = Vec::new();
    for (namespace, kind) in NAMESPACES.into_iter().flat_map(|n| [(n, ProxyKind::Sidecar), (n, ProxyKind::Router)]) {
        let mut cell = |sidecar| {
            let audience = clusters_of(&scope(namespace, sidecar), kind);
            world.engine.subscribe::<ClusterCatalogue>((Section::All, audience))
        };
        catalogues.push((namespace, cell(None), cell(Some("wide"))));
    }
    for step in 0..250 {
        if dice.below(4) == 0 {
            removal(dice, &mut world);
        } else {
            world.apply_valid(&object(dice));
        }
        for (namespace, common, long) in &pairs {
            let tables = [common, long].map(|cell| world.engine.row::<RouteTables>(*cell));
            // Their virtual hosts are in other runs.
            let hosts = tables.map(|table| table.map(|table| table.virtual_hosts.iter().cloned().collect::<Vec<_>>()));
            assert_eq!(hosts[0], hosts[1], "step {step}, client in {namespace}");
        }
        for (namespace, common, long) in &catalogues {
            let rows = [common, long].map(|cell| world.engine.row::<ClusterCatalogue>(*cell));
            assert_eq!(rows[0], rows[1], "step {step}, client in {namespace}");
        }
    }
    check_tables(&world);
}

/// Envoy's requirements: no domain twice in a table, no name twice, no virtual host without a domain.
fn check_tables(world: &World) {
    let mut seen = 0;
    for ((_, name), table) in world.engine.iter::<RouteTables>() {
        let mut domains: Vec<_> = table.virtual_hosts.iter().flat_map(|h| &h.domains).collect();
        let mut names: Vec<_> = table.virtual_hosts.iter().map(|h| &h.name).collect();
        assert!(table.virtual_hosts.iter().all(|h| !h.domains.is_empty()), "{name}");
        let counts = (domains.len(), names.len());
        domains.sort();
        domains.dedup();
        names.sort();
        names.dedup();
        assert_eq!((domains.len(), names.len()), counts, "{name}");
        seen += 1;
    }
    assert!(seen > 0);
}
