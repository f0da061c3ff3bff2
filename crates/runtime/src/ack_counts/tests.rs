//! Replicas over one store, with a clock that the tests move.

use std::sync::Mutex;

use config::{Kind, ObjectKey};
use status::{Counts, ReplicaCounts};
use store::memory::Memory;
use store::{Limits, Revision};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;

const INTERVAL: Duration = Duration::from_secs(1);
/// Longer than anything should take.
const LONG: Duration = Duration::from_secs(600);

/// A counter that counts what the test says, and passes on what it hears.
struct Fake {
    news: Arc<Notify>,
    /// What changed and was not asked for yet; and all of it.
    counted: Mutex<(Shares, Shares)>,
    heard: mpsc::UnboundedSender<ReplicaUpdate>,
}

impl Counter for Fake {
    async fn shares(&self, anew: bool) -> Option<Shares> {
        let mut counted = self.counted.lock().unwrap_or_else(|error| panic!("{error}"));
        let news = counted.0.drain(..).collect();
        Some(if anew { counted.1.clone() } else { news })
    }

    async fn apply(&self, said: ReplicaUpdate) -> bool {
        self.heard.send(said).is_ok()
    }
}

impl Fake {
    fn new() -> (Arc<Fake>, mpsc::UnboundedReceiver<ReplicaUpdate>) {
        let (heard, hears) = mpsc::unbounded_channel();
        let fake = Fake {
            news: Arc::default(),
            counted: Mutex::default(),
            heard,
        };
        (Arc::new(fake), hears)
    }

    fn count(&self, name: &str, running: usize) {
        let change = (object(name), Some(share(running)));
        let mut counted = self.counted.lock().unwrap_or_else(|error| panic!("{error}"));
        counted.0.push(change.clone());
        counted.1.retain(|(key, _)| *key != change.0);
        counted.1.push(change);
        self.news.notify_one();
    }
}

fn object(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::VirtualService, "default", name)
}

fn share(running: usize) -> ReplicaCounts {
    let counts = Counts {
        total: running,
        running,
        ..Counts::default()
    };
    ReplicaCounts {
        uid: "u1".into(),
        generation: 1,
        counts,
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(Limits::default()))
}

fn publishing(store: &Arc<dyn Store>, name: &str, fake: &Arc<Fake>) -> JoinHandle<()> {
    let (store, name, fake) = (Arc::clone(store), Arc::from(name), Arc::clone(fake));
    tokio::spawn(async move { Publisher::new(store, name).run(INTERVAL, &fake.news, &*fake).await })
}

fn leading(store: &Arc<dyn Store>, name: &str, fake: &Arc<Fake>) -> JoinHandle<()> {
    let (store, name, fake) = (Arc::clone(store), Arc::from(name), Arc::clone(fake));
    tokio::spawn(async move { follow::run(&store, &name, &*fake).await })
}

/// The next thing that is heard and not empty; as `PEER: NAME=RUNNING …` or `-PEER`.
async fn next(hears: &mut mpsc::UnboundedReceiver<ReplicaUpdate>) -> String {
    loop {
        let said = timeout(LONG, hears.recv()).await;
        match said.unwrap_or_else(|error| panic!("{error}")) {
            Some(ReplicaUpdate::Reported { replica, shares }) if shares.iter().any(|(_, share)| share.is_some()) => {
                let one = |(key, share): &(ObjectKey, Option<ReplicaCounts>)| {
                    let running = share.as_ref().map_or(0, |share| share.counts.running);
                    format!(" {}={running}", key.name)
                };
                return format!("{replica}:{}", shares.iter().map(one).collect::<String>());
            }
            Some(ReplicaUpdate::Reported { .. }) => {}
            Some(ReplicaUpdate::Removed(replica)) => return format!("-{replica}"),
            None => panic!("nobody speaks any more"),
        }
    }
}

/// Waits until this is said, among other things.
async fn until(hears: &mut mpsc::UnboundedReceiver<ReplicaUpdate>, wanted: &str) {
    while !next(hears).await.contains(wanted) {}
}

/// Lets time pass, in which everybody does what is due.
async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}

async fn revision(store: &Arc<dyn Store>) -> Revision {
    store.revision().await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(start_paused = true)]
async fn the_leader_hears_what_others_count_and_that_they_went() {
    let store = memory();
    let ((leader, mut hears), (replica, _nobody)) = (Fake::new(), Fake::new());
    replica.count("a", 1);
    let publisher = publishing(&store, "replica", &replica);
    let follower = leading(&store, "leader", &leader);
    until(&mut hears, " a=1").await;
    replica.count("a", 2);
    until(&mut hears, " a=2").await;

    // It lives for as long as it says so, and says so without news.
    for _ in 0..20 {
        pass(BEAT).await;
    }
    replica.count("a", 3);
    until(&mut hears, " a=3").await;

    // It crashes: nothing more is heard, and in the end nothing is left of it.
    publisher.abort();
    let crashed = Instant::now();
    until(&mut hears, "-replica").await;
    let took = crashed.elapsed();
    assert!(took > GONE - BEAT && took <= GONE, "{took:?}");
    let left = of_replica(&*store, &"replica".into()).await;
    assert!(left.is_ok_and(|left| left.is_empty()));
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn who_stops_in_order_is_gone_at_once_and_a_new_leader_hears_all_there_is() {
    let store = memory();
    let ((leader, mut hears), (replica, _nobody)) = (Fake::new(), Fake::new());
    for name in ["a", "b", "c"] {
        replica.count(name, 1);
    }
    let publisher = publishing(&store, "replica", &replica);
    let first = leading(&store, "leader", &leader);
    until(&mut hears, " c=1").await;
    first.abort();
    let (second, mut hears) = Fake::new();
    let follower = leading(&store, "another", &second);
    until(&mut hears, " a=1").await;
    publisher.abort();
    let _ = publisher.await;
    let begun = Instant::now();
    assert_eq!(remove(&*store, &"replica".into()).await, Ok(()));
    until(&mut hears, "-replica").await;
    assert!(begun.elapsed() < INTERVAL);
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_was_given_up_too_early_says_everything_again() {
    let store = memory();
    let ((leader, mut hears), (replica, _nobody)) = (Fake::new(), Fake::new());
    replica.count("a", 1);
    let publisher = publishing(&store, "replica", &replica);
    let follower = leading(&store, "leader", &leader);
    until(&mut hears, " a=1").await;
    assert_eq!(remove(&*store, &"replica".into()).await, Ok(()));
    until(&mut hears, "-replica").await;
    until(&mut hears, " a=1").await;
    publisher.abort();
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_changes_are_few_writes_and_none_without_a_change() {
    let store = memory();
    let (replica, _nobody) = Fake::new();
    let publisher = publishing(&store, "replica", &replica);
    let begun = Instant::now();
    for number in 0..10_000 {
        replica.count(&format!("o{}", number % 20), number);
        pass(Duration::from_micros(500)).await;
    }
    pass(INTERVAL).await;
    let (leader, mut hears) = Fake::new();
    let follower = leading(&store, "leader", &leader);
    until(&mut hears, " o19=9999").await;
    let seconds = begun.elapsed().as_secs();
    let writes = revision(&store).await;
    assert!((2..=seconds + 3).contains(&writes), "{writes} in {seconds} s");

    // Nothing new: it only says that it lives.
    for _ in 0..8 {
        replica.news.notify_one();
        pass(BEAT).await;
    }
    let more = revision(&store).await - writes;
    assert!((1..=9).contains(&more), "{more}");
    publisher.abort();
    follower.abort();
}
