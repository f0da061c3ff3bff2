//! The executor with a writer and a lock that fail on purpose, in simulated time.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::{Kind, ObjectKey, Timestamp};
use controllers::{Controller as _, PublishedRoots, RootCertificates, Write};
use runtime::leadership::{Always, Lease, Lock, LockError, Options, Outcome, Stats, Writer};
use status::{Condition, Counts, Intent, Proxies, Scope, Status, Truth};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

fn intent(name: &str, generation: i64) -> Intent {
    let since = Timestamp::from_unix(0);
    let condition = Condition { truth: Truth::True, reason: String::new(), message: String::new(), since };
    let counts = Counts::default();
    Intent {
        key: ObjectKey::new(Kind::Gateway, "default", name),
        uid: "".into(),
        generation,
        scope: Scope::All,
        status: Status {
            observed: generation,
            accepted: condition.clone(),
            programmed: condition,
            conflicted: None,
            patches: None,
            resolved: None,
            kube: None,
            proxies: Proxies { generation, counts, since },
        },
    }
}

/// Records writes, and fails the first `failures` of them.
#[derive(Clone, Default)]
struct FakeWriter {
    written: Arc<Mutex<BTreeMap<String, Vec<i64>>>>,
    failures: Arc<AtomicUsize>,
    busy: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Writer<Intent> for FakeWriter {
    async fn write(&self, intent: &Intent) -> Outcome {
        let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(busy, Ordering::SeqCst);
        sleep(Duration::from_millis(10)).await;
        self.busy.fetch_sub(1, Ordering::SeqCst);
        if &*intent.key.name == "gone" {
            return Outcome::Gone;
        }
        let fails = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() {
            return Outcome::Retry("the store is away".to_owned());
        }
        let mut written = self.written.lock().unwrap();
        written.entry(intent.key.name.to_string()).or_default().push(intent.generation);
        Outcome::Written
    }
}

impl FakeWriter {
    fn written(&self) -> String {
        let written = self.written.lock().unwrap();
        let shown = written.iter().map(|(name, generations)| format!("{name}{generations:?}"));
        shown.collect::<Vec<_>>().join(" ")
    }
}

/// A running executor.
struct Running {
    intents: mpsc::Sender<Vec<Intent>>,
    stop: watch::Sender<bool>,
    stats: Arc<Stats>,
    task: tokio::task::JoinHandle<()>,
}

fn start(name: &str, writer: &FakeWriter, lock: impl Lock) -> Running {
    let (intents, receiver) = mpsc::channel(4);
    let (stop, stopped) = watch::channel(false);
    let stats = Arc::new(Stats::default());
    let options = Options { concurrency: 3, ..Options::new(name) };
    let run =
        runtime::leadership::run(receiver, writer.clone(), lock, options, Arc::clone(&stats), async |_| {}, stopped);
    Running { intents, stop, stats, task: tokio::spawn(run) }
}

#[tokio::test(start_paused = true)]
async fn all_statuses_are_written_with_bounded_concurrency() {
    let writer = FakeWriter::default();
    let running = start("me", &writer, Always);
    sleep(Duration::from_millis(1)).await;
    let many = (0..20).map(|n| intent(&format!("o{n:02}"), 1)).chain([intent("gone", 1)]);
    running.intents.send(many.collect()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(writer.written.lock().unwrap().len(), 20);
    assert_eq!(writer.most.load(Ordering::SeqCst), 3);
    assert_eq!(running.stats.written.load(Ordering::Relaxed), 20);
    assert_eq!(running.stats.dropped.load(Ordering::Relaxed), 1);
    running.stop.send(true).unwrap();
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_retried_until_it_succeeds_or_is_replaced() {
    let writer = FakeWriter::default();
    writer.failures.store(5, Ordering::SeqCst);
    let running = start("me", &writer, Always);
    sleep(Duration::from_millis(1)).await;
    running.intents.send(vec![intent("a", 1)]).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(writer.written(), "");
    running.intents.send(vec![intent("a", 2)]).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(writer.written(), "a[2]", "the replaced intent must not be written");
    assert_eq!(running.stats.retried.load(Ordering::Relaxed), 5);
    drop(running.intents);
    drop(running.stop);
    running.task.await.unwrap();
}

/// A lock shared with other replicas, which may be unavailable.
#[derive(Clone, Default)]
struct Shared {
    lease: Arc<Mutex<Option<(Lease, u64)>>>,
    away: Arc<AtomicBool>,
}

impl Lock for Shared {
    async fn read(&self) -> Result<Option<(Lease, String)>, LockError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(LockError::TimedOut);
        }
        let lease = self.lease.lock().unwrap();
        Ok(lease.as_ref().map(|(lease, version)| (lease.clone(), version.to_string())))
    }

    async fn write(&self, lease: &Lease, version: Option<&str>) -> Result<bool, LockError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(LockError::TimedOut);
        }
        let mut held = self.lease.lock().unwrap();
        let current = held.as_ref().map(|(_, version)| version.to_string());
        if current.as_deref() != version {
            return Ok(false);
        }
        let next = held.as_ref().map_or(1, |(_, version)| version + 1);
        *held = Some((lease.clone(), next));
        Ok(true)
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_writes_and_the_next_one_takes_over() {
    let (writer, lock) = (FakeWriter::default(), Shared::default());
    let first = start("first", &writer, lock.clone());
    sleep(Duration::from_secs(1)).await;
    let second = start("second", &writer, lock.clone());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(first.stats.leading.load(Ordering::Relaxed), 1);
    assert_eq!(second.stats.leading.load(Ordering::Relaxed), 0);
    first.intents.send(vec![intent("a", 1)]).await.unwrap();
    second.intents.send(vec![intent("b", 1)]).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(writer.written(), "a[1]", "the first replica must keep the lease");

    first.stop.send(true).unwrap();
    first.task.await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(second.stats.leading.load(Ordering::Relaxed), 1, "a released lease is taken at the next read");
    second.intents.send(vec![intent("b", 2)]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(writer.written(), "a[1] b[2]");

    // A leader that cannot renew stops writing before another may lead.
    lock.away.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(16)).await;
    assert_eq!(second.stats.leading.load(Ordering::Relaxed), 0);
    second.intents.send(vec![intent("b", 3)]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    lock.away.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(second.stats.leading.load(Ordering::Relaxed), 1);
    assert_eq!(writer.written(), "a[1] b[2]");
    drop((second.intents, second.stop));
    second.task.await.unwrap();
}

/// Never finishes a write, and counts cancelled writes.
#[derive(Clone, Default)]
struct Stuck {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Writer<Intent> for Stuck {
    async fn write(&self, _: &Intent) -> Outcome {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _count = CountDrop(Arc::clone(&self.ended));
        std::future::pending().await
    }
}

/// A replica with this writer, which runs until the returned sender is dropped.
fn running(stuck: &Stuck, lock: &Shared) -> (mpsc::Sender<Vec<Intent>>, watch::Sender<bool>) {
    let (intents, receiver) = mpsc::channel(4);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(runtime::leadership::run(
        receiver,
        stuck.clone(),
        lock.clone(),
        Options::new("first"),
        Arc::default(),
        async |_| {},
        stopped,
    ));
    (intents, stop)
}

#[tokio::test(start_paused = true)]
async fn a_write_in_flight_is_cancelled_when_the_lease_is_lost() {
    let (stuck, lock) = (Stuck::default(), Shared::default());
    let (intents, _stop) = running(&stuck, &lock);
    sleep(Duration::from_secs(1)).await;
    intents.send(vec![intent("a", 1)]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((stuck.begun.load(Ordering::SeqCst), stuck.ended.load(Ordering::SeqCst)), (1, 0));
    // Another replica takes the lease, as the default revision does.
    let (lease, version) = lock.lease.lock().unwrap().clone().unwrap();
    let taken = Lease { holder: "second".to_owned(), ..lease };
    *lock.lease.lock().unwrap() = Some((taken, version + 1));
    sleep(Duration::from_secs(8)).await;
    assert_eq!(stuck.ended.load(Ordering::SeqCst), 1, "the loss is noticed at the next read");
    sleep(Duration::from_secs(20)).await;
    assert_eq!(stuck.begun.load(Ordering::SeqCst), 1, "the write must not be retried");
}

#[tokio::test(start_paused = true)]
async fn no_write_is_in_flight_when_another_replica_may_lead() {
    let (stuck, lock) = (Stuck::default(), Shared::default());
    let begun = tokio::time::Instant::now();
    let (intents, _stop) = running(&stuck, &lock);
    sleep(Duration::from_millis(100)).await;
    lock.away.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(14)).await;
    intents.send(vec![intent("a", 1)]).await.unwrap();
    while stuck.ended.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(100)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(16), "{:?}", begun.elapsed());
}

/// Records the namespaces that were written, and returns the given outcomes.
#[derive(Clone, Default)]
struct Maps {
    written: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<Outcome>>>,
}

impl Writer<Write> for Maps {
    async fn write(&self, write: &Write) -> Outcome {
        sleep(Duration::from_millis(10)).await;
        self.written.lock().unwrap().push(write.target.namespace.to_string());
        self.answers.lock().unwrap().pop().unwrap_or(Outcome::Written)
    }
}

/// The writes that the root certificate controller plans for these namespaces.
fn planned(namespaces: &[&str]) -> Vec<Write> {
    let mut controller = RootCertificates::default();
    controller.publish(&PublishedRoots { roots: Some("-----BEGIN CERTIFICATE-----".into()), revocation: None });
    namespaces.iter().for_each(|namespace| controller.namespace(namespace, true));
    controller.plan()
}

#[tokio::test(start_paused = true)]
async fn planned_writes_are_retried_unless_refused() {
    let maps = Maps::default();
    // Outcomes are taken from the end.
    let answers = [Outcome::Refused("no".to_owned()), Outcome::Retry("away".to_owned())];
    maps.answers.lock().unwrap().extend(answers);
    let (sender, receiver) = mpsc::channel(4);
    let (stop, stopped) = watch::channel(false);
    let stats = Arc::new(Stats::default());
    let options = Options { concurrency: 1, ..Options::new("a") };
    let (led, mut leads) = watch::channel(false);
    let task = tokio::spawn(runtime::leadership::run(
        receiver,
        maps.clone(),
        Always,
        options,
        Arc::clone(&stats),
        async move |leading| {
            led.send_replace(leading);
        },
        stopped,
    ));
    leads.wait_for(|leads| *leads).await.unwrap();
    sender.send(planned(&["a"])).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(*maps.written.lock().unwrap(), ["a", "a"], "retried once, then refused");
    sender.send(planned(&["b", "c"])).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*maps.written.lock().unwrap(), ["a", "a", "b", "c"]);
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((count(&stats.written), count(&stats.retried), count(&stats.dropped)), (2, 1, 1));
    stop.send_replace(true);
    task.await.unwrap();
}
