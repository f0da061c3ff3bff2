//! Own resources that replace or hide shared ones of the same names.

use std::collections::{BTreeMap, BTreeSet};

use model::xds::ResourceType;
use proptest::prelude::*;
use xds::Question;
use xds::Variant::{self, Delta, Sotw};

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::{Audience, Content, hiding, plain};

/// Table `80` with hosts `a`, `b` and `c`, of which `x` replaces `a` and hides `b`, and `y` replaces `b`.
fn tables() -> Harness {
    let mut h = Harness::small();
    for (own, name, content) in [("x", "80/a", plain(7)), ("x", "80/b", hiding()), ("y", "80/b", plain(8))] {
        h.world.put(VHDS, own, name, content);
    }
    h.change(&[(VHDS, "80/a", 1), (VHDS, "80/b", 1), (VHDS, "80/c", 1)]);
    h
}

fn client_of(h: &mut Harness, own: Audience) -> Client {
    h.world.own_of_newcomers = Some(own);
    let mut client = Client::new(h, Delta);
    client.subscribe(h, VHDS, &["80"]);
    client
}

#[test]
fn own_rows_replace_and_hide_shared_resources() {
    let mut h = tables();
    let mut client = client_of(&mut h, "x");
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=7 80/c=1"]);
    // Changes below own rows are no changes.
    h.change(&[(VHDS, "80/a", 2), (VHDS, "80/b", 2)]);
    assert_eq!(client.drain(&mut h), [""; 0]);
    h.change(&[(VHDS, "80/b", 3), (VHDS, "80/c", 3)]);
    assert_eq!(client.drain(&mut h), ["VHDS 80/c=3"]);
    h.world.remove(VHDS, "x", "80/b");
    h.commit();
    assert_eq!(client.drain(&mut h), ["VHDS 80/b=3"]);
    h.world.put(VHDS, "x", "80/c", hiding());
    h.world.put(VHDS, "x", "80/b", plain(9));
    h.world.remove(VHDS, "x", "80/a");
    h.commit();
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=2 80/b=9 -80/c"]);
    // What was hidden ends together with the row that hid it.
    h.world.remove(VHDS, "x", "80/c");
    h.change(&[(VHDS, "80/c", 0)]);
    assert_eq!(client.drain(&mut h), [""; 0]);
    assert!(h.quiet());
}

/// Without the row that hides one of them, the shared resources would be what the client has.
#[test]
fn a_client_that_returns_loses_what_was_hidden_meanwhile() {
    let mut h = Harness::small();
    h.change(&[(VHDS, "80/a", 1), (VHDS, "80/b", 1), (VHDS, "80/c", 1)]);
    let mut client = client_of(&mut h, "x");
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=1 80/b=1 80/c=1"]);
    let had = versions(&h, client.id, VHDS);
    h.world.put(VHDS, "x", "80/b", hiding());
    h.commit();
    for (own, expected) in [(Some("x"), "VHDS -80/b"), (None, "VHDS")] {
        h.world.own_of_newcomers = own;
        let mut returned = Client::new(&mut h, Delta);
        h.request(returned.id, resume(VHDS, &["80"], &borrow(&had))).unwrap();
        assert_eq!(returned.drain(&mut h), [expected]);
    }
}

#[test]
fn equal_resources_are_not_sent_again() {
    let mut h = tables();
    let mut client = client_of(&mut h, "x");
    client.drain(&mut h);
    h.world.put(VHDS, "x", "80/c", plain(1));
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0]);
    h.change(&[(VHDS, "80/a", 7)]);
    assert_eq!(client.drain(&mut h), [""; 0]);
    h.world.remove(VHDS, "x", "80/c");
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0]);
    h.world.remove(VHDS, "x", "80/a");
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0]);
    h.change(&[(VHDS, "80/a", 8), (VHDS, "80/c", 8)]);
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=8 80/c=8"]);
}

#[test]
fn a_client_that_is_behind_loses_what_returned_below_a_row() {
    let mut h = tables();
    let mut client = client_of(&mut h, "x");
    client.drain(&mut h);
    h.change(&[(VHDS, "80/c", 0)]);
    h.world.put(VHDS, "x", "80/c", hiding());
    h.commit();
    h.change(&[(VHDS, "80/c", 4)]);
    assert_eq!(client.drain(&mut h), ["VHDS -80/c"]);
}

