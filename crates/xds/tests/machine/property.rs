//! Random worlds, clients and delays. In the end, clients have the current resources. They never receive a route to a
//! cluster that is not in place, nor a resource that they have.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use xds::{Limits, Progress, Question, StreamId, Variant};

use crate::envoy::Envoy;
use crate::harness::*;
use crate::world::{Audience, Content, World, has_own_endpoints, plain, types};

const CLUSTERS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];
const LISTENERS: [&str; 3] = ["l0", "l1", "l2"];
/// The names of own clusters, and the audiences that have them.
const OWN_CLUSTERS: [&str; 2] = ["o0", "o1"];
const OWN: [Audience; 2] = ["x", "y"];
const AUDIENCES: [Audience; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    /// Changes a cluster: 0 removes it, 1 changes it, 2 changes its endpoints, 3 both.
    Cluster {
        audience: usize,
        cluster: usize,
        how: u8,
    },
    /// Points the route of a listener to some existing clusters; removes both if `gone`.
    Route {
        audience: usize,
        listener: usize,
        clusters: u8,
        gone: bool,
    },
    Commit {
        /// Endpoints are sent before the other changes.
        ahead: bool,
    },
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
    /// Gives a client clusters of its own: none, or those of an audience.
    Give {
        client: usize,
        own: usize,
    },
    /// Changes or removes an own cluster of an audience; changes own endpoints, too.
    Own {
        audience: usize,
        cluster: usize,
        gone: bool,
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
        4 => any::<bool>().prop_map(|ahead| Step::Commit { ahead }),
        10 => (client.clone(), prop::bool::weighted(0.05)).prop_map(|(client, refuse)| Step::Read { client, refuse }),
        10 => client.clone().prop_map(|client| Step::Deliver { client }),
        1 => (client.clone(), any::<bool>()).prop_map(|(client, empty)| Step::Reconnect { client, empty }),
        1 => (client.clone(), audience).prop_map(|(client, audience)| Step::Move { client, audience }),
        1 => (client.clone(), 0..3usize).prop_map(|(client, own)| Step::Give { client, own }),
        2 => (0..2usize, 0..2usize, prop::bool::weighted(0.3))
            .prop_map(|(audience, cluster, gone)| Step::Own { audience, cluster, gone }),
        1 => (client, 0..6usize).prop_map(|(client, cluster)| Step::Ask { client, cluster }),
    ]
}

struct Run {
    h: Harness,
    clients: Vec<Envoy>,
    /// Streams are moved one after the other, and ACKs are handled without the world.
    in_parts: bool,
    number: u32,
    /// The steps, printed if the test fails.
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
    /// Requests are handled in steps of so many cells. Unless these are all, each changed resource is a fragment of a response.
    /// Up to so many own endpoints hide shared ones.
    fn new(opened_together: usize, hidden_names: usize) -> Run {
        let response_bytes = if opened_together < usize::MAX { 1 } else { Limits::default().response_bytes };
        let mut h = Harness::with(Limits {
            opened_together,
            opened_at_once: opened_together,
            response_bytes,
            hidden_names,
            quarantine: None,
            ..Limits::default()
        });
        for (audience, name) in AUDIENCES.into_iter().flat_map(|audience| OWN_CLUSTERS.map(|name| (audience, name))) {
            h.world.put(EDS, audience, name, plain(1));
        }
        // Endpoints of an own cluster, and of a shared one.
        for (own, name) in OWN.into_iter().flat_map(|own| ["o0", "o1", "c5"].map(|name| (own, name))) {
            if has_own_endpoints(own, name) == Some(true) {
                h.world.put(EDS, own, name, plain(2));
            }
        }
        h.commit();
        let clients = vec![
            Envoy::connect(&mut h, Variant::Delta, false, None),
            Envoy::connect(&mut h, Variant::Sotw, true, None),
            Envoy::connect(&mut h, Variant::Sotw, false, None),
        ];
        Run { h, clients, in_parts: opened_together < usize::MAX, number: 0, log: Vec::new() }
    }

    fn content(&mut self, clusters: Vec<String>) -> Content {
        self.number += 1;
        Content { number: self.number, clusters, discovers: true }
    }

