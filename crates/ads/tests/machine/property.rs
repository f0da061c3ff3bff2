//! Random worlds, clients and delays: whatever happens, clients end up with what there is, are never led to a cluster
//! that is not in place, and are not sent what they have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ads::decode::Body;
use ads::{Request, StreamId, Variant};
use model::proxy::ProxyKind;
use model::xds::ResourceType;
use proptest::prelude::*;

use crate::harness::*;
use crate::world::{Audience, Content};

const CLUSTERS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
const LISTENERS: [&str; 3] = ["l0", "l1", "l2"];
const AUDIENCES: [Audience; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    /// Changes a cluster: 0 removes it, 1 changes it, 2 changes its endpoints, 3 both.
    Cluster {
        audience: usize,
        cluster: usize,
        how: u8,
    },
    /// Points the route of a listener to some of the clusters that there are; removes both if `gone`.
    Route {
        audience: usize,
        listener: usize,
        clusters: u8,
        gone: bool,
    },
    Commit,
    /// The client reads one response.
    Read {
        client: usize,
        refuse: bool,
    },
    /// One request of the client arrives.
    Deliver {
        client: usize,
    },
    Reconnect {
        client: usize,
        empty: bool,
    },
    Move {
        client: usize,
        audience: usize,
    },
    /// The client subscribes to a name that it is subscribed to (delta).
    Ask {
        client: usize,
        cluster: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (audience, client) = (0..2usize, 0..3usize);
    prop_oneof![
        3 => (audience.clone(), 0..6usize, 0..4u8).prop_map(|(audience, cluster, how)| Step::Cluster { audience, cluster, how }),
        3 => (audience.clone(), 0..3usize, any::<u8>(), prop::bool::weighted(0.2))
            .prop_map(|(audience, listener, clusters, gone)| Step::Route { audience, listener, clusters, gone }),
        4 => Just(Step::Commit),
        10 => (client.clone(), prop::bool::weighted(0.05)).prop_map(|(client, refuse)| Step::Read { client, refuse }),
        10 => client.clone().prop_map(|client| Step::Deliver { client }),
        1 => (client.clone(), any::<bool>()).prop_map(|(client, empty)| Step::Reconnect { client, empty }),
        1 => (client.clone(), audience).prop_map(|(client, audience)| Step::Move { client, audience }),
        1 => (client, 0..6usize).prop_map(|(client, cluster)| Step::Ask { client, cluster }),
    ]
}

/// A client that behaves like Envoy, reading in order and asking for what it needs.
struct Envoy {
    id: StreamId,
    token: u64,
    variant: Variant,
    /// Whether it asks for endpoints again when a cluster is sent again (state of the world).
    asks_again: bool,
    inbox: VecDeque<Received>,
    outbox: VecDeque<Request>,
    has: [BTreeMap<String, (String, u32)>; 4],
    /// What routes lead to.
    leads: BTreeMap<String, Vec<String>>,
    /// Clusters that have had endpoints since they came, and clusters that wait for some.
    warm: BTreeSet<String>,
    cold: BTreeSet<String>,
    subscribed: [BTreeSet<String>; 4],
    nonces: [String; 4],
    versions: [String; 4],
    /// Types of which something was refused since everything was last in order.
    refused: [bool; 4],
    /// Names that were asked for again.
    asked: BTreeSet<String>,
    moved: bool,
    resumed: bool,
}

impl Envoy {
    fn connect(h: &mut Harness, variant: Variant, asks_again: bool, before: Option<Envoy>) -> Envoy {
        let id = h.connect_as(ProxyKind::Sidecar, variant);
        let mut envoy = Envoy {
            id,
            token: h.world.last_token(),
            variant,
            asks_again,
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            has: Default::default(),
            leads: BTreeMap::new(),
            warm: BTreeSet::new(),
            cold: BTreeSet::new(),
            subscribed: Default::default(),
            nonces: Default::default(),
            versions: Default::default(),
            refused: [false; 4],
            asked: BTreeSet::new(),
            moved: false,
            resumed: false,
        };
        if let Some(before) = before {
            (envoy.has, envoy.leads, envoy.subscribed) = (before.has, before.leads, before.subscribed);
            (envoy.warm, envoy.versions, envoy.resumed) = (before.warm, before.versions, true);
            // A cluster that waits for endpoints on a stream that breaks goes on with those that it had.
            for cluster in before.cold {
                envoy.warm.insert(cluster);
            }
        }
        for kind in ResourceType::ALL {
            let wanted = kind.is_wildcard() || !envoy.subscribed[kind as usize].is_empty();
            if wanted {
                let names = envoy.subscribed[kind as usize].clone();
                envoy.say(kind, &names, &BTreeSet::new(), true, None);
            }
        }
        envoy
    }

    /// Sends a request: what the client wants now, or (delta) what it wants in addition and no longer.
    fn say(
        &mut self,
        kind: ResourceType,
        more: &BTreeSet<String>,
        less: &BTreeSet<String>,
        first: bool,
        answer: Option<Option<String>>,
    ) {
        let nonce = self.nonces[kind as usize].clone();
        let base = Request {
            error: answer.clone().flatten(),
            ..delta(kind)
        };
        let texts = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect();
        let request = match self.variant {
            Variant::Sotw => Request {
                nonce,
                body: Body::Sotw {
                    version: self.versions[kind as usize].clone(),
                    names: texts(&self.subscribed[kind as usize]),
                },
                ..base
            },
            Variant::Delta => {
                let had = self.has[kind as usize].iter().filter(|_| first);
                let initial = (
                    had.clone().map(|(name, _)| name.as_str()).collect(),
                    had.map(|(_, (version, _))| version.as_str()).collect(),
                );
                let body = Body::Delta {
                    subscribe: texts(more),
                    unsubscribe: texts(less),
                    initial,
                };
                Request {
                    nonce: if answer.is_some() { nonce } else { String::new() },
                    body,
                    ..base
                }
            }
        };
        self.outbox.push_back(request);
    }

    fn want(&mut self, kind: ResourceType, wanted: BTreeSet<String>, even_if_same: bool) {
        let had = std::mem::replace(&mut self.subscribed[kind as usize], wanted.clone());
        let more: BTreeSet<String> = wanted.difference(&had).cloned().collect();
        let less: BTreeSet<String> = had.difference(&wanted).cloned().collect();
        for name in &less {
            self.has[kind as usize].remove(name);
            if kind == RDS {
                self.leads.remove(name);
            }
        }
        let first = had.is_empty() && self.nonces[kind as usize].is_empty();
        if !more.is_empty() || !less.is_empty() || even_if_same && self.variant == Variant::Sotw && !wanted.is_empty() {
            self.say(kind, &more, &less, first, None);
        }
    }

    /// Reads the next response as Envoy does, checks what it may hold, and answers it.
    fn read(&mut self, refuse: bool) {
        let Some(response) = self.inbox.pop_front() else { return };
        let kind = response.kind;
        self.nonces[kind as usize] = response.nonce.clone();
        if refuse {
            self.refused[kind as usize] = true;
            self.say(
                kind,
                &BTreeSet::new(),
                &BTreeSet::new(),
                false,
                Some(Some("no".to_owned())),
            );
            return;
        }
        self.versions[kind as usize] = response.version.clone();
        match kind {
            CDS => self.clusters(&response),
            EDS => self.endpoints(&response),
            LDS => self.listeners(&response),
            RDS => self.routes(&response),
        }
        self.say(kind, &BTreeSet::new(), &BTreeSet::new(), false, Some(None));
    }

    fn clusters(&mut self, response: &Received) {
        let changed = self.take_whole(response);
        for name in &changed {
            self.cold.insert(name.clone());
        }
        let has = &self.has[CDS as usize];
        self.warm.retain(|name| has.contains_key(name));
        self.cold.retain(|name| has.contains_key(name));
        if !self.refused.contains(&true) && !self.moved && !self.resumed {
            for (route, clusters) in &self.leads {
                for cluster in clusters {
                    assert!(
                        has.contains_key(cluster),
                        "{cluster} was removed, but {route} leads to it"
                    );
                }
            }
        }
        let wanted = has.keys().cloned().collect();
        self.want(EDS, wanted, self.asks_again && !changed.is_empty());
    }

    fn endpoints(&mut self, response: &Received) {
        for (name, version, body) in &response.resources {
            let number = number_of(EDS, body);
            let same = self.has[EDS as usize].get(name).is_some_and(|(_, had)| *had == number);
            let reason = self.cold.contains(name)
                || self.asked.contains(name)
                || self.exempt(EDS)
                || self.exempt(CDS)
                || self.resumed
                || self.moved;
            assert!(
                !same || reason || self.variant == Variant::Sotw,
                "{name}={number} for no reason"
            );
            if self.subscribed[EDS as usize].contains(name) {
                self.has[EDS as usize].insert(name.clone(), (version.clone(), number));
                self.cold.remove(name);
                self.warm.insert(name.clone());
            }
        }
        for name in &response.removed {
            self.has[EDS as usize].remove(name);
        }
    }

    fn listeners(&mut self, response: &Received) {
        self.take_whole(response);
        let wanted = self.has[LDS as usize].keys().cloned().collect();
        self.want(RDS, wanted, false);
    }

    fn routes(&mut self, response: &Received) {
        for (name, version, body) in &response.resources {
            let route: protos::envoy::config::route::v3::RouteConfiguration =
                protos::Message::decode(body.clone()).unwrap();
            let clusters: Vec<String> = route.virtual_hosts.into_iter().map(|host| host.name).collect();
            if !self.exempt(CDS) && !self.exempt(EDS) {
                for cluster in &clusters {
                    assert!(
                        self.warm.contains(cluster),
                        "{name} leads to {cluster}, which is not in place"
                    );
                }
            }
            if self.subscribed[RDS as usize].contains(name) {
                self.has[RDS as usize].insert(name.clone(), (version.clone(), number_of(RDS, body)));
                self.leads.insert(name.clone(), clusters);
            }
        }
        for name in &response.removed {
            self.has[RDS as usize].remove(name);
        }
    }

    fn exempt(&self, kind: ResourceType) -> bool {
        self.refused[kind as usize]
    }

    /// Takes a response of a root type; gives the names that are new or different.
    fn take_whole(&mut self, response: &Received) -> Vec<String> {
        let kind = response.kind;
        // Proxies that move to and fro may be sent again what they kept.
        let exempt = self.exempt(kind) || self.moved;
        let has = &mut self.has[kind as usize];
        let old = has.clone();
        if self.variant == Variant::Sotw {
            has.clear();
        }
        let mut changed = Vec::new();
        for (name, version, body) in &response.resources {
            let number = number_of(kind, body);
            let same = old.get(name).is_some_and(|(_, had)| *had == number);
            assert!(
                !same || exempt || self.variant == Variant::Sotw,
                "{name}={number} is not new"
            );
            has.insert(name.clone(), (version.clone(), number));
            if !same {
                changed.push(name.clone());
            }
        }
        for name in &response.removed {
            has.remove(name);
        }
        changed
    }
}

struct Run {
    h: Harness,
    clients: Vec<Envoy>,
    number: u32,
    /// What happened, shown if it ends badly.
    log: Vec<String>,
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("=== {}", self.log.join("\n"));
        }
    }
}