#[test]
fn a_change_that_nothing_hides_is_composed_once() {
    let mut h = tables();
    let mut clients = ["x", "y", "x", "y"].map(|own| client_of(&mut h, own));
    for client in &mut clients {
        client.drain(&mut h);
    }
    // The list of three names is there once.
    assert_eq!(h.hub.sizes()[2], ("names", 6));
    let before = h.hub.stats().of(VHDS).composed;
    h.change(&[(VHDS, "80/c", 3)]);
    for client in &mut clients {
        assert_eq!(client.drain(&mut h), ["VHDS 80/c=3"]);
    }
    // One shared part, and for each of the two own audiences the knowledge that it contributes nothing.
    assert!(h.hub.stats().of(VHDS).composed - before <= 3);
}

#[test]
fn a_move_sends_what_differs_under_the_own_rows() {
    let mut h = tables();
    let mut client = client_of(&mut h, "x");
    client.drain(&mut h);
    let token = h.world.last_token();
    h.world.give(token, Some("y"));
    h.commit();
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=1 80/b=8"]);
    h.world.give(token, None);
    h.commit();
    assert_eq!(client.drain(&mut h), ["VHDS 80/b=1"]);
    h.world.give(token, Some("x"));
    h.commit();
    assert_eq!(client.drain(&mut h), ["VHDS 80/a=7 -80/b"]);
}

const NAMES: [&str; 5] = ["80/a", "80/b", "80/c", "80/d", "80/e"];
const SHARED: [Audience; 2] = ["a", "b"];
const OWN: [Audience; 2] = ["x", "y"];
/// In the other world, the audience of each client.
const MERGED: [Audience; 4] = ["m0", "m1", "m2", "m3"];
/// The clients' types; only delta clients have virtual hosts.
const KINDS: [ResourceType; 2] = [CDS, VHDS];

#[derive(Clone, Debug)]
enum Step {
    /// Sets a resource of one of the four audiences. Number 0 hides it, or removes it from a shared audience.
    Put {
        audience: usize,
        name: usize,
        number: u32,
    },
    Remove {
        audience: usize,
        name: usize,
    },
    Commit,
    Read {
        client: usize,
    },
    Give {
        client: usize,
        own: usize,
    },
    Move {
        client: usize,
        shared: usize,
    },
    Reconnect {
        client: usize,
    },
    /// The client reconnects without having read what changed since it read the last time.
    Return {
        client: usize,
    },
    /// All clients do.
    ReturnAll,
}

fn step() -> impl Strategy<Value = Step> {
    let (audience, name, client) = (0..4usize, 0..NAMES.len(), 0..4usize);
    prop_oneof![
        6 => (audience.clone(), name.clone(), 0..4u32).prop_map(|(audience, name, number)| Step::Put { audience, name, number }),
        3 => (audience, name).prop_map(|(audience, name)| Step::Remove { audience, name }),
        5 => Just(Step::Commit),
        12 => client.clone().prop_map(|client| Step::Read { client }),
        1 => (client.clone(), 0..3usize).prop_map(|(client, own)| Step::Give { client, own }),
        1 => (client.clone(), 0..2usize).prop_map(|(client, shared)| Step::Move { client, shared }),
        1 => client.clone().prop_map(|client| Step::Reconnect { client }),
        2 => client.prop_map(|client| Step::Return { client }),
        1 => Just(Step::ReturnAll),
    ]
}

/// Names and versions, by kind.
type Versions = [Vec<(String, String)>; 2];

/// One client in both worlds.
struct Twin {
    variant: Variant,
    layered: (Client, u64),
    merged: Client,
    /// Where it is now, and after the next commit.
    place: (Audience, Option<Audience>),
    /// The commits since it read the last time.
    behind: usize,
    /// Whether it has not read since it moved. What the move was about to send is sent after a reconnect, even if it is
    /// equal to what the client has by then.
    moved: bool,
    has: [BTreeMap<String, u32>; 2],
    /// The same resources.
    held: Versions,
}

/// A world with shared and own audiences, and one in which each client has one audience with the same result.
struct Twins {
    layered: Harness,
    merged: Harness,
    clients: Vec<Twin>,
    /// The names that changed in shared and in own audiences since the last commit.
    touched: [BTreeSet<&'static str>; 2],
    /// The names that changed in both in the last commit: their resource may be sent again.
    ambiguous: BTreeSet<&'static str>,
}

impl Twins {
    fn new() -> Twins {
        let mut twins = Twins {
            layered: Harness::new(),
            merged: Harness::new(),
            clients: Vec::new(),
            touched: Default::default(),
            ambiguous: BTreeSet::new(),
        };
        for (client, (variant, own)) in
            [(Delta, Some("x")), (Sotw, Some("x")), (Delta, Some("y")), (Delta, None)].into_iter().enumerate()
        {
            let twin = twins.connect(client, variant, ("a", own), None);
            twins.clients.push(twin);
            twins.read(client);
        }
        twins
    }

