//! Who holds the lease: the pure part, with replicas whose clocks and luck differ.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use sinks::lease::Terms;
use sinks::{Elector, Lease, Step};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wall(now: Duration) -> SystemTime {
    UNIX_EPOCH + seconds(1_800_000_000) + now
}

/// Looks, and writes if it may.
fn turn(elector: &mut Elector, lease: &mut Option<Lease>, now: Duration) {
    if let Step::Write(wanted) = elector.look(lease.as_ref(), now, wall(now)) {
        *lease = Some(wanted.clone());
        elector.wrote(wanted, now);
    }
}

#[test]
fn a_lease_is_taken_renewed_given_back_and_taken_over() {
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
    assert!(!b.leads(seconds(39)), "seen as it is for 29 seconds");
    turn(&mut b, &mut lease, seconds(40));
    assert!(b.leads(seconds(40)));
    assert_eq!(
        lease.as_ref().map(|l| (l.holder.as_str(), l.transitions)),
        Some(("b", 1))
    );
    turn(&mut a, &mut lease, seconds(41));
    assert!(!a.leads(seconds(41)));

    lease = b.release(wall(seconds(42)));
    assert!(!b.leads(seconds(42)));
    assert_eq!(b.release(wall(seconds(42))), None);
    turn(&mut a, &mut lease, seconds(42));
    assert!(a.leads(seconds(42)), "what was given back need not be waited for");
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
    assert!(default.leads(seconds(1)));
    turn(&mut canary, &mut lease, seconds(2));
    assert!(!canary.leads(seconds(2)) && default.leads(seconds(2)));
    let taken = lease.clone().map(|lease| (lease.revision, lease.transitions));
    assert_eq!(taken, Some(("default".to_owned(), 1)));
    // A second replica of the default revision waits as usual.
    let mut second = Elector::new("istiod-2", terms());
    second.set_revision("default", true);
    turn(&mut second, &mut lease, seconds(3));
    assert!(!second.leads(seconds(3)));
    // A holder that does not say its revision is waited for, too.
    lease.iter_mut().for_each(|lease| lease.revision.clear());
    turn(&mut second, &mut lease, seconds(4));
    assert!(!second.leads(seconds(4)));
}

#[test]
fn a_lease_is_written_as_kubernetes_writes_it() {
    let mut a = Elector::new("a", Terms::default());
    let now = Duration::from_micros(1_500_007);
    let Step::Write(lease) = a.look(None, now, wall(now)) else {
        panic!("it is free");
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

    /// Whatever fails and however late replicas are: never two at a time.
    #[test]
    fn there_is_never_more_than_one_leader(
        steps in prop::collection::vec((0..3usize, 0..9_000u64, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut replicas = ["a", "b", "c"].map(|name| Elector::new(name, Terms::default()));
        // What each has read; it writes later, if nobody wrote meanwhile.
        let mut read: [Option<(Option<Lease>, u64, Duration)>; 3] = [None, None, None];
        let (mut lease, mut version, mut now) = (None::<Lease>, 0u64, Duration::ZERO);
        for (who, millis, reads, lost) in steps {
            now += Duration::from_millis(millis);
            if reads {
                read[who] = Some((lease.clone(), version, now));
            } else if let Some((found, at, asked)) = read[who].take()
                && let Step::Write(wanted) = replicas[who].look(found.as_ref(), asked, wall(now))
                && at == version
            {
                lease = Some(wanted.clone());
                version += 1;
                // The answer may get lost; the write happened.
                if !lost {
                    replicas[who].wrote(wanted, asked);
                }
            }
            let leaders = replicas.iter().filter(|replica| replica.leads(now)).count();
            prop_assert!(leaders <= 1, "{leaders} leaders at {now:?}");
        }
    }
}