impl Run {
    fn new() -> Run {
        let mut h = Harness::new();
        let clients = vec![
            Envoy::connect(&mut h, Variant::Delta, false, None),
            Envoy::connect(&mut h, Variant::Sotw, true, None),
            Envoy::connect(&mut h, Variant::Sotw, false, None),
        ];
        Run {
            h,
            clients,
            number: 0,
            log: Vec::new(),
        }
    }

    fn content(&mut self, clusters: Vec<String>) -> Content {
        self.number += 1;
        Content {
            number: self.number,
            clusters,
            discovers: true,
        }
    }

    fn step(&mut self, step: &Step) {
        self.log.push(format!("{step:?}"));
        match *step {
            Step::Cluster { audience, cluster, how } => {
                self.change_cluster(AUDIENCES[audience], CLUSTERS[cluster], how)
            }
            Step::Route {
                audience,
                listener,
                clusters,
                gone,
            } => {
                self.change_route(AUDIENCES[audience], LISTENERS[listener], clusters, gone);
            }
            Step::Commit => self.h.commit(),
            Step::Read { client, refuse } => self.clients[client].read(refuse),
            Step::Deliver { client } => self.deliver(client),
            Step::Reconnect { client, empty } => self.reconnect(client, empty),
            Step::Move { client, audience } => {
                self.h.world.relocate(self.clients[client].token, AUDIENCES[audience]);
                self.clients[client].moved = true;
            }
            Step::Ask { client, cluster } => {
                let envoy = &mut self.clients[client];
                let name = CLUSTERS[cluster].to_owned();
                if envoy.variant == Variant::Delta && envoy.subscribed[EDS as usize].contains(&name) {
                    envoy.asked.insert(name.clone());
                    envoy.say(EDS, &[name].into(), &BTreeSet::new(), false, None);
                }
            }
        }
        self.collect();
    }

