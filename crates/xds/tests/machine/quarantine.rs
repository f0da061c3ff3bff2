//! Clients that reject some contents.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::proxy::{Proxy, ProxyKind, SecretRight};
use model::xds::ResourceType;
use proptest::prelude::*;
use protos::Message;
use protos::envoy::config::route::v3::RouteConfiguration;
use xds::Variant::{Delta, Sotw};
use xds::{Limits, Question, Request, StreamId, Tally, Variant};

use crate::client::resume;
use crate::harness::*;
use crate::world::{Content, plain};

/// A client that rejects a response with a number from 90 on: of a resource, or of a virtual host in a table.
struct Picky {
    id: StreamId,
    variant: Variant,
    /// Whether it is picky at all.
    picky: bool,
    /// Whether its error quotes what it rejects.
    quotes: bool,
    names: BTreeMap<ResourceType, Vec<String>>,
    has: BTreeMap<(ResourceType, String), Bytes>,
    /// The versions of what it has (delta), and of its last accepted responses (SotW).
    versions: BTreeMap<(ResourceType, String), String>,
    accepted: BTreeMap<ResourceType, String>,
    nacks: usize,
    /// All states of virtual hosts in tables that it had.
    states: BTreeSet<(String, u32)>,
}

/// The virtual hosts of a table, with their numbers.
fn hosts(body: &Bytes) -> BTreeMap<String, u32> {
    let table = RouteConfiguration::decode(body.clone()).unwrap();
    let number = |host: &protos::envoy::config::route::v3::VirtualHost| {
        host.request_headers_to_remove.first().map_or(0, |number| number.parse().unwrap())
    };
    table.virtual_hosts.iter().map(|host| (host.name.clone(), number(host))).collect()
}

impl Picky {
    fn connect(h: &mut Harness, proxy: Proxy, variant: Variant) -> Picky {
        Picky::connect_with(h, proxy, variant, false)
    }

    fn connect_with(h: &mut Harness, proxy: Proxy, variant: Variant, quotes: bool) -> Picky {
        let id = h.hub.connect(&mut h.world, proxy, variant, h.now).unwrap();
        let (names, has, states, versions, accepted) = Default::default();
        let (picky, nacks) = (true, 0);
        let mut client = Picky { id, variant, picky, quotes, names, has, versions, accepted, nacks, states };
        client.begin(h);
        client
    }

    /// The client connects again and reports what it has.
    fn reconnect(&mut self, h: &mut Harness, proxy: Proxy) {
        h.disconnect(self.id);
        self.id = h.hub.connect(&mut h.world, proxy, self.variant, h.now).unwrap();
        self.begin(h);
    }

    fn begin(&mut self, h: &mut Harness) {
        let client = self;
        for kind in [CDS, LDS] {
            client.subscribe(h, kind, &[]);
        }
        client.subscribe(h, EDS, &["a", "b"]);
        client.subscribe(h, RDS, &["80"]);
        if client.variant == Delta {
            client.subscribe(h, VHDS, &["80"]);
        }
        client.run(h);
    }

    fn new(h: &mut Harness, variant: Variant) -> Picky {
        Picky::connect(h, proxy(ProxyKind::Sidecar), variant)
    }

    fn subscribe(&mut self, h: &mut Harness, kind: ResourceType, names: &[&str]) {
        self.names.insert(kind, names.iter().map(|name| (*name).to_owned()).collect());
        let request = match self.variant {
            Delta => {
                let held = self.versions.iter().filter(|((of, _), _)| *of == kind);
                let held: Vec<(&str, &str)> = held.map(|((_, name), version)| (&**name, &**version)).collect();
                resume(kind, names, &held)
            }
            Sotw => sotw(kind, names, self.accepted.get(&kind).map_or("", String::as_str), ""),
        };
        h.request(self.id, request).unwrap();
    }

