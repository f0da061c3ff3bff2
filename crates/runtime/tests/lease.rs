//! The pure part of the lease, with replicas that have different clocks and write results.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use runtime::leadership::lease::Terms;
use runtime::leadership::{Elector, Lease, Step};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall(now: Duration) -> SystemTime {
    UNIX_EPOCH + seconds(1_800_000_000) + now
}

/// Reads the lease, and writes it if the candidate may.
fn turn(elector: &mut Elector, lease: &mut Option<Lease>, now: Duration) {
    if let Step::Write(wanted) = elector.look(lease.as_ref(), now, wall(now)) {
        *lease = Some(wanted.clone());
        elector.wrote(wanted, now);
    }
}

#[test]
fn a_lease_is_acquired_renewed_released_and_taken_over() {
    let (mut a, mut b) = (Elector::new("a", Terms::default()), Elector::new("b", Terms::default()));
    let mut lease = None;
    turn(&mut a, &mut lease, seconds(0));
    assert!(a.leads(seconds(0)));
    turn(&mut b, &mut lease, seconds(5));
    assert!(!b.leads(seconds(5)));
    turn(&mut a, &mut lease, seconds(7));
    assert!(a.leads(seconds(21)));
    assert!(!a.leads(seconds(22)), "not renewed for 15 seconds");
    turn(&mut b, &mut lease, seconds(10));
    turn(&mut b, &mut lease, seconds(39));
    assert!(!b.leads(seconds(39)), "unchanged for only 29 seconds");
    turn(&mut b, &mut lease, seconds(40));
    assert!(b.leads(seconds(40)));
    assert_eq!(lease.as_ref().map(|l| (l.holder.as_str(), l.transitions)), Some(("b", 1)));
    turn(&mut a, &mut lease, seconds(41));
    assert!(!a.leads(seconds(41)));

    lease = b.release(wall(seconds(42)));
    assert!(!b.leads(seconds(42)));
    assert_eq!(b.release(wall(seconds(42))), None);
    turn(&mut a, &mut lease, seconds(42));
    assert!(a.leads(seconds(42)), "a released lease is free at once");
    assert_eq!(lease.map(|l| (l.holder, l.transitions)), Some(("a".to_owned(), 2)));
}

#[test]
fn the_default_revision_takes_the_lease_from_others_and_keeps_it() {
    let terms = Terms::default;
    let (mut canary, mut default) = (Elector::new("canary-1", terms()), Elector::new("istiod-1", terms()));
    canary.set_revision("canary", false);
    default.set_revision("default", true);
    let mut lease = None;
    turn(&mut canary, &mut lease, seconds(0));
    assert!(canary.leads(seconds(0)));
    turn(&mut default, &mut lease, seconds(1));
    assert!(canary.leads(seconds(1)) && !default.leads(seconds(1)), "the previous holder may still be writing");
    turn(&mut canary, &mut lease, seconds(2));
    assert!(!canary.leads(seconds(2)), "it yields at its next read");
    turn(&mut default, &mut lease, seconds(8));
    assert!(!default.leads(seconds(15)) && default.leads(seconds(16)));
    let taken = lease.clone().map(|lease| (lease.revision, lease.transitions));
    assert_eq!(taken, Some(("default".to_owned(), 1)));
    // A second replica of the default revision waits as usual.
    let mut second = Elector::new("istiod-2", terms());
    second.set_revision("default", true);
    turn(&mut second, &mut lease, seconds(17));
    assert!(!second.leads(seconds(40)));
    // A holder without a known revision is waited for too.
    lease.iter_mut().for_each(|lease| lease.revision.clear());
    turn(&mut second, &mut lease, seconds(18));
    assert!(!second.leads(seconds(40)));
}

#[test]
fn a_deleted_lease_is_not_held_until_its_last_holder_must_have_stopped() {
    let (mut a, mut b) = (Elector::new("a", Terms::default()), Elector::new("b", Terms::default()));
    let mut lease = None;
    turn(&mut a, &mut lease, seconds(0));
    turn(&mut b, &mut lease, seconds(1));
    lease = None;
    turn(&mut b, &mut lease, seconds(2));
    assert!(a.leads(seconds(14)) && !b.leads(seconds(14)));
    turn(&mut a, &mut lease, seconds(7));
    turn(&mut b, &mut lease, seconds(9));
    assert!(!a.leads(seconds(7)) && !b.leads(seconds(16)) && b.leads(seconds(17)));
}