    fn change_cluster(&mut self, audience: Audience, name: &str, how: u8) {
        // A world is whole: what a route leads to is there.
        let routes = self.h.world.table(RDS, audience);
        let used = routes
            .values()
            .any(|route| route.clusters.iter().any(|cluster| cluster == name));
        let there = self.h.world.get(CDS, audience, name).is_some();
        if how == 0 && !used {
            self.h.world.remove(CDS, audience, name);
            self.h.world.remove(EDS, audience, name);
        }
        if how == 1 || how == 3 || !there && how != 0 {
            let content = self.content(Vec::new());
            self.h.world.put(CDS, audience, name, content);
        }
        if how == 2 || how == 3 || !there && how != 0 {
            let content = self.content(Vec::new());
            self.h.world.put(EDS, audience, name, content);
        }
    }

    fn change_route(&mut self, audience: Audience, name: &str, clusters: u8, gone: bool) {
        if gone {
            self.h.world.remove(LDS, audience, name);
            self.h.world.remove(RDS, audience, name);
            return;
        }
        let there: Vec<String> = self.h.world.table(CDS, audience).keys().cloned().collect();
        let chosen = there
            .into_iter()
            .enumerate()
            .filter(|(n, _)| clusters >> n & 1 == 1)
            .map(|(_, c)| c)
            .collect();
        let route = self.content(chosen);
        if self.h.world.get(LDS, audience, name).is_none() || clusters & 0x40 != 0 {
            let listener = self.content(Vec::new());
            self.h.world.put(LDS, audience, name, listener);
        }
        self.h.world.put(RDS, audience, name, route);
    }