    fn refuses(&self, received: &Received) -> Option<String> {
        let bad = |number: u32| self.picky && number >= 90;
        received.resources.iter().find_map(|(name, _, body)| {
            let hosts = if received.kind == RDS { hosts(body) } else { BTreeMap::new() };
            let host = hosts.iter().find(|(_, number)| bad(**number));
            let found = match host {
                Some((host, number)) => (host.clone(), *number),
                None => (name.clone(), Some(number_of(received.kind, body)).filter(|number| bad(*number))?),
            };
            Some(if self.quotes { format!("'{}' has {}", found.0, found.1) } else { "no".to_owned() })
        })
    }

    /// Receives and answers until there is nothing more.
    fn run(&mut self, h: &mut Harness) {
        for _ in 0..1000 {
            h.hub.take_woken();
            let received = h.poll(self.id);
            if received.is_empty() {
                return;
            }
            for one in received {
                self.answer(h, &one);
            }
        }
        panic!("it never ends");
    }

    fn answer(&mut self, h: &mut Harness, received: &Received) {
        let (kind, error) = (received.kind, self.refuses(received));
        match &error {
            Some(_) => self.nacks += 1,
            None => self.apply(received),
        }
        let names: Vec<&str> = self.names[&kind].iter().map(String::as_str).collect();
        let request = match self.variant {
            Delta => Request { nonce: received.nonce.clone(), error, ..delta(kind) },
            Sotw => {
                let version = self.accepted.get(&kind).map_or("", String::as_str);
                Request { error, ..sotw(kind, &names, version, &received.nonce) }
            }
        };
        h.request(self.id, request).unwrap();
    }

    fn apply(&mut self, received: &Received) {
        if self.variant == Sotw && [CDS, LDS].contains(&received.kind) {
            self.has.retain(|(kind, _), _| *kind != received.kind);
        }
        self.accepted.insert(received.kind, received.version.clone());
        for (name, version, body) in &received.resources {
            if received.kind == RDS {
                self.states.extend(hosts(body));
            }
            self.has.insert((received.kind, name.clone()), body.clone());
            self.versions.insert((received.kind, name.clone()), version.clone());
        }
        for name in &received.removed {
            self.has.remove(&(received.kind, name.clone()));
            self.versions.remove(&(received.kind, name.clone()));
        }
    }

    /// The number of a resource that it has.
    fn number(&self, kind: ResourceType, name: &str) -> Option<u32> {
        self.has.get(&(kind, name.to_owned())).map(|body| number_of(kind, body))
    }

    fn hosts(&self) -> Vec<(String, u32)> {
        hosts(&self.has[&(RDS, "80".to_owned())]).into_iter().collect()
    }
}

/// Table `80` with these virtual hosts.
fn table(hosts: &[(&str, u32)]) -> Content {
    Content { clusters: hosts.iter().map(|(name, number)| format!("{name}#{number}")).collect(), ..plain(1) }
}

fn named(hosts: &[(&str, u32)]) -> Vec<(String, u32)> {
    hosts.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
}

/// All lists count as long, so that streams move in steps.
fn mesh() -> Harness {
    mesh_with(Limits { opened_at_once: 0, opened_together: 1, ..Limits::default() })
}

fn mesh_with(limits: Limits) -> Harness {
    let mut h = Harness::with(limits);
    for name in ["a", "b"] {
        h.world.put(CDS, "a", name, plain(1));
        h.world.put(EDS, "a", name, plain(1));
    }
    h.world.put(LDS, "a", "r", plain(1));
    h.world.put(RDS, "a", "80", table(&[("x", 1), ("y", 1), ("z", 1)]));
    for name in ["80/x", "80/y", "80/z"] {
        h.world.put(VHDS, "a", name, plain(1));
    }
    h.commit();
    h
}

fn account(id: &str, name: &str) -> Proxy {
    Proxy { id: id.into(), secrets: SecretRight::Namespace, service_account: name.into(), ..proxy(ProxyKind::Sidecar) }
}

