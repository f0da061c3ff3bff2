//! Several replicas, each with some of the proxies. The leader must report the same as one replica with all of them.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::Observed;
use config::{ObjectKey, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use status::{
    Counts, Elapsed, Nack, Now, Planner, Proxies, ReplicaCounts, Scope, Settings, Shares, read_name, stored_name,
};

use support::{key, subject};

fn running(count: usize) -> Counts {
    Counts { total: count, running: count, ..Counts::default() }
}

/// A planner and the current counts of its replica. Statuses are written as soon as allowed.
struct Replica {
    planner: Planner,
    counts: BTreeMap<ObjectKey, Counts>,
    name: Arc<str>,
    /// The names of the objects whose statuses were handed out.
    written: Vec<Arc<str>>,
}

impl Replica {
    fn new(name: &str, leading: bool) -> Replica {
        let mut planner = Planner::new(Settings::default());
        planner.lead(leading, Elapsed::ZERO);
        Replica { planner, counts: BTreeMap::new(), name: name.into(), written: Vec::new() }
    }

    /// Adds an object and counts it.
    fn count(&mut self, subject: Observed, counts: Counts, now: &mut Elapsed) {
        self.counts.insert(subject.key.clone(), counts);
        self.planner.saw(subject, 1, *now);
        self.settle(now);
    }

    fn settle(&mut self, now: &mut Elapsed) {
        while let Some(at) = self.planner.deadline() {
            *now = (*now).max(at);
            let requests = self.planner.due(*now);
            let counted: Vec<_> = requests
                .into_iter()
                .map(|request| (request.key.clone(), self.counts.get(&request.key).cloned().unwrap_or_default()))
                .collect();
            let wall = Timestamp::from_unix(1_800_000_000);
            let intents = self.planner.plan(counted, Now { elapsed: *now, wall });
            self.written.extend(intents.into_iter().map(|intent| intent.key.name));
        }
    }

    /// Publishes changed counts to a leader, through their stored form. Returns their number.
    fn publish_to(&mut self, leader: &mut Replica, now: &mut Elapsed) -> usize {
        let shares = self.planner.shares(false);
        let parts = shares.len();
        // The store holds text.
        let stored = |(key, share): (ObjectKey, Option<ReplicaCounts>)| {
            let text = share.map(|share| share.to_json().to_string());
            let read = text.map(|text| ReplicaCounts::from_json(&serde_json::from_str(&text).unwrap()).unwrap());
            (read_name(&stored_name(&key)).unwrap(), read)
        };
        let shares: Shares = shares.into_iter().map(stored).collect();
        if parts > 0 {
            leader.planner.replica_reported(&self.name, shares, *now);
        }
        leader.settle(now);
        parts
    }

    fn proxies(&self, name: &str) -> Proxies {
        let mut reports = self.planner.reports(None);
        let found = reports.find(|report| *report.key == key(name)).unwrap();
        found.status.unwrap().proxies.clone()
    }
}

fn leader_and_peer() -> (Replica, Replica, Elapsed) {
    (Replica::new("a", true), Replica::new("b", false), Elapsed::from_secs(100))
}

#[test]
fn counts_of_other_replicas_are_added_and_removed_with_them() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    peer.count(subject("x", 1), running(2), &mut now);
    assert_eq!(peer.publish_to(&mut leader, &mut now), 1);
    assert_eq!(leader.proxies("x").counts, running(3));
    assert_eq!(peer.publish_to(&mut leader, &mut now), 0, "nothing changed");

    for key in leader.planner.replica_removed("b") {
        leader.planner.again(&key, now);
    }
    leader.settle(&mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
}

#[test]
fn each_of_two_revisions_writes_its_own_objects_and_one_of_them_the_others() {
    let (mut old, mut new, mut now) = (Replica::new("a", false), Replica::new("b", false), Elapsed::from_secs(100));
    let assigned = |name: &str| Observed { assigned: true, ..subject(name, 1) };
    for (replica, own) in [(&mut old, "old"), (&mut new, "new")] {
        replica.count(subject("all", 1), running(1), &mut now);
        replica.count(assigned(own), running(1), &mut now);
        replica.planner.lead_in(Scope::Revision, true, now);
        replica.settle(&mut now);
    }
    old.planner.lead_in(Scope::All, true, now);
    old.settle(&mut now);
    assert_eq!((old.written.join(" "), new.written.join(" ")), ("old all".to_owned(), "new".to_owned()));
    // Counts of a scope that only one of them leads are published, and counted there.
    assert_eq!(new.publish_to(&mut old, &mut now), 2);
    assert_eq!((old.proxies("all").counts, old.proxies("old").counts), (running(2), running(1)));
    assert_eq!(old.planner.shares(true), [], "it leads in all scopes");

    // The new revision becomes the default one and takes the shared lease.
    old.planner.lead_in(Scope::All, false, now);
    new.planner.lead_in(Scope::All, true, now);
    old.publish_to(&mut new, &mut now);
    now += Duration::from_secs(60);
    new.settle(&mut now);
    assert_eq!(new.proxies("all").counts, running(2));
    assert_eq!(new.written.join(" "), "new all");
    // An object without a new generation changes its writer.
    old.count(assigned("all"), running(1), &mut now);
    assert_eq!(old.written.join(" "), "old all all");
}

#[test]
fn a_former_leader_reports_only_its_own_counts() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    peer.count(subject("x", 1), running(2), &mut now);
    peer.publish_to(&mut leader, &mut now);
    leader.planner.lead(false, now);
    leader.count(subject("x", 2), running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
    let shared = leader.planner.shares(true);
    let share = ReplicaCounts { uid: "u1".into(), generation: 2, counts: running(1) };
    assert_eq!(shared, [(key("x"), Some(share))], "its own, not the sum");
    peer.planner.lead(true, now);
    assert_eq!(peer.planner.shares(true), [], "a leader publishes nothing");
}

#[test]
fn older_generations_count_as_pending_and_other_uids_are_ignored() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    peer.count(subject("x", 1), running(2), &mut now);
    leader.count(subject("x", 1), running(1), &mut now);
    peer.publish_to(&mut leader, &mut now);
    leader.count(subject("x", 2), running(1), &mut now);
    let proxies = leader.proxies("x");
    assert_eq!((proxies.generation, proxies.counts.total), (2, 3));
    assert_eq!((proxies.counts.running, proxies.counts.pending), (1, 2));

    peer.count(subject("x", 2), running(2), &mut now);
    peer.publish_to(&mut leader, &mut now);
    assert_eq!(leader.proxies("x").counts, running(3));

    let other = Observed { uid: "u2".into(), ..subject("x", 2) };
    leader.count(other, running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
}

#[test]
fn programmed_waits_for_the_counts_of_other_replicas() {
    let mut planner = Planner::new(Settings::default());
    let mut now = Elapsed::from_secs(100);
    planner.lead(true, now);
    planner.replica_reported(&"b".into(), Vec::new(), now);
    let (wall, share) = (Timestamp::from_unix(1_800_000_000), |generation| ReplicaCounts {
        uid: "u1".into(),
        generation,
        counts: running(2),
    });
    let flush = |planner: &mut Planner, now: Elapsed| {
        let counted = planner.due(now).into_iter().map(|request| (request.key, running(1)));
        let counted: Vec<_> = counted.collect();
        let written = planner.plan(counted, Now { elapsed: now, wall });
        written.into_iter().map(|intent| intent.status.proxies.counts.running).collect::<Vec<_>>()
    };
    // The counts arrive in time.
    planner.saw(subject("x", 1), 1, now);
    assert_eq!(flush(&mut planner, now), [0_usize; 0]);
    now += Duration::from_millis(1_100);
    planner.replica_reported(&"b".into(), vec![(key("x"), Some(share(1)))], now);
    assert_eq!(flush(&mut planner, now), [3]);

    // No proxy of the replica needs the object any more.
    planner.replica_reported(&"b".into(), vec![(key("x"), None)], now);
    now += Duration::from_secs(20);
    planner.saw(subject("x", 2), 1, now);
    assert_eq!(flush(&mut planner, now), [0_usize; 0]);
    let at = planner.deadline().unwrap();
    assert_eq!(at, now + Duration::from_secs(2));
    assert_eq!(flush(&mut planner, at), [1]);
}

#[test]
fn a_deleted_object_is_no_longer_published() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    for name in ["x", "y"] {
        leader.count(subject(name, 1), running(1), &mut now);
        peer.count(subject(name, 1), running(1), &mut now);
    }
    peer.publish_to(&mut leader, &mut now);
    peer.planner.gone(&key("x"));
    peer.count(subject("y", 2), Counts::default(), &mut now);
    assert!(peer.planner.has_unpublished());
    peer.publish_to(&mut leader, &mut now);
    leader.count(subject("x", 2), running(1), &mut now);
    leader.count(subject("y", 2), running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
    assert_eq!(leader.proxies("y").counts, running(1));
}

#[test]
fn counts_of_other_replicas_respect_the_write_interval() {
    let (mut leader, _, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    let begun = now;
    let mut written = 0;
    for number in 0..1_000_usize {
        let counts = Counts { total: number, pending: number, ..Counts::default() };
        let share = ReplicaCounts { uid: "u1".into(), generation: 1, counts };
        let shares = vec![(key("x"), Some(share))];
        leader.planner.replica_reported(&"b".into(), shares, now);
        let requests = leader.planner.due(now);
        let counted = requests.into_iter().map(|request| (request.key, running(1)));
        let wall = Timestamp::from_unix(1_800_000_000);
        written += leader.planner.plan(counted, Now { elapsed: now, wall }).len();
        now += Duration::from_millis(5);
    }
    assert!((2..=6).contains(&written), "{written} in {:?}", now - begun);
}

#[test]
fn a_long_nack_is_cut() {
    let nack =
        Nack { proxy: "p".repeat(300), kind: "RDS".into(), resource: "r".repeat(20_480), message: "m".repeat(20_480) };
    let share = ReplicaCounts {
        uid: "0d9a7d3c-8f0e-4c43-8a3f-1f6a54f3a001".into(),
        generation: 1,
        counts: Counts { total: 1, rejected: 1, nack: Some(nack), ..Counts::default() },
    };
    let read = ReplicaCounts::from_json(&share.to_json()).unwrap();
    assert_eq!(read.counts.rejected, 1);
    assert!(read.to_json().to_string().len() < 5_000);
}

/// The reaction of a proxy to an object: not needed, ACK, NACK, or no answer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Reaction {
    Nothing,
    Runs,
    Rejects,
    Waits,
}

fn does() -> impl Strategy<Value = Reaction> {
    prop_oneof![Just(Reaction::Nothing), Just(Reaction::Runs), Just(Reaction::Rejects), Just(Reaction::Waits)]
}

/// The counts of a replica with these proxies. Their indices are their names.
fn counted<'a>(proxies: impl Iterator<Item = (usize, &'a (usize, Reaction))>) -> Counts {
    let mut counts = Counts::default();
    for (name, (_, does)) in proxies {
        counts.total += usize::from(*does != Reaction::Nothing);
        counts.running += usize::from(*does == Reaction::Runs);
        counts.pending += usize::from(*does == Reaction::Waits);
        if *does == Reaction::Rejects {
            counts.rejected += 1;
            counts.nack.get_or_insert_with(|| Nack {
                proxy: format!("proxy-{name:03}"),
                kind: "RDS".into(),
                resource: "80".into(),
                message: format!("words of {name}"),
            });
        }
    }
    counts
}