    fn step(&mut self, step: &Step) {
        self.log.push(format!("{step:?}"));
        match *step {
            Step::Cluster { audience, cluster, how } => {
                self.change_cluster(AUDIENCES[audience], CLUSTERS[cluster], how)
            }
            Step::Route { audience, listener, clusters, gone } => {
                self.change_route(AUDIENCES[audience], LISTENERS[listener], clusters, gone);
            }
            Step::Commit { ahead } if self.in_parts => {
                let changes = self.h.world.commit();
                if ahead {
                    self.send_endpoints(&changes);
                }
                let relisted = self.h.hub.relisted(&changes);
                let compared = relisted.map(|relisted| relisted.compare(&mut self.h.world)).unwrap_or_default();
                let mut left = self.h.hub.application(changes, compared);
                while let Some(application) = left {
                    left = self.h.hub.apply_some(&mut self.h.world, application, || false, self.h.now);
                    if left.is_some() {
                        self.serve_without_world();
                    }
                }
            }
            Step::Commit { .. } => self.h.commit(),
            Step::Read { client, refuse } => self.clients[client].read(refuse),
            Step::Deliver { client } => self.deliver(client),
            Step::Reconnect { client, empty } => self.reconnect(client, empty),
            Step::Move { client, audience } => {
                self.h.world.relocate(self.clients[client].token, AUDIENCES[audience]);
                self.clients[client].moved = true;
            }
            Step::Give { client, own } => {
                self.h.world.give(self.clients[client].token, OWN.get(own).copied());
                self.clients[client].moved = true;
            }
            Step::Own { audience, cluster, gone: true } => {
                self.h.world.remove(CDS, OWN[audience], OWN_CLUSTERS[cluster]);
            }
            Step::Own { audience, cluster, gone: false } => {
                let content = self.content(Vec::new());
                self.h.world.put(CDS, OWN[audience], OWN_CLUSTERS[cluster], content);
                self.touch_own_endpoints(OWN[audience]);
            }
            Step::Ask { client, cluster } => {
                let envoy = &mut self.clients[client];
                let name = CLUSTERS[cluster].to_owned();
                if envoy.variant == Variant::Delta && envoy.subscribed[at(EDS)].contains(&name) {
                    envoy.asked.insert(name.clone());
                    envoy.send(EDS, &[name].into(), &BTreeSet::new(), false, None);
                }
            }
        }
        self.collect();
        self.check_tally(false);
    }

    /// Sends the changed endpoints of a commit before its other changes.
    fn send_endpoints(&mut self, changes: &xds::Changes<World>) {
        let open = self.h.world.open_resources();
        let is_endpoints = |cell: u32| open.iter().any(|(other, key, _)| *other == cell && key.0 == EDS);
        let resources = changes.resources.iter().filter_map(|(cell, resource)| Some((*cell, resource.clone()?)));
        self.h.hub.apply_ahead(resources.filter(|(cell, _)| is_endpoints(*cell)).collect(), self.h.now);
        self.collect();
    }

    /// No client counts as running a resource that it has not accepted. Once everything is settled, all clients do.
    fn check_tally(&self, quiet: bool) {
        let resources = self.h.world.open_resources();
        let question = |cell: &u32| Question {
            resources: vec![*cell],
            catalogues: Vec::new(),
            maybe: Vec::new(),
            since: u64::MAX,
            parts: Vec::new(),
        };
        let questions: Vec<_> = resources.iter().map(|(cell, ..)| question(cell)).collect();
        let mut counting = self.h.hub.tallies();
        let tallies: Vec<_> = questions.iter().map(|question| counting.answer(question)).collect();
        for ((_, key, number), tally) in resources.iter().zip(tallies) {
            let Some(number) = number else { continue };
            let has = |envoy: &&Envoy| {
                let held = envoy.has[at(key.0)].get(&*key.2);
                let dropped =
                    |(kind, name, held): &(_, String, u32)| *kind == key.0 && **name == *key.2 && held == number;
                held.is_some_and(|(_, held)| held == number) || envoy.dropped.iter().any(dropped)
            };
            let having = self.clients.iter().filter(has).count();
            assert!(tally.running <= having, "{key:?} {number}: {tally:?}, but {having} have it");
            assert_eq!(tally.total, tally.running + tally.rejected + tally.pending);
            assert!(!quiet || tally.running == tally.total, "{key:?}: {tally:?}");
            assert_eq!(tally.nack.is_some(), tally.rejected > 0);
        }
    }