fn tally(h: &Harness, kind: ResourceType, name: &str, parts: &[&str]) -> Tally {
    let open = h.world.open_resources();
    let cells = open.iter().filter(|(_, key, _)| key.0 == kind && *key.2 == *name).map(|(cell, ..)| *cell);
    let parts = parts.iter().map(|part| (*part).into()).collect();
    let (catalogues, maybe) = (Vec::new(), Vec::new());
    let question = Question { resources: cells.collect(), catalogues, maybe, since: h.hub.epoch(), parts };
    h.hub.tallies().answer(&question)
}

#[test]
fn a_rejected_virtual_host_in_a_table_stays_and_the_others_change() {
    for (variant, quotes) in [(Delta, false), (Delta, true), (Sotw, false), (Sotw, true)] {
        let mut h = mesh();
        let mut client = Picky::new(&mut h, variant);
        client.quotes = quotes;
        h.world.put(RDS, "a", "80", table(&[("new", 2), ("x", 2), ("y", 90), ("z", 2)]));
        h.commit();
        client.run(&mut h);
        let expected = [("new", 2), ("x", 2), ("y", 1), ("z", 2)];
        assert_eq!(client.hosts(), named(&expected));
        assert_eq!(client.states.iter().filter(|(_, number)| *number == 0).count(), usize::from(!quotes));
        assert!(client.nacks <= if quotes { 1 } else { 4 }, "{}", client.nacks);
        let nacks = client.nacks;
        // A further change of another host does not bring the bad one back.
        h.world.put(RDS, "a", "80", table(&[("new", 3), ("x", 3), ("y", 90), ("z", 3)]));
        h.commit();
        client.run(&mut h);
        assert_eq!((client.hosts(), client.nacks), (named(&[("new", 3), ("x", 3), ("y", 1), ("z", 3)]), nacks));
        // A client that connects later gets the last good version, too.
        let mut later = Picky::new(&mut h, variant);
        assert_eq!((later.hosts(), later.nacks), (client.hosts(), 0));
        // It is mended.
        h.world.put(RDS, "a", "80", table(&[("x", 3), ("y", 4), ("z", 3)]));
        h.commit();
        for client in [&mut client, &mut later] {
            client.run(&mut h);
            assert_eq!(client.hosts(), named(&[("x", 3), ("y", 4), ("z", 3)]));
        }
        let status = h.hub.status(client.id).unwrap();
        assert!(status.watches.iter().all(|watch| watch.synced && watch.error.is_none()));
    }
}

#[test]
fn a_rejected_resource_stays_and_the_others_of_the_response_change() {
    for kind in [VHDS, EDS] {
        let (bad, good) = if kind == VHDS { ("80/x", "80/y") } else { ("a", "b") };
        let mut h = mesh();
        let mut client = Picky::new(&mut h, Delta);
        h.change(&[(kind, bad, 90), (kind, good, 2)]);
        client.run(&mut h);
        assert_eq!((client.number(kind, bad), client.number(kind, good)), (Some(1), Some(2)));
        let mut later = Picky::new(&mut h, Delta);
        assert_eq!((later.number(kind, bad), later.number(kind, good), later.nacks), (Some(1), Some(2), 0));
        h.change(&[(kind, bad, 91), (kind, good, 3)]);
        client.run(&mut h);
        later.run(&mut h);
        assert_eq!((later.number(kind, bad), later.number(kind, good)), (Some(1), Some(3)), "another bad version");
        h.change(&[(kind, bad, 4)]);
        client.run(&mut h);
        assert_eq!(client.number(kind, bad), Some(4));
    }
}