/// JSON of any shape, with the field names of stored counts.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop_oneof![Just("VirtualService"), Just("networking.istio.io"), Just("x")].prop_map(Value::from),
    ];
    const NAMES: [&str; 10] =
        ["counts", "total", "proxy", "type", "uid", "generation", "running", "rejected", "pending", "rejection"];
    leaf.prop_recursive(4, 64, 12, |inner| {
        let name = prop::sample::select(&NAMES[..]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..12)
                .prop_map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sum_equals_the_counts_of_one_replica_with_all_proxies(
        rounds in prop::collection::vec(prop::collection::vec((0..3usize, does()), 0..12), 1..6),
    ) {
        let mut now = Elapsed::from_secs(100);
        let mut leader = Replica::new("r0", true);
        let mut peers = [Replica::new("r1", false), Replica::new("r2", false)];
        for (generation, proxies) in (1..).zip(&rounds) {
            let of = |replica: usize| counted(proxies.iter().enumerate().filter(move |(_, (at, _))| *at == replica));
            leader.count(subject("x", generation), of(0), &mut now);
            for (number, peer) in peers.iter_mut().enumerate() {
                peer.count(subject("x", generation), of(number + 1), &mut now);
                peer.publish_to(&mut leader, &mut now);
            }
            prop_assert_eq!(leader.proxies("x").counts, counted(proxies.iter().enumerate()));
        }
    }

    #[test]
    fn any_stored_json_can_be_read(value in any_json()) {
        let share = json!({"uid": "u", "generation": 1, "counts": value.clone()});
        for share in [ReplicaCounts::from_json(&value), ReplicaCounts::from_json(&share)].into_iter().flatten() {
            let counts = share.counts;
            prop_assert_eq!(counts.total, counts.running + counts.rejected + counts.pending);
        }
    }
}
