//! Several replicas, each with some of the proxies: the leader says what one replica with all of them would.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::Observed;
use config::{ObjectKey, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use status::{Counts, Elapsed, Nack, Now, Planner, Proxies, ReplicaCounts, Settings, Shares, read_name, stored_name};

use support::{key, subject};

fn running(count: usize) -> Counts {
    Counts {
        total: count,
        running: count,
        ..Counts::default()
    }
}

/// A planner and what its replica counts now; written as soon as it may be.
struct Replica {
    planner: Planner,
    counts: BTreeMap<ObjectKey, Counts>,
    name: Arc<str>,
}

impl Replica {
    fn new(name: &str, leading: bool) -> Replica {
        let mut planner = Planner::new(Settings::default());
        planner.lead(leading, Elapsed::ZERO);
        Replica {
            planner,
            counts: BTreeMap::new(),
            name: name.into(),
        }
    }

    /// Sees an object, and counts it.
    fn count(&mut self, subject: Observed, counts: Counts, now: &mut Elapsed) {
        self.counts.insert(subject.key.clone(), counts);
        self.planner.saw(subject, 1, *now);
        self.settle(now);
    }

    fn settle(&mut self, now: &mut Elapsed) {
        while let Some(at) = self.planner.deadline() {
            *now = (*now).max(at);
            let asks = self.planner.due(*now);
            let counted: Vec<_> = asks
                .into_iter()
                .map(|ask| (ask.key.clone(), self.counts.get(&ask.key).cloned().unwrap_or_default()))
                .collect();
            let wall = Timestamp::from_unix(1_800_000_000);
            self.planner.plan(counted, Now { elapsed: *now, wall });
        }
    }

    /// Tells a leader what changed, in the form that it is stored in. Gives how many parts that were.
    fn tell(&mut self, leader: &mut Replica, now: &mut Elapsed) -> usize {
        let shares = self.planner.shares(false);
        let parts = shares.len();
        // What is stored is text.
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
        let mut reports = self.planner.reports();
        let found = reports.find(|report| *report.key == key(name)).unwrap();
        found.status.unwrap().proxies.clone()
    }
}

fn leader_and_peer() -> (Replica, Replica, Elapsed) {
    (
        Replica::new("a", true),
        Replica::new("b", false),
        Elapsed::from_secs(100),
    )
}

#[test]
fn what_others_count_is_added_and_goes_with_them() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    peer.count(subject("x", 1), running(2), &mut now);
    assert_eq!(peer.tell(&mut leader, &mut now), 1);
    assert_eq!(leader.proxies("x").counts, running(3));
    assert_eq!(peer.tell(&mut leader, &mut now), 0, "nothing is new");

    leader.planner.replica_removed("b", now);
    leader.settle(&mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
}

#[test]
fn who_does_not_lead_any_more_counts_only_its_own() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    peer.count(subject("x", 1), running(2), &mut now);
    peer.tell(&mut leader, &mut now);
    leader.planner.lead(false, now);
    leader.count(subject("x", 2), running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
    let shared = leader.planner.shares(true);
    let share = ReplicaCounts {
        uid: "u1".into(),
        generation: 2,
        counts: running(1),
    };
    assert_eq!(shared, [(key("x"), Some(share))], "its own, not the sum");
    peer.planner.lead(true, now);
    assert_eq!(peer.planner.shares(true), [], "who leads tells nobody");
}

#[test]
fn who_has_an_older_generation_has_not_answered_and_another_object_is_another() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    peer.count(subject("x", 1), running(2), &mut now);
    leader.count(subject("x", 1), running(1), &mut now);
    peer.tell(&mut leader, &mut now);
    leader.count(subject("x", 2), running(1), &mut now);
    let proxies = leader.proxies("x");
    assert_eq!((proxies.generation, proxies.counts.total), (2, 3));
    assert_eq!((proxies.counts.running, proxies.counts.pending), (1, 2));

    peer.count(subject("x", 2), running(2), &mut now);
    peer.tell(&mut leader, &mut now);
    assert_eq!(leader.proxies("x").counts, running(3));

    let other = Observed {
        uid: "u2".into(),
        ..subject("x", 2)
    };
    leader.count(other, running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
}

#[test]
fn all_is_well_is_not_said_before_others_had_time_to_tell() {
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
        let counted = planner.due(now).into_iter().map(|ask| (ask.key, running(1)));
        let counted: Vec<_> = counted.collect();
        let written = planner.plan(counted, Now { elapsed: now, wall });
        written
            .into_iter()
            .map(|intent| intent.status.proxies.counts.running)
            .collect::<Vec<_>>()
    };
    // It tells in time.
    planner.saw(subject("x", 1), 1, now);
    assert_eq!(flush(&mut planner, now), [0_usize; 0]);
    now += Duration::from_millis(1_100);
    planner.replica_reported(&"b".into(), vec![(key("x"), Some(share(1)))], now);
    assert_eq!(flush(&mut planner, now), [3]);

    // No proxy of it needs it any more, which it does not say in so many words.
    planner.replica_reported(&"b".into(), vec![(key("x"), None)], now);
    now += Duration::from_secs(20);
    planner.saw(subject("x", 2), 1, now);
    assert_eq!(flush(&mut planner, now), [0_usize; 0]);
    let at = planner.deadline().unwrap();
    assert_eq!(at, now + Duration::from_secs(2));
    assert_eq!(flush(&mut planner, at), [1]);
}