/// The last version was a resource of the shared ledger.
#[test]
fn a_rejected_row_of_an_own_ledger_leaves_the_shared_resource_that_it_replaces() {
    let mut h = mesh();
    h.world.own_of_newcomers = Some("x");
    let mut client = Picky::new(&mut h, Delta);
    h.world.put(VHDS, "x", "80/x", plain(90));
    h.world.put(VHDS, "x", "80/y", plain(2));
    h.commit();
    client.run(&mut h);
    let mut later = Picky::new(&mut h, Delta);
    for client in [&client, &later] {
        assert_eq!(["80/x", "80/y", "80/z"].map(|name| client.number(VHDS, name)), [Some(1), Some(2), Some(1)]);
    }
    assert_eq!(later.nacks, 0);
    // The other way round: the last version was an own one.
    h.world.put(VHDS, "x", "80/new", plain(2));
    h.commit();
    [&mut client, &mut later].into_iter().for_each(|client| client.run(&mut h));
    h.world.remove(VHDS, "x", "80/new");
    h.change(&[(VHDS, "80/new", 91)]);
    [&mut client, &mut later].into_iter().for_each(|client| client.run(&mut h));
    assert_eq!([&client, &later].map(|client| client.number(VHDS, "80/new")), [Some(2); 2]);
    h.world.remove(VHDS, "x", "80/x");
    h.change(&[(VHDS, "80/x", 3)]);
    for client in [&mut client, &mut later] {
        client.run(&mut h);
        assert_eq!(client.number(VHDS, "80/x"), Some(3));
    }
}

/// The client is in other ledgers since the first one, in which it was sent nothing yet.
#[test]
fn a_second_bad_resource_has_its_last_version_too() {
    let mut h = mesh();
    let mut client = Picky::new(&mut h, Delta);
    h.change(&[(VHDS, "80/new", 90)]);
    client.run(&mut h);
    h.change(&[(VHDS, "80/x", 90), (VHDS, "80/y", 2)]);
    client.run(&mut h);
    let numbers = ["80/new", "80/x", "80/y"].map(|name| client.number(VHDS, name));
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
}

#[test]
fn without_an_earlier_version_a_virtual_host_has_no_routes_and_others_are_not_sent() {
    let mut h = mesh();
    h.change(&[(VHDS, "80/x", 90), (EDS, "a", 90)]);
    h.world.put(RDS, "a", "80", table(&[("x", 90), ("y", 1)]));
    h.commit();
    let client = Picky::new(&mut h, Delta);
    assert_eq!((client.number(VHDS, "80/x"), client.number(VHDS, "80/y")), (Some(0), Some(1)));
    assert_eq!((client.number(EDS, "a"), client.number(EDS, "b")), (None, Some(1)));
    assert_eq!(client.hosts(), named(&[("x", 0), ("y", 1)]));
}

#[test]
fn only_the_object_of_the_rejected_part_is_to_blame() {
    let mut h = mesh();
    let mut client = Picky::new(&mut h, Sotw);
    h.world.put(RDS, "a", "80", table(&[("x", 2), ("y", 90), ("z", 2)]));
    h.commit();
    client.run(&mut h);
    let blamed = tally(&h, RDS, "80", &["y"]);
    assert_eq!((blamed.total, blamed.rejected), (1, 1));
    let nack = blamed.nack.unwrap();
    assert_eq!((&*nack.message, nack.kind, nack.resources), ("no", RDS, vec!["80".into()]));
    for innocent in [&["x"][..], &[]] {
        let innocent = tally(&h, RDS, "80", innocent);
        assert_eq!((innocent.total, innocent.running, innocent.nack), (1, 1, None));
    }
    let watch = h.hub.status(client.id).unwrap().watches.into_iter().find(|watch| watch.kind == RDS).unwrap();
    assert!(!watch.synced && &*watch.error.unwrap().message == "no");
    let added = h.hub.take_quarantined();
    let shown: Vec<_> = added.iter().map(|one| (&*one.resource, one.part.as_deref(), one.replaced)).collect();
    assert_eq!(shown, [("80", Some("y"), true)]);
    assert_eq!((h.hub.quarantined().count(), h.hub.take_quarantined().len()), (1, 0));
}

