//! The only writers: statuses and what controllers plan, each by one leader.
//!
//! [`run`] takes what the planner wants to be written and hands it to a [`Writer`], as long as this replica holds a
//! lease ([`Lock`]); [`control`] does the same with what a controller plans and [`Objects`]. They decide nothing about what
//! is written; where objects and leases are kept, the traits say.
//!
//! - At most [`Options::concurrency`] writes are under way, one for each object.
//! - A write that fails for the time being is tried again, later and later, until it succeeds or a newer one replaces it.
//! - Who loses the lease drops what it has not written, and ends what it is writing: the next leader plans anew. No write
//!   begins that could not end before another replica may lead.

mod election;
pub mod lease;
mod term;
mod writing;

pub use election::Always;
pub use lease::{Elector, Lease, Step};

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use controllers::Write;
use status::Intent;
use tokio::sync::{mpsc, watch};

use self::term::Clock;

/// What became of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is written.
    Written,
    /// There is no such object any more: none of this UID.
    Gone,
    /// The object has a newer generation, which will get a status of its own.
    Stale,
    /// Not now, and why: the object was written by somebody else meanwhile, or its home cannot be reached.
    Retry(String),
    /// Never in this form, and why: the object's home does not take it.
    Refused(String),
}

/// Writes statuses.
pub trait Writer: Send + Sync + 'static {
    /// Gives an object the status, if it still has the UID (where the intent has one) and no newer generation. Other
    /// fields of its status stay. It must fail where the object was written since the call began: a request may arrive long
    /// after another replica has taken over.
    fn write(&self, intent: &Intent) -> impl Future<Output = Outcome> + Send;
}

/// Writes objects of any kind.
pub trait Objects: Send + Sync + 'static {
    /// Does what a controller wants. [`Outcome::Stale`]: the object is not any more what the controller saw.
    fn write(&self, write: &Write) -> impl Future<Output = Outcome> + Send;
}

/// A lease that all replicas know.
pub trait Lock: Send + Sync + 'static {
    /// What it is called, for the log.
    fn name(&self) -> &str {
        "status"
    }

    /// Whether other replicas may hold it; where there are none, this one leads and nothing is read or written.
    fn is_shared(&self) -> bool {
        true
    }

    /// The revision of this replica, which goes into the lease.
    fn revision(&self) -> &str {
        ""
    }

    /// Whether replicas of other revisions have to give way to this one now: it is of the default revision.
    fn is_prior(&self) -> bool {
        false
    }

    /// The lease and its version; none: there is none yet.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn read(&self) -> impl Future<Output = Result<Option<(Lease, String)>, String>> + Send;

    /// Writes the lease if it still has this version (none: if it is not there). False: somebody else was first.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn write(&self, lease: &Lease, version: Option<&str>) -> impl Future<Output = Result<bool, String>> + Send;
}

/// How to write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What this replica calls itself in the lease; unique among replicas and restarts.
    pub identity: String,
    /// Writes that are under way at most.
    pub concurrency: usize,
    /// Writes that wait at most; no more are taken until there is room.
    pub backlog: usize,
    /// How long to wait after the first failure; doubled with each further one.
    pub backoff: Duration,
    /// How long to wait at most.
    pub backoff_limit: Duration,
    /// How long a lease is held and how it is renewed.
    pub lease: lease::Terms,
}

impl Options {
    /// The usual ones, for a replica of this name.
    pub fn new(identity: impl Into<String>) -> Options {
        Options {
            identity: identity.into(),
            concurrency: 16,
            backlog: 1024,
            backoff: Duration::from_millis(100),
            backoff_limit: Duration::from_secs(30),
            lease: lease::Terms::default(),
        }
    }
}

/// What was done; shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Stats {
    /// What was written.
    pub written: AtomicU64,
    /// What was dropped because its object went or is newer, or does not take it.
    pub dropped: AtomicU64,
    /// Writes that failed and were tried again.
    pub retried: AtomicU64,
    /// 1 while this replica leads.
    pub leading: AtomicU64,
}

impl Stats {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes what comes in, until `stop` is true or gone. `led` is told whenever this replica begins or ends to lead.
/// The lease is given back at the end.
pub async fn run<W: Writer, L: Lock>(
    intents: mpsc::Receiver<Vec<Intent>>,
    writer: W,
    lock: L,
    options: Options,
    stats: Arc<Stats>,
    led: impl AsyncFnMut(bool),
    stop: watch::Receiver<bool>,
) {
    while_leading(intents, writing::Statuses(writer), lock, options, stats, led, stop).await;
}

/// Writes what a controller plans, until `stop` is true or gone. `led` is told whenever this replica begins or ends to
/// lead: the controller is to plan anew when it begins, for what was planned before is dropped. The lease is given back at
/// the end.
pub async fn control<O: Objects, L: Lock>(
    writes: mpsc::Receiver<Vec<Write>>,
    objects: O,
    lock: L,
    options: Options,
    stats: Arc<Stats>,
    led: impl AsyncFnMut(bool),
    stop: watch::Receiver<bool>,
) {
    while_leading(writes, writing::Controlled(objects), lock, options, stats, led, stop).await;
}

/// Executes jobs while this replica leads.
async fn while_leading<E: writing::Executor, L: Lock>(
    jobs: mpsc::Receiver<Vec<E::Job>>,
    executor: E,
    lock: L,
    options: Options,
    stats: Arc<Stats>,
    led: impl AsyncFnMut(bool),
    stop: watch::Receiver<bool>,
) {
    let (leads, leading) = watch::channel(None);
    let clock = Clock::start();
    let elected = election::run(&lock, &options, clock, &leads, &stats, led, stop.clone());
    let executed = writing::run(jobs, Arc::new(executor), &options, &stats, (clock, leading), stop);
    tokio::join!(elected, executed);
}

/// Waits until `stop` is true or gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody is left who could say so.
    let _ = stop.wait_for(|stop| *stop).await;
}
