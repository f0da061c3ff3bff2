//! Conflicts between many objects cost what they report: an object is not compared with all others.
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write;
use std::time::Instant;

use config::{Kind, ObjectKey, ParseOptions, parse_documents};
use flow::Relation;
use registry::inputs::Sharing;
use traffic::conflicts::{
    DestinationRuleConflicts, GatewayConflicts, PeerAuthenticationConflicts, ProxyConfigConflicts,
    ServiceEntryConflicts, SidecarConflicts, VirtualServiceConflicts,
};
use world::{Batch, Changes, World};

/// Objects of a kind, of which each but the oldest conflicts with an older one.
struct Case {
    kind: Kind,
    api: &'static str,
    spec: fn(usize) -> String,
    relation: &'static str,
}

const CASES: [Case; 8] = [
    Case {
        kind: Kind::DestinationRule,
        api: "networking.istio.io/v1",
        spec: |_| "{host: web.test, trafficPolicy: {loadBalancer: {simple: RANDOM}}}".to_owned(),
        relation: DestinationRuleConflicts::NAME,
    },
    Case {
        kind: Kind::ServiceEntry,
        api: "networking.istio.io/v1",
        spec: |n| {
            format!("{{hosts: [h{n}.test], resolution: STATIC, ports: [{{number: 5432, name: db, protocol: TCP}}]}}")
        },
        relation: ServiceEntryConflicts::NAME,
    },
    Case {
        kind: Kind::Sidecar,
        api: "networking.istio.io/v1",
        spec: |_| "{workloadSelector: {labels: {app: web, version: v1}}, egress: [{hosts: ['*/*']}]}".to_owned(),
        relation: SidecarConflicts::NAME,
    },
    Case {
        // Each selects fewer workloads than the oldest.
        kind: Kind::PeerAuthentication,
        api: "security.istio.io/v1",
        spec: |n| match n {
            0 => "{selector: {matchLabels: {app: web}}}".to_owned(),
            n => format!("{{selector: {{matchLabels: {{app: web, instance: i{n}}}}}}}"),
        },
        relation: PeerAuthenticationConflicts::NAME,
    },
    Case {
        kind: Kind::ProxyConfig,
        api: "networking.istio.io/v1beta1",
        spec: |n| format!("{{concurrency: {}}}", n % 8),
        relation: ProxyConfigConflicts::NAME,
    },
    Case {
        kind: Kind::VirtualService,
        api: "networking.istio.io/v1",
        spec: |_| "{hosts: [web.test], http: [{route: [{destination: {host: web.test}}]}]}".to_owned(),
        relation: VirtualServiceConflicts::NAME,
    },
    Case {
        kind: Kind::VirtualService,
        api: "networking.istio.io/v1",
        spec: |_| "{hosts: [web.test], tcp: [{route: [{destination: {host: web.test}}]}]}".to_owned(),
        relation: VirtualServiceConflicts::NAME,
    },
    Case {
        kind: Kind::Gateway,
        api: "networking.istio.io/v1",
        spec: |_| {
            "{selector: {app: edge}, servers: [{port: {number: 9000, name: tcp, protocol: TCP}, hosts: ['*']}]}"
                .to_owned()
        },
        relation: GatewayConflicts::NAME,
    },
];

impl Case {
    fn object(&self, number: usize) -> String {
        let Case { kind, api, spec, .. } = self;
        let (day, hour) = (1 + number / 24 % 28, number % 24);
        let year = 1990 + number / (24 * 28);
        format!(
            "apiVersion: {api}\nkind: {kind:?}\nmetadata: {{name: o{number}, namespace: shop, \
             creationTimestamp: '{year}-01-{day:02}T{hour:02}:00:00Z'}}\nspec: {}\n---\n",
            spec(number)
        )
    }

    fn key(&self, number: usize) -> ObjectKey {
        ObjectKey::new(self.kind, "shop", format!("o{number}"))
    }

    /// A world with so many objects, of which all conflicts are watched.
    fn world(&self, count: usize) -> World {
        let mut world = World::new(support::settings(Sharing::All), 1);
        let mut text = String::new();
        for number in 0..count {
            write!(text, "{}", self.object(number)).unwrap();
        }
        commit(&mut world, &text);
        for number in 0..count {
            let (_, conflicts) = world.watch(&self.key(number)).unwrap();
            // No service has the hosts, which is no conflict.
            let alone = conflicts.iter().all(|conflict| conflict.code == "missing-reference");
            assert_eq!(alone, number == 0, "{:?} {number}: {conflicts:?}", self.kind);
        }
        world
    }

    fn runs(&self, world: &World) -> usize {
        world.engine().stats().relation(self.relation).unwrap().runs
    }
}

fn commit(world: &mut World, text: &str) -> Changes {
    let parsed = parse_documents(text.as_bytes(), "mesh.yaml", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:#?}", parsed.diagnostics);
    let mut batch = Batch::new();
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    world.commit(batch)
}

#[test]
fn reads_grow_in_proportion_to_the_objects() {
    for case in CASES {
        let edges = |count| case.world(count).engine().stats().edges();
        let (few, many) = (edges(150), edges(600));
        assert!(many <= 5 * few, "{:?}: {few} reads of 150 objects, {many} of 600", case.kind);
    }
}

#[test]
fn one_more_object_does_not_concern_the_others() {
    const COUNT: usize = 100;
    for case in CASES {
        let mut world = case.world(COUNT);
        let before = case.runs(&world);
        let changes = commit(&mut world, &case.object(COUNT));
        assert!(changes.conflicts.is_empty(), "{:?}: {:?}", case.kind, changes.conflicts);
        let (_, conflicts) = world.watch(&case.key(COUNT)).unwrap();
        let rivals = conflicts.iter().filter(|conflict| conflict.code != "missing-reference");
        assert_eq!(rivals.count(), 1, "{:?}", case.kind);
        assert_eq!(case.runs(&world) - before, 1, "{:?}", case.kind);
    }
}

/// The time for the conflicts of thousands of objects: `cargo test --release -p world --test conflicts -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn time_of_many_conflicts() {
    for case in CASES {
        for count in [5_000, 10_000, 20_000] {
            let start = Instant::now();
            let mut world = case.world(count);
            let all = start.elapsed();
            let start = Instant::now();
            commit(&mut world, &case.object(count));
            world.watch(&case.key(count)).unwrap();
            println!("{:?} {count}: {all:.2?} for all, {:.2?} for one more", case.kind, start.elapsed());
        }
    }
}