#[test]
fn clients_of_other_accounts_are_not_affected() {
    let mut h = mesh();
    let mut picky = Picky::connect(&mut h, account("one", "app"), Delta);
    let mut equal = Picky::connect(&mut h, account("two", "app"), Delta);
    let mut other = Picky::connect(&mut h, account("three", "web"), Delta);
    other.picky = false;
    h.change(&[(VHDS, "80/x", 90)]);
    for client in [&mut picky, &mut equal, &mut other] {
        client.run(&mut h);
    }
    assert_eq!([&picky, &equal, &other].map(|client| client.number(VHDS, "80/x")), [Some(1), Some(1), Some(90)]);
    h.change(&[(VHDS, "80/x", 2), (VHDS, "80/y", 91)]);
    picky.run(&mut h);
    let late = Picky::connect(&mut h, account("four", "app"), Delta);
    assert_eq!((late.number(VHDS, "80/y"), late.nacks), (Some(1), 0), "its equal has rejected it");
    // One of another account rejects it once, and is sent the good version that is known.
    let new = Picky::connect(&mut h, account("five", "new"), Delta);
    assert_eq!((new.number(VHDS, "80/y"), new.nacks), (Some(1), 1));
}

/// What it has is equal to the resources of other groups, or was, but not to those of its own group.
#[test]
fn a_client_that_returns_has_what_its_group_receives() {
    let mut h = mesh();
    let mut picky = Picky::connect(&mut h, account("one", "app"), Delta);
    let mut other = Picky::connect(&mut h, account("two", "web"), Delta);
    other.picky = false;
    h.change(&[(VHDS, "80/x", 90), (VHDS, "80/y", 2)]);
    picky.run(&mut h);
    other.run(&mut h);
    assert_eq!([&picky, &other].map(|client| client.number(VHDS, "80/x")), [Some(1), Some(90)]);
    // All resources that it has are current, but one is in quarantine for the group that it is in now.
    other.reconnect(&mut h, account("two", "app"));
    assert_eq!((other.number(VHDS, "80/x"), other.nacks), (Some(1), 0));
    // It has the replacement, which is no longer there for the group that it is in now.
    other.reconnect(&mut h, account("two", "web"));
    assert_eq!(other.number(VHDS, "80/x"), Some(90));
    picky.reconnect(&mut h, account("one", "app"));
    assert_eq!((picky.number(VHDS, "80/x"), picky.number(VHDS, "80/y")), (Some(1), Some(2)));
}

#[test]
fn a_rejected_resource_is_tried_again_with_one_client() {
    let mut h = mesh();
    let mut clients = ["one", "two"].map(|id| Picky::connect(&mut h, account(id, "app"), Delta));
    h.change(&[(VHDS, "80/x", 90)]);
    clients.iter_mut().for_each(|client| client.run(&mut h));
    let nacks: usize = clients.iter().map(|client| client.nacks).sum();
    h.after(60);
    clients.iter_mut().for_each(|client| client.run(&mut h));
    assert_eq!(clients.iter().map(|client| client.nacks).sum::<usize>(), nacks + 1);
    assert_eq!(clients[0].number(VHDS, "80/x"), Some(1));
    h.after(60);
    clients.iter_mut().for_each(|client| client.run(&mut h));
    assert_eq!(clients.iter().map(|client| client.nacks).sum::<usize>(), nacks + 1, "it waits longer");
    clients.iter_mut().for_each(|client| client.picky = false);
    h.after(60);
    clients.iter_mut().for_each(|client| client.run(&mut h));
    clients.iter_mut().for_each(|client| client.run(&mut h));
    assert_eq!([&clients[0], &clients[1]].map(|client| client.number(VHDS, "80/x")), [Some(90), Some(90)]);
    assert_eq!(h.hub.quarantined().count(), 0);
}

/// The client had another last version when it rejected the same bytes first.
#[test]
fn what_returns_after_it_was_mended_leaves_the_version_in_between() {
    for kind in [VHDS, EDS] {
        let name = if kind == VHDS { "80/x" } else { "a" };
        let mut h = mesh();
        let mut client = Picky::new(&mut h, Delta);
        for (number, has) in [(90, 1), (2, 2), (90, 2), (91, 2), (3, 3), (90, 3)] {
            h.change(&[(kind, name, number)]);
            client.run(&mut h);
            assert_eq!(client.number(kind, name), Some(has), "{number}");
        }
    }
    let mut h = mesh();
    let mut client = Picky::new(&mut h, Sotw);
    for (number, has) in [(1, 1), (90, 1), (2, 2), (90, 2), (3, 3), (90, 3)] {
        h.world.put(RDS, "a", "80", table(&[("x", number), ("y", number)]));
        h.commit();
        client.run(&mut h);
        assert_eq!(client.hosts(), named(&[("x", has), ("y", has)]), "{number}");
    }
}