#[test]
fn a_remote_replica_yields_to_one_of_its_revision_in_the_cluster_of_the_lease() {
    let lease = |revision: &str| Lease {
        holder: "other".to_owned(),
        seconds: 30,
        revision: revision.to_owned(),
        ..Lease::default()
    };
    let takes = |ours: &str, prior: bool, theirs: &str| {
        let mut elector = Elector::new("me", Terms::default());
        elector.set_revision(ours, prior);
        let step = elector.look(Some(&lease(theirs)), Duration::ZERO, wall(Duration::ZERO));
        step != Step::Wait
    };
    assert!(takes("default", true, "^default") && takes("canary", false, "^canary"));
    assert!(!takes("^default", true, "default") && !takes("^canary", false, "canary"));
    assert!(takes("^default", true, "canary") && takes("default", true, "^canary"));
    assert!(!takes("canary", false, "^default") && !takes("default", true, "default"));
}

#[test]
fn a_lease_has_the_json_format_of_kubernetes() {
    let mut a = Elector::new("a", Terms::default());
    let now = Duration::from_micros(1_500_007);
    let Step::Write(lease) = a.look(None, now, wall(now)) else {
        panic!("the lease is free");
    };
    let json = lease.to_json();
    assert_eq!(json["holderIdentity"], "a");
    assert_eq!(json["leaseDurationSeconds"], 30);
    assert_eq!(json["leaseTransitions"], 0);
    assert_eq!(json["renewTime"], "2027-01-15T08:00:01.500007Z");
    assert_eq!(json["acquireTime"], json["renewTime"]);
    assert_eq!(Lease::from_json(&json), lease);
    assert_eq!(Lease::from_json(&serde_json::json!("nonsense")), Lease::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Holds for any failures, delays, clocks and order of replicas, and if the lease is deleted.
    #[test]
    fn there_is_never_more_than_one_leader(
        steps in prop::collection::vec((0..4usize, 0..9_000u64, any::<bool>(), any::<bool>(), 0..100_000u64), 1..200),
        prior in 0..4usize,
    ) {
        let mut replicas = ["a", "b", "c"].map(|name| Elector::new(name, Terms::default()));
        // At most one replica has the default revision.
        for (who, replica) in replicas.iter_mut().enumerate() {
            replica.set_revision(if who == prior { "default" } else { "other" }, who == prior);
        }
        // The lease as each replica read it. The replica writes later, if nobody wrote meanwhile.
        let mut read: [Option<(Option<Lease>, u64, Duration)>; 3] = [None, None, None];
        // The replicas that have seen the lease since it was created: others cannot know that it was deleted.
        let mut knows = [false; 3];
        let (mut lease, mut version, mut now) = (None::<Lease>, 0u64, Duration::ZERO);
        for (who, millis, reads, lost, jump) in steps {
            now += Duration::from_millis(millis);
            if who == 3 {
                if knows == [true; 3] && lost && reads {
                    lease = None;
                    version += 1;
                }
            } else if reads {
                read[who] = Some((lease.clone(), version, now));
            } else if let Some((found, at, asked)) = read[who].take() {
                knows[who] |= found.is_some();
                let step = replicas[who].look(found.as_ref(), asked, wall(seconds(jump)));
                if let Step::Write(wanted) = step
                    && at == version
                {
                    if lease.replace(wanted.clone()).is_none() {
                        knows = [false; 3];
                    }
                    version += 1;
                    // The answer may get lost; the write happened.
                    if !lost {
                        replicas[who].wrote(wanted, asked);
                    }
                }
            }
            let leaders = replicas.iter().filter(|replica| replica.leads(now)).count();
            prop_assert!(leaders <= 1, "{leaders} leaders at {now:?}");
        }
    }
}