    fn deliver(&mut self, client: usize) {
        let envoy = &mut self.clients[client];
        if let Some(request) = envoy.outbox.pop_front() {
            let kind = ResourceType::from_type_url(&request.type_url).unwrap().short_name();
            let (nonce, error, body) = (&request.nonce, &request.error, &request.body);
            self.log
                .push(format!("<- {client} {kind} {nonce:?} {error:?} {body:?}"));
            self.h
                .hub
                .request(&mut self.h.world, envoy.id, request, self.h.now)
                .unwrap();
        }
    }

    fn reconnect(&mut self, client: usize, empty: bool) {
        let old = self.clients.remove(client);
        self.h.disconnect(old.id);
        let (variant, asks_again) = (old.variant, old.asks_again);
        let envoy = Envoy::connect(&mut self.h, variant, asks_again, (!empty).then_some(old));
        self.clients.insert(client, envoy);
    }

    /// Puts what the hub has to say into the inboxes.
    fn collect(&mut self) {
        self.h.now += ads::Moment::from_millis(1);
        for id in self.h.hub.take_woken() {
            let received = self.h.poll(id);
            self.log.extend(
                received
                    .iter()
                    .map(|one| format!("-> {id:?} {} {}", show(one), one.nonce)),
            );
            if let Some(envoy) = self.clients.iter_mut().find(|envoy| envoy.id == id) {
                envoy.inbox.extend(received);
            }
        }
    }