#[test]
fn what_is_not_used_any_more_leaves_the_quarantine() {
    let mut h = mesh();
    let mut client = Picky::new(&mut h, Delta);
    h.change(&[(VHDS, "80/x", 90)]);
    client.run(&mut h);
    h.change(&[(VHDS, "80/x", 2)]);
    client.run(&mut h);
    h.after(60);
    client.run(&mut h);
    assert_eq!((h.hub.quarantined().count(), client.number(VHDS, "80/x")), (0, Some(2)));
    let audiences = h.hub.sizes()[0];
    h.disconnect(client.id);
    assert_eq!((audiences, h.hub.sizes()[0], h.world.open_cells()), (("ledgers", 5), ("ledgers", 0), 0));
}

#[test]
fn in_a_long_response_only_what_the_error_names_is_suspected() {
    for quotes in [false, true] {
        let mut h = mesh_with(Limits { suspects: 1, ..Limits::default() });
        h.world.put(EDS, "a", "a", plain(90));
        h.commit();
        let mut client = Picky::connect_with(&mut h, proxy(ProxyKind::Sidecar), Delta, quotes);
        let expected = if quotes { (1, Some(1), 1) } else { (0, None, 1) };
        assert_eq!((h.hub.quarantined().count(), client.number(EDS, "b"), client.nacks), expected);
        h.change(&[(EDS, "a", 2)]);
        client.run(&mut h);
        assert_eq!((client.number(EDS, "a"), client.number(EDS, "b")), (Some(2), Some(1)));
    }
}

