//! Replicas over one store, with a paused clock that the tests advance.

use std::sync::Mutex;

use ::store::memory::Memory;
use ::store::{Limits, Revision, Store};
use config::{Kind, ObjectKey};
use status::{Counts, ReplicaCounts};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::store::{StoreBoard, of_replica};
use super::*;

const INTERVAL: Duration = Duration::from_secs(1);
/// A timeout for operations that must complete.
const LONG: Duration = Duration::from_secs(600);

/// A counter with counts set by the test. It forwards the updates that it receives.
struct Fake {
    changed: Arc<Notify>,
    /// The changes since the last call, and all counts.
    counted: Mutex<(Shares, Shares)>,
    updates: mpsc::UnboundedSender<ReplicaUpdate>,
}

impl Counter for Fake {
    async fn shares(&self, all: bool) -> Option<Shares> {
        let mut counted = self.counted.lock().unwrap_or_else(|error| panic!("{error}"));
        let changes = counted.0.drain(..).collect();
        Some(if all { counted.1.clone() } else { changes })
    }

    async fn apply(&self, update: ReplicaUpdate) -> bool {
        self.updates.send(update).is_ok()
    }
}

impl Fake {
    fn new() -> (Arc<Fake>, mpsc::UnboundedReceiver<ReplicaUpdate>) {
        let (updates, received) = mpsc::unbounded_channel();
        let fake = Fake { changed: Arc::default(), counted: Mutex::default(), updates };
        (Arc::new(fake), received)
    }

    fn count(&self, name: &str, running: usize) {
        let change = (object(name), Some(share(running)));
        let mut counted = self.counted.lock().unwrap_or_else(|error| panic!("{error}"));
        counted.0.push(change.clone());
        counted.1.retain(|(key, _)| *key != change.0);
        counted.1.push(change);
        self.changed.notify_one();
    }
}

fn object(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::VirtualService, "default", name)
}

fn share(running: usize) -> ReplicaCounts {
    let counts = Counts { total: running, running, ..Counts::default() };
    ReplicaCounts { uid: "u1".into(), generation: 1, counts }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(Limits::default()))
}

fn board(store: &Arc<dyn Store>, replica: &str) -> StoreBoard {
    StoreBoard::new(Arc::clone(store), replica.into())
}

fn publishing(store: &Arc<dyn Store>, name: &str, fake: &Arc<Fake>) -> JoinHandle<()> {
    let (store, name, fake) = (Arc::clone(store), Arc::from(name), Arc::clone(fake));
    tokio::spawn(async move { publish::run(&mut board(&store, &name), INTERVAL, &fake.changed, &*fake).await })
}

fn leading(store: &Arc<dyn Store>, name: &str, fake: &Arc<Fake>) -> JoinHandle<()> {
    let (store, name, fake) = (Arc::clone(store), Arc::from(name), Arc::clone(fake));
    tokio::spawn(async move { follow::run(&board(&store, &name), &name, &*fake).await })
}

/// The next update that is not empty, as `REPLICA: NAME=RUNNING …` or `-REPLICA`.
async fn next(received: &mut mpsc::UnboundedReceiver<ReplicaUpdate>) -> String {
    loop {
        let update = timeout(LONG, received.recv()).await;
        match update.unwrap_or_else(|error| panic!("{error}")) {
            Some(ReplicaUpdate::Reported { replica, shares }) if shares.iter().any(|(_, share)| share.is_some()) => {
                let one = |(key, share): &(ObjectKey, Option<ReplicaCounts>)| {
                    let running = share.as_ref().map_or(0, |share| share.counts.running);
                    format!(" {}={running}", key.name)
                };
                return format!("{replica}:{}", shares.iter().map(one).collect::<String>());
            }
            Some(ReplicaUpdate::Reported { .. }) => {}
            Some(ReplicaUpdate::Removed(replica)) => return format!("-{replica}"),
            None => panic!("the follower has ended"),
        }
    }
}

/// Waits for an update that contains this text.
async fn until(received: &mut mpsc::UnboundedReceiver<ReplicaUpdate>, wanted: &str) {
    while !next(received).await.contains(wanted) {}
}

/// Advances the clock and runs the tasks that are due.
async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

async fn revision(store: &Arc<dyn Store>) -> Revision {
    store.revision().await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(start_paused = true)]
async fn the_leader_receives_the_counts_of_replicas_and_evicts_crashed_ones() {
    let store = memory();
    let ((leader, mut received), (replica, _unused)) = (Fake::new(), Fake::new());
    replica.count("a", 1);
    let publisher = publishing(&store, "replica", &replica);
    let follower = leading(&store, "leader", &leader);
    until(&mut received, " a=1").await;
    replica.count("a", 2);
    until(&mut received, " a=2").await;

    // Heartbeats without changes keep the replica.
    for _ in 0..20 {
        pass(BEAT).await;
    }
    replica.count("a", 3);
    until(&mut received, " a=3").await;

    // After a crash the replica is evicted and its objects are removed.
    publisher.abort();
    let crashed = Instant::now();
    until(&mut received, "-replica").await;
    let took = crashed.elapsed();
    assert!(took > GONE - BEAT && took <= GONE, "{took:?}");
    let left = of_replica(&*store, &"replica".into()).await;
    assert!(left.is_ok_and(|left| left.is_empty()));
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_removes_the_replica_at_once_and_a_new_leader_reads_all_counts() {
    let store = memory();
    let ((leader, mut received), (replica, _unused)) = (Fake::new(), Fake::new());
    for name in ["a", "b", "c"] {
        replica.count(name, 1);
    }
    let publisher = publishing(&store, "replica", &replica);
    let first = leading(&store, "leader", &leader);
    until(&mut received, " c=1").await;
    first.abort();
    let (second, mut received) = Fake::new();
    let follower = leading(&store, "another", &second);
    until(&mut received, " a=1").await;
    publisher.abort();
    let _ = publisher.await;
    let begun = Instant::now();
    assert_eq!(board(&store, "replica").remove(&"replica".into()).await, Ok(()));
    until(&mut received, "-replica").await;
    assert!(begun.elapsed() < INTERVAL);
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_evicted_too_early_publishes_all_its_counts() {
    let store = memory();
    let ((leader, mut received), (replica, _unused)) = (Fake::new(), Fake::new());
    replica.count("a", 1);
    let publisher = publishing(&store, "replica", &replica);
    let follower = leading(&store, "leader", &leader);
    until(&mut received, " a=1").await;
    assert_eq!(board(&store, "replica").remove(&"replica".into()).await, Ok(()));
    until(&mut received, "-replica").await;
    until(&mut received, " a=1").await;
    publisher.abort();
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn writes_are_limited_per_interval_and_only_heartbeats_follow() {
    let store = memory();
    let (replica, _unused) = Fake::new();
    let publisher = publishing(&store, "replica", &replica);
    let begun = Instant::now();
    for number in 0..10_000 {
        replica.count(&format!("o{}", number % 20), number);
        pass(Duration::from_micros(500)).await;
    }
    pass(INTERVAL).await;
    let (leader, mut received) = Fake::new();
    let follower = leading(&store, "leader", &leader);
    until(&mut received, " o19=9999").await;
    let seconds = begun.elapsed().as_secs();
    let writes = revision(&store).await;
    assert!((2..=seconds + 3).contains(&writes), "{writes} in {seconds} s");

    // Without changes only heartbeats are written.
    for _ in 0..8 {
        replica.changed.notify_one();
        pass(BEAT).await;
    }
    let more = revision(&store).await - writes;
    assert!((1..=9).contains(&more), "{more}");
    publisher.abort();
    follower.abort();
}