    fn connect(
        &mut self,
        client: usize,
        variant: Variant,
        place: (Audience, Option<Audience>),
        old: Option<Twin>,
    ) -> Twin {
        self.layered.world.newcomers = Some(place.0);
        self.layered.world.own_of_newcomers = place.1;
        self.merged.world.newcomers = Some(MERGED[client]);
        (self.layered.node, self.merged.node) = (MERGED[client], MERGED[client]);
        let held = old.as_ref().map(|old| old.held.clone()).unwrap_or_default();
        let layered = subscribed(&mut self.layered, variant, old.as_ref().map(|old| (&old.layered.0, &held)));
        let merged = subscribed(&mut self.merged, variant, old.as_ref().map(|old| (&old.merged, &held)));
        let token = self.layered.world.last_token();
        let behind = if old.as_ref().is_some_and(|old| old.moved) { 2 } else { 1 };
        let has = old.map(|old| old.has).unwrap_or_default();
        Twin { variant, layered: (layered, token), merged, place, behind, moved: false, has, held }
    }

    /// The content for a client.
    fn content(&self, (shared, own): (Audience, Option<Audience>), kind: ResourceType, name: &str) -> Option<Content> {
        let own = own.and_then(|own| self.layered.world.get(kind, own, name));
        own.or_else(|| self.layered.world.get(kind, shared, name)).filter(|content| **content != hiding()).cloned()
    }

    fn step(&mut self, step: &Step) {
        let audience = |at: usize| [SHARED, OWN].concat()[at];
        if let Step::Put { audience, name, .. } | Step::Remove { audience, name } = *step {
            self.touched[audience / 2].insert(NAMES[name]);
        }
        match *step {
            Step::Put { audience: at, name, number: 0 } if at < 2 => self.step(&Step::Remove { audience: at, name }),
            Step::Put { audience: at, name, number } => {
                for kind in KINDS {
                    self.layered.world.put(kind, audience(at), NAMES[name], plain(number));
                }
            }
            Step::Remove { audience: at, name } => {
                for kind in KINDS {
                    self.layered.world.remove(kind, audience(at), NAMES[name]);
                }
            }
            Step::Give { client, own } => {
                self.settle(client);
                let twin = &mut self.clients[client];
                twin.moved = true;
                twin.place.1 = OWN.get(own).copied();
                self.layered.world.give(twin.layered.1, twin.place.1);
                self.commit();
            }
            Step::Move { client, shared } => {
                self.settle(client);
                let twin = &mut self.clients[client];
                twin.moved = true;
                twin.place.0 = SHARED[shared];
                self.layered.world.relocate(twin.layered.1, twin.place.0);
                self.commit();
            }
            Step::Commit => self.commit(),
            Step::Read { client } => self.read(client),
            Step::Return { client } => {
                self.commit();
                self.reconnect(client);
            }
            Step::ReturnAll => {
                self.commit();
                (0..self.clients.len()).for_each(|client| self.reconnect(client));
            }
            Step::Reconnect { client } => {
                self.settle(client);
                self.reconnect(client);
            }
        }
    }

    fn reconnect(&mut self, client: usize) {
        let old = self.clients.remove(client);
        let (id, merged) = (old.layered.0.id, old.merged.id);
        let (variant, place) = (old.variant, old.place);
        let twin = self.connect(client, variant, place, Some(old));
        self.layered.disconnect(id);
        self.merged.disconnect(merged);
        self.clients.insert(client, twin);
        self.read(client);
    }

    /// A move in the same commit as other changes removes more than necessary.
    fn settle(&mut self, client: usize) {
        self.commit();
        self.read(client);
    }

    fn commit(&mut self) {
        let [shared, own] = std::mem::take(&mut self.touched);
        self.ambiguous = shared.intersection(&own).copied().collect();
        for (client, audience) in MERGED.into_iter().enumerate().take(self.clients.len()) {
            for (kind, name) in KINDS.into_iter().flat_map(|kind| NAMES.map(|name| (kind, name))) {
                match self.content(self.clients[client].place, kind, name) {
                    Some(content) => self.merged.world.put(kind, audience, name, content),
                    None => self.merged.world.remove(kind, audience, name),
                }
            }
            self.clients[client].behind += 1;
        }
        self.layered.commit();
        self.merged.commit();
    }