    fn change_cluster(&mut self, audience: Audience, name: &str, how: u8) {
        // The cluster of a route must exist.
        let routes = self.h.world.table(RDS, audience);
        let used = routes.values().any(|route| route.clusters.iter().any(|cluster| cluster == name));
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

    /// Changes the endpoints that an audience of own resources has.
    fn touch_own_endpoints(&mut self, own: Audience) {
        self.number += 1;
        let number = self.number;
        self.h.world.table(EDS, own).values_mut().for_each(|content| content.number = number);
    }

    fn change_route(&mut self, audience: Audience, name: &str, clusters: u8, gone: bool) {
        if gone {
            self.h.world.remove(LDS, audience, name);
            self.h.world.remove(RDS, audience, name);
            return;
        }
        let there: Vec<String> = self.h.world.table(CDS, audience).keys().cloned().collect();
        let chosen = there.into_iter().enumerate().filter(|(n, _)| clusters >> n & 1 == 1).map(|(_, c)| c).collect();
        let route = self.content(chosen);
        if self.h.world.get(LDS, audience, name).is_none() || clusters & 0x40 != 0 {
            let listener = self.content(Vec::new());
            self.h.world.put(LDS, audience, name, listener);
        }
        self.h.world.put(RDS, audience, name, route);
    }

    fn deliver(&mut self, client: usize) {
        let envoy = &mut self.clients[client];
        let (hub, world, now) = (&mut self.h.hub, &mut self.h.world, self.h.now);
        hub.move_some(world, 1, now);
        if envoy.incomplete {
            self.log.push(format!("<- {client} continues"));
            envoy.incomplete = hub.proceed(world, envoy.id, now).unwrap() == Progress::More;
        } else if let Some(request) = envoy.outbox.pop_front() {
            let kind = types().find(&request.type_url).unwrap().short_name;
            let (nonce, error, body) = (&request.nonce, &request.error, &request.body);
            self.log.push(format!("<- {client} {kind} {nonce:?} {error:?} {body:?}"));
            let handled = self.in_parts && hub.accept(envoy.id, &request, now);
            envoy.incomplete = !handled && hub.request(world, envoy.id, request, now).unwrap() == Progress::More;
        } else {
            return;
        }
        if envoy.outbox.is_empty() && !envoy.incomplete {
            envoy.dropped.clear();
        }
        hub.close_unused(world, 1);
    }

    /// Sends responses, and takes ACKs, as between two steps of a commit.
    fn serve_without_world(&mut self) {
        self.collect_with(Harness::responses);
        for client in 0..self.clients.len() {
            let envoy = &mut self.clients[client];
            envoy.read(false);
            let accepts = |request: &mut xds::Request| self.h.hub.accept(envoy.id, request, self.h.now);
            if envoy.outbox.pop_front_if(accepts).is_some() {
                self.log.push(format!("<- {client} accepts"));
            }
        }
    }

    fn reconnect(&mut self, client: usize, empty: bool) {
        let old = self.clients.remove(client);
        self.h.disconnect(old.id);
        let (variant, resubscribes) = (old.variant, old.resubscribes);
        let envoy = Envoy::connect(&mut self.h, variant, resubscribes, (!empty).then_some(old));
        self.clients.insert(client, envoy);
    }

    /// Moves responses from the hub to the inboxes.
    fn collect(&mut self) {
        self.collect_with(Harness::poll);
    }

    fn collect_with(&mut self, poll: fn(&mut Harness, StreamId) -> Vec<Received>) {
        self.h.now += xds::Moment::from_millis(1);
        for id in self.h.hub.take_woken() {
            let received = poll(&mut self.h, id);
            self.log.extend(received.iter().map(|one| format!("-> {id:?} {} {}", show(one), one.nonce)));
            if let Some(envoy) = self.clients.iter_mut().find(|envoy| envoy.id == id) {
                envoy.inbox.extend(received);
            }
        }
    }

    /// Lets all clients answer everything.
    fn settle(&mut self) {
        for _ in 0..400 {
            self.collect();
            let waits = |envoy: &Envoy| !envoy.inbox.is_empty() || !envoy.outbox.is_empty() || envoy.incomplete;
            let busy = self.clients.iter().any(waits) || self.h.hub.has_moving();
            if !busy {
                return;
            }
            for client in 0..self.clients.len() {
                self.clients[client].read(false);
                self.deliver(client);
            }
        }
        panic!("the clients never settle");
    }

    fn check(&self) {
        for envoy in &self.clients {
            let audience = self.h.world.audience_of(envoy.token);
            let status = self.h.hub.status(envoy.id).unwrap();
            for kind in [CDS, EDS, LDS, RDS] {
                let has = envoy.has[at(kind)].iter().map(|(name, (_, number))| (name.as_str(), *number));
                let has: BTreeMap<&str, u32> = has.filter(|(_, number)| *number > 0).collect();
                let mut there: BTreeMap<&str, u32> = BTreeMap::new();
                let own = self.h.world.own_of(envoy.token).unwrap_or_default();
                let endpoints = |name: &str| match has_own_endpoints(own, name) {
                    Some(true) => self.h.world.get(EDS, own, name),
                    _ => self.h.world.get(EDS, audience, name),
                };
                for name in CLUSTERS.into_iter().chain(LISTENERS) {
                    // A client subscribes to the endpoints of its clusters.
                    let exists = self.h.world.get(kind, audience, name);
                    let resource = if kind == EDS { exists.and_then(|_| endpoints(name)) } else { exists };
                    there.extend(resource.map(|content| (name, content.number)));
                }
                for name in OWN_CLUSTERS {
                    let cluster = self.h.world.get(CDS, own, name);
                    let resource = match kind.short_name {
                        "CDS" => cluster,
                        "EDS" => cluster.and_then(|_| endpoints(name)),
                        _ => None,
                    };
                    there.extend(resource.map(|content| (name, content.number)));
                }
                assert_eq!(has, there, "{:?} {kind:?}\n{status:#?}", envoy.variant);
            }
            assert!(envoy.cold.is_empty(), "{:?}: {:?} are waiting for endpoints", envoy.variant, envoy.cold);
            assert!(status.watches.iter().all(|watch| watch.synced), "{status:#?}");
        }
        let overdue: u64 = self.h.hub.stats().iter().map(|(_, stats)| stats.overdue).sum();
        assert_eq!(overdue, 0, "no wait expired");
    }

    /// Changes everything once, so that rejected resources are sent again.
    fn touch(&mut self) {
        for audience in AUDIENCES {
            for kind in [CDS, EDS, LDS, RDS] {
                let names: Vec<String> = self.h.world.table(kind, audience).keys().cloned().collect();
                for name in names {
                    self.number += 1;
                    self.h.world.table(kind, audience).get_mut(&name).unwrap().number = self.number;
                }
            }
            for name in OWN_CLUSTERS {
                for own in OWN {
                    if self.h.world.get(CDS, own, name).is_some() {
                        let content = self.content(Vec::new());
                        self.h.world.put(CDS, own, name, content);
                    }
                }
            }
            let (cluster, endpoints) = (self.content(Vec::new()), self.content(Vec::new()));
            self.h.world.put(CDS, audience, "c0", cluster);
            self.h.world.put(EDS, audience, "c0", endpoints);
            self.change_route(audience, "l0", 0xff, false);
        }
        OWN.into_iter().for_each(|own| self.touch_own_endpoints(own));
        self.h.commit();
    }
}

fn run(steps: &[Step], opened_together: usize, hidden_names: usize) {
    let mut run = Run::new(opened_together, hidden_names);
    for step in steps {
        run.step(step);
    }
    run.h.commit();
    run.settle();
    if run.clients.iter().any(|envoy| envoy.rejected.contains(&true)) {
        run.touch();
        run.settle();
    }
    run.check();
    run.check_tally(true);
    let ids: Vec<StreamId> = run.clients.iter().map(|envoy| envoy.id).collect();
    ids.into_iter().for_each(|id| run.h.disconnect(id));
    assert!(run.h.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", run.h.hub.sizes());
    assert_eq!(run.h.world.open_cells(), 0);
}

/// A random failure: a client moves to another audience and back, and unsubscribes from a route before the request
/// arrives.
#[test]
fn dropped_resources_count_until_the_request_arrives() {
    let (client, read) = (1, Step::Read { client: 1, refuse: false });
    let deliver = || Step::Deliver { client };
    let to = |audience| Step::Move { client, audience };
    let route = Step::Route { audience: 0, listener: 0, clusters: 0, gone: false };
    let steps = [
        deliver(),
        route,
        Step::Commit { ahead: false },
        deliver(),
        read.clone(),
        deliver(),
        to(1),
        read.clone(),
        deliver(),
        Step::Commit { ahead: false },
        deliver(),
        read.clone(),
        to(0),
        Step::Commit { ahead: false },
        deliver(),
        read,
    ];
    run(&steps, usize::MAX, 1);
}

proptest! {
    // Set PROPTEST_CASES to run more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_converge_in_a_safe_order(
        steps in prop::collection::vec(step(), 1..150),
        opened_together in prop_oneof![Just(1), Just(2), Just(3), Just(usize::MAX)],
        hidden_names in 0..3usize,
    ) {
        run(&steps, opened_together, hidden_names);
    }
}