    /// Lets everybody answer everything.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.collect();
            let busy = self
                .clients
                .iter()
                .any(|envoy| !envoy.inbox.is_empty() || !envoy.outbox.is_empty());
            if !busy {
                return;
            }
            for client in 0..self.clients.len() {
                self.clients[client].read(false);
                self.deliver(client);
            }
        }
        panic!("they never stop");
    }

    fn check(&self) {
        for envoy in &self.clients {
            let audience = self.h.world.audience_of(envoy.token);
            let status = self.h.hub.status(envoy.id).unwrap();
            for kind in ResourceType::ALL {
                let has = envoy.has[kind as usize]
                    .iter()
                    .map(|(name, (_, number))| (name.as_str(), *number));
                let has: BTreeMap<&str, u32> = has.filter(|(_, number)| *number > 0).collect();
                let mut there: BTreeMap<&str, u32> = BTreeMap::new();
                for name in CLUSTERS.into_iter().chain(LISTENERS) {
                    if let Some(content) = self.h.world.get(kind, audience, name) {
                        there.insert(name, content.number);
                    }
                }
                assert_eq!(has, there, "{:?} {kind:?}\n{status:#?}", envoy.variant);
            }
            assert!(
                envoy.cold.is_empty(),
                "{:?}: {:?} wait for endpoints",
                envoy.variant,
                envoy.cold
            );
            assert!(status.watches.iter().all(|watch| watch.synced), "{status:#?}");
        }
        assert_eq!(self.h.hub.stats().overdue, [0; 4], "nothing waited in vain");
    }

    /// Changes everything once, so that what was refused is sent again.
    fn touch(&mut self) {
        for audience in AUDIENCES {
            for kind in ResourceType::ALL {
                let names: Vec<String> = self.h.world.table(kind, audience).keys().cloned().collect();
                for name in names {
                    self.number += 1;
                    self.h.world.table(kind, audience).get_mut(&name).unwrap().number = self.number;
                }
            }
            let (cluster, endpoints) = (self.content(Vec::new()), self.content(Vec::new()));
            self.h.world.put(CDS, audience, "c0", cluster);
            self.h.world.put(EDS, audience, "c0", endpoints);
            self.change_route(audience, "l0", 0xff, false);
        }
        self.h.commit();
    }
}

fn run(steps: &[Step]) {
    let mut run = Run::new();
    for step in steps {
        run.step(step);
    }
    run.h.commit();
    run.settle();
    if run.clients.iter().any(|envoy| envoy.refused.contains(&true)) {
        run.touch();
        run.settle();
    }
    run.check();
    let ids: Vec<StreamId> = run.clients.iter().map(|envoy| envoy.id).collect();
    ids.into_iter().for_each(|id| run.h.disconnect(id));
    assert!(
        run.h.hub.sizes().iter().all(|(_, size)| *size == 0),
        "{:?}",
        run.h.hub.sizes()
    );
    assert_eq!(run.h.world.open_cells(), 0);
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_get_what_there_is_in_a_safe_order(steps in prop::collection::vec(step(), 1..150)) {
        run(&steps);
    }
}