    /// A client that is at most one commit behind receives what one ledger would send. Others end in the same state.
    fn read(&mut self, client: usize) {
        let twin = &mut self.clients[client];
        let layered = twin.layered.0.drain(&mut self.layered);
        let merged = twin.merged.drain(&mut self.merged);
        // A SotW response that is sent for such a name has all others, too.
        if twin.behind <= 1 && (twin.variant == Delta || self.ambiguous.is_empty()) {
            let is_certain = |word: &String| !self.ambiguous.iter().any(|name| word.contains(name));
            let certain = |texts: &[String]| words(texts).into_iter().filter(is_certain).collect::<BTreeSet<_>>();
            assert_eq!(certain(&layered), certain(&merged));
        }
        (twin.behind, twin.moved) = (0, false);
        twin.held = KINDS.map(|kind| versions(&self.layered, twin.layered.0.id, kind));
        for text in layered {
            let mut words = text.split(' ');
            let kind = words.next().unwrap();
            if kind == "LDS" {
                continue;
            }
            let has = &mut twin.has[usize::from(kind == "VHDS")];
            if twin.variant == Sotw {
                has.clear();
            }
            for word in words {
                match word.strip_prefix('-') {
                    Some(name) => drop(has.remove(name)),
                    None => {
                        let (name, number) = word.split_once('=').unwrap();
                        has.insert(name.to_owned(), number.parse().unwrap());
                    }
                }
            }
        }
    }

    /// All clients have the right content, and are counted for the resources that they have.
    fn check(&mut self) {
        self.commit();
        (0..self.clients.len()).for_each(|client| self.read(client));
        for twin in &self.clients {
            for (kind, has) in
                KINDS.into_iter().zip(&twin.has).filter(|(kind, _)| *kind == CDS || twin.variant == Delta)
            {
                let there = NAMES
                    .iter()
                    .filter_map(|name| Some(((*name).to_owned(), self.content(twin.place, kind, name)?.number)));
                assert_eq!(*has, there.collect::<BTreeMap<_, _>>(), "{kind:?}");
            }
            if twin.variant == Sotw && twin.has[0].values().len() > 0 {
                assert_eq!(twin.layered.0.last(CDS).version, twin.merged.last(CDS).version);
            }
        }
        for (cell, (kind, audience, name), number) in self.layered.world.open_resources() {
            let question = Question {
                resources: vec![cell],
                catalogues: Vec::new(),
                maybe: Vec::new(),
                parts: Vec::new(),
                since: u64::MAX,
            };
            let tally = self.layered.hub.tallies().answer(&question);
            let uses = |twin: &&Twin| {
                let own = twin.place.1.filter(|own| self.layered.world.get(kind, own, &name).is_some());
                (kind == CDS || twin.variant == Delta) && own.unwrap_or(twin.place.0) == audience
            };
            let users = self.clients.iter().filter(uses).count();
            assert!(number.is_none() || (tally.total, tally.running) == (users, users), "{kind:?} {name}: {tally:?}");
        }
    }
}

/// A client that subscribes to clusters and virtual hosts, with what an older stream has.
fn subscribed(h: &mut Harness, variant: Variant, old: Option<(&Client, &Versions)>) -> Client {
    let mut client = Client::new(h, variant);
    match (variant, old) {
        (Delta, Some((_, held))) => {
            for ((kind, names), held) in KINDS.into_iter().zip([&["*"][..], &["80"]]).zip(held) {
                h.request(client.id, resume(kind, names, &borrow(held))).unwrap();
            }
        }
        (Delta, None) => {
            client.subscribe(h, CDS, &[]);
            client.subscribe(h, VHDS, &["80"]);
        }
        (Sotw, Some((old, _))) => {
            h.request(client.id, sotw(CDS, &[], &old.last(CDS).version, "")).unwrap();
            client.remember(old, CDS);
        }
        (Sotw, None) => client.subscribe(h, CDS, &[]),
    }
    // Clusters are removed after listeners.
    client.subscribe(h, LDS, &[]);
    client
}

/// The resources and removals in responses.
fn words(texts: &[String]) -> BTreeSet<String> {
    let words = texts.iter().flat_map(|text| {
        let (kind, words) = text.split_once(' ').unwrap_or((text, ""));
        words.split(' ').map(move |word| format!("{kind} {word}"))
    });
    words.collect()
}

proptest! {
    // Set PROPTEST_CASES to run more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_receive_what_one_ledger_would_send(steps in prop::collection::vec(step(), 1..80)) {
        let mut twins = Twins::new();
        steps.iter().for_each(|step| twins.step(step));
        twins.check();
        twins.check();
    }
}