#[test]
fn an_object_that_went_is_told_of_no_more() {
    let (mut leader, mut peer, mut now) = leader_and_peer();
    for name in ["x", "y"] {
        leader.count(subject(name, 1), running(1), &mut now);
        peer.count(subject(name, 1), running(1), &mut now);
    }
    peer.tell(&mut leader, &mut now);
    peer.planner.gone(&key("x"));
    peer.count(subject("y", 2), Counts::default(), &mut now);
    assert!(peer.planner.has_unpublished());
    peer.tell(&mut leader, &mut now);
    leader.count(subject("x", 2), running(1), &mut now);
    leader.count(subject("y", 2), running(1), &mut now);
    assert_eq!(leader.proxies("x").counts, running(1));
    assert_eq!(leader.proxies("y").counts, running(1));
}

#[test]
fn news_of_others_are_written_no_more_often_than_ones_own() {
    let (mut leader, _, mut now) = leader_and_peer();
    leader.count(subject("x", 1), running(1), &mut now);
    let begun = now;
    let mut written = 0;
    for number in 0..1_000_usize {
        let counts = Counts {
            total: number,
            pending: number,
            ..Counts::default()
        };
        let share = ReplicaCounts {
            uid: "u1".into(),
            generation: 1,
            counts,
        };
        let shares = vec![(key("x"), Some(share))];
        leader.planner.replica_reported(&"b".into(), shares, now);
        let asks = leader.planner.due(now);
        let counted = asks.into_iter().map(|ask| (ask.key, running(1)));
        let wall = Timestamp::from_unix(1_800_000_000);
        written += leader.planner.plan(counted, Now { elapsed: now, wall }).len();
        now += Duration::from_millis(5);
    }
    assert!((2..=6).contains(&written), "{written} in {:?}", now - begun);
}

#[test]
fn a_long_refusal_is_cut() {
    let nack = Nack {
        proxy: "p".repeat(300),
        kind: "RDS".into(),
        resource: "r".repeat(20_480),
        message: "m".repeat(20_480),
    };
    let share = ReplicaCounts {
        uid: "0d9a7d3c-8f0e-4c43-8a3f-1f6a54f3a001".into(),
        generation: 1,
        counts: Counts {
            total: 1,
            refused: 1,
            nack: Some(nack),
            ..Counts::default()
        },
    };
    let read = ReplicaCounts::from_json(&share.to_json()).unwrap();
    assert_eq!(read.counts.refused, 1);
    assert!(read.to_json().to_string().len() < 5_000);
}

/// What a proxy does: nothing with the object, or runs it, refuses it, is silent.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    Nothing,
    Runs,
    Refuses,
    Waits,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        Just(Does::Nothing),
        Just(Does::Runs),
        Just(Does::Refuses),
        Just(Does::Waits)
    ]
}

/// What somebody counts who has these proxies; their places are their names.
fn counted<'a>(proxies: impl Iterator<Item = (usize, &'a (usize, Does))>) -> Counts {
    let mut counts = Counts::default();
    for (name, (_, does)) in proxies {
        counts.total += usize::from(*does != Does::Nothing);
        counts.running += usize::from(*does == Does::Runs);
        counts.pending += usize::from(*does == Does::Waits);
        if *does == Does::Refuses {
            counts.refused += 1;
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

/// JSON of all shapes, with the names that shares have.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop_oneof![Just("VirtualService"), Just("networking.istio.io"), Just("x")].prop_map(Value::from),
    ];
    const NAMES: [&str; 10] = [
        "counts",
        "total",
        "proxy",
        "type",
        "uid",
        "generation",
        "running",
        "refused",
        "pending",
        "refusal",
    ];
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
    fn the_sum_is_what_one_replica_with_all_proxies_would_say(
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
                peer.tell(&mut leader, &mut now);
            }
            prop_assert_eq!(leader.proxies("x").counts, counted(proxies.iter().enumerate()));
        }
    }

    #[test]
    fn whatever_is_stored_can_be_read(value in any_json()) {
        let share = json!({"uid": "u", "generation": 1, "counts": value.clone()});
        for share in [ReplicaCounts::from_json(&value), ReplicaCounts::from_json(&share)].into_iter().flatten() {
            let counts = share.counts;
            prop_assert_eq!(counts.total, counts.running + counts.refused + counts.pending);
        }
    }
}