/// A table with VHDS is replaced by one that is rejected.
#[test]
fn virtual_hosts_stay_while_the_table_that_replaces_them_is_rejected() {
    for (whole, rejected) in [(table(&[("x", 5), ("y", 90)]), Some(vec![("x", 5), ("y", 1)])), (plain(90), None)] {
        let mut h = mesh();
        h.world.put(RDS, "a", "80", plain(1));
        for (kind, name) in [(CDS, "a"), (CDS, "b"), (EDS, "a"), (EDS, "b"), (LDS, "r")] {
            h.world.put(kind, "b", name, plain(1));
        }
        h.world.put(RDS, "b", "80", whole);
        h.commit();
        let mut client = Picky::new(&mut h, Delta);
        let token = h.world.last_token();
        h.world.relocate(token, "b");
        h.commit();
        client.run(&mut h);
        h.after(10);
        client.run(&mut h);
        match rejected {
            // Only one of its virtual hosts is: that one is as the client had it.
            Some(hosts) => {
                let hosts: BTreeMap<_, _> = named(&hosts).into_iter().collect();
                assert_eq!(
                    client
                        .hosts()
                        .into_iter()
                        .map(|(name, n)| (name.trim_start_matches("80/").to_owned(), n))
                        .collect::<BTreeMap<_, _>>(),
                    hosts
                );
                assert_eq!(client.number(VHDS, "80/x"), None);
            }
            None => {
                let kept = [(RDS, "80"), (VHDS, "80/x"), (VHDS, "80/y")].map(|(kind, name)| client.number(kind, name));
                assert_eq!(kept, [Some(1); 3]);
            }
        }
        h.world.put(RDS, "b", "80", table(&[("x", 6), ("y", 6)]));
        h.commit();
        client.run(&mut h);
        assert_eq!((client.hosts(), client.number(VHDS, "80/x")), (named(&[("x", 6), ("y", 6)]), None));
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Virtual host in the table, virtual host of VHDS, endpoints: these numbers; 0 removes.
    Table(usize, u32),
    Host(usize, u32),
    Endpoints(usize, u32),
    Cluster(usize, u32),
    Run(usize),
    Connect(usize),
    /// The client connects again and has what it had.
    Return(usize),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let number = || prop_oneof![4 => 1u32..20, 1 => 90u32..95, 1 => Just(0)];
    prop_oneof![
        4 => (0usize..12, number()).prop_map(|(at, number)| Step::Table(at, number)),
        3 => (0usize..6, number()).prop_map(|(at, number)| Step::Host(at, number)),
        2 => (0usize..2, number()).prop_map(|(at, number)| Step::Endpoints(at, number.max(1))),
        1 => (0usize..2, number()).prop_map(|(at, number)| Step::Cluster(at, number.max(1))),
        4 => (0usize..3).prop_map(Step::Run),
        1 => (0usize..3).prop_map(Step::Connect),
        2 => (0usize..3).prop_map(Step::Return),
        1 => Just(Step::Wait),
    ]
}

fn play(steps: Vec<Step>, in_steps: bool) {
    let mut h = if in_steps { mesh() } else { mesh_with(Limits::default()) };
    let mut content: BTreeMap<String, u32> = BTreeMap::new();
    let variants = [Delta, Sotw, Delta];
    let as_proxy = |at: usize| account(&format!("p{at}"), if at == 2 { "web" } else { "app" });
    let connect = |h: &mut Harness, at: usize| {
        let mut client = Picky::connect(h, as_proxy(at), variants[at]);
        client.quotes = at == 2;
        client
    };
    let mut clients: Vec<Picky> = (0..3).map(|at| connect(&mut h, at)).collect();
    for step in steps {
        match step {
            Step::Table(at, number) => {
                content.insert(format!("h{at:02}"), number);
                content.retain(|_, number| *number > 0);
                let hosts: Vec<(&str, u32)> = content.iter().map(|(name, number)| (&**name, *number)).collect();
                h.world.put(RDS, "a", "80", table(&hosts));
                h.commit();
            }
            Step::Host(at, number) => h.change(&[(VHDS, &format!("80/h{at}"), number)]),
            Step::Endpoints(at, number) => h.change(&[(EDS, ["a", "b"][at], number)]),
            Step::Cluster(at, number) => h.change(&[(CDS, ["a", "b"][at], number % 90)]),
            Step::Run(at) => clients[at].run(&mut h),
            Step::Connect(at) => {
                h.disconnect(clients[at].id);
                clients[at] = connect(&mut h, at);
            }
            Step::Return(at) => clients[at].reconnect(&mut h, as_proxy(at)),
            Step::Wait => h.after(70),
        }
    }
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.run(&mut h));
    }
    for client in &clients {
        check(&h, client);
    }
}

/// A client has all good contents, and no other bad ones than those that it had.
fn check(h: &Harness, client: &Picky) {
    let current = h.world.get(RDS, "a", "80").unwrap();
    let table: BTreeMap<String, u32> = client.hosts().into_iter().collect();
    for host in &current.clusters {
        let (name, number) = host.split_once('#').unwrap();
        let number: u32 = number.parse().unwrap();
        let has = table.get(name).copied();
        assert!(
            if number >= 90 { has.is_none_or(|has| has < 90) } else { has == Some(number) },
            "{name}: {number}, {has:?}"
        );
    }
    assert!(table.len() <= current.clusters.len());
    let vhds = (0..6).map(|at| (VHDS, format!("80/h{at}"))).filter(|_| client.variant == Delta);
    for (kind, name) in vhds.chain([(EDS, "a".to_owned()), (EDS, "b".to_owned())]) {
        let (wanted, has) = (h.world.get(kind, "a", &name).map(|content| content.number), client.number(kind, &name));
        match wanted {
            Some(90..) => assert!(has.is_none_or(|has| has < 90), "{name}"),
            wanted => assert_eq!(has, wanted, "{kind:?} {name}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn bad_contents_never_keep_good_ones_away(
        steps in proptest::collection::vec(step(), 1..40),
        in_steps: bool,
    ) {
        play(steps, in_steps);
    }
}
