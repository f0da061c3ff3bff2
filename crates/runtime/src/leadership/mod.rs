//! Leader election, and the writes that only the leader does: statuses, and the writes of controllers.
//!
//! [`run`] passes planned writes to a [`Writer`] while this replica holds a lease ([`Lock`]). The traits hide where objects
//! and leases are stored.
//!
//! - At most [`Options::concurrency`] writes are in flight, and at most one per object.
//! - A failed write is retried with exponential backoff, until it succeeds or a newer one replaces it.
//! - A replica that loses the lease drops pending writes and cancels those in flight; the next leader plans again. No write
//!   starts that could not finish before another replica may lead.

mod election;
pub mod lease;
mod term;
mod writing;

pub use election::Always;
pub use lease::{Elector, Lease, Step};
pub(crate) use writing::until;

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::ObjectKey;
use controllers::{Target, Write};
use status::Intent;
use tokio::sync::{mpsc, watch};

use self::term::Clock;

/// The outcome of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The object was written.
    Written,
    /// No object with this UID exists any more.
    Gone,
    /// The object has a newer generation, which will receive a status of its own.
    Stale,
    /// A temporary failure, with the reason: a conflict with another writer, or the API or store is unavailable.
    Retry(String),
    /// A permanent failure, with the reason.
    Refused(String),
}

/// A write that waits to be executed. A newer one for the same object replaces it.
pub trait Job: Clone + Send + Sync + 'static {
    /// The object that is written.
    type Key: Ord + Clone + Display + Send + 'static;

    /// The object that is written.
    fn key(&self) -> &Self::Key;
}

impl Job for Intent {
    type Key = ObjectKey;

    fn key(&self) -> &ObjectKey {
        &self.key
    }
}

impl Job for Write {
    type Key = Target;

    fn key(&self) -> &Target {
        &self.target
    }
}

/// Executes writes of statuses ([`Intent`]) or of controllers ([`Write`]).
pub trait Writer<J: Job>: Send + Sync + 'static {
    /// Executes a write, if the object has the UID of the job (unless that is empty) and is not newer. Fields of others are
    /// preserved. The write must fail if the object was written since the call began, because a request may arrive long
    /// after another replica has taken over.
    fn write(&self, job: &J) -> impl Future<Output = Outcome> + Send;
}

/// The lease cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// There was no answer in time.
    #[error("timed out")]
    TimedOut,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The Kubernetes API failed.
    #[error("{}", message(.0))]
    Kubernetes(#[from] kube::Error),
}

/// The server's error message, or else the client's.
fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

/// A lease that all replicas share.
pub trait Lock: Send + Sync + 'static {
    /// The name of the lease, for the log.
    fn name(&self) -> &str {
        "status"
    }

    /// Whether other replicas may hold the lease. If not, this replica always leads and the lease is neither read nor
    /// written.
    fn is_shared(&self) -> bool {
        true
    }

    /// The revision of this replica, which is stored in the lease.
    fn revision(&self) -> &str {
        ""
    }

    /// Whether this replica has the default revision, which takes the lease from other revisions.
    fn is_prior(&self) -> bool {
        false
    }

    /// Reads the lease and its resource version; `None` if it does not exist.
    ///
    /// # Errors
    /// The lease cannot be read.
    fn read(&self) -> impl Future<Output = Result<Option<(Lease, String)>, LockError>> + Send;

    /// Writes the lease if it has this resource version (`None`: if it does not exist). Returns false on a conflict.
    ///
    /// # Errors
    /// The lease cannot be written.
    fn write(&self, lease: &Lease, version: Option<&str>) -> impl Future<Output = Result<bool, LockError>> + Send;
}

/// Settings of the writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The identity of this replica in the lease; unique across replicas and restarts.
    pub identity: String,
    /// The maximum number of writes in flight.
    pub concurrency: usize,
    /// The maximum number of pending writes. The channel is not read while it is reached.
    pub backlog: usize,
    /// The backoff after the first failure. It doubles with each further one.
    pub backoff: Duration,
    /// The maximum backoff.
    pub backoff_limit: Duration,
    /// The duration and renewal of the lease.
    pub lease: lease::Terms,
}

impl Options {
    /// The default settings for a replica with this identity.
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

/// Statistics of a writer.
#[derive(Debug, Default)]
pub struct Stats {
    /// Successful writes.
    pub written: AtomicU64,
    /// Writes dropped because the object was deleted, is newer or rejected them.
    pub dropped: AtomicU64,
    /// Writes that failed and were retried.
    pub retried: AtomicU64,
    /// 1 while this replica leads.
    pub leading: AtomicU64,
}

impl Stats {
    fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Executes jobs while this replica leads, until `stop` is true or closed. Calls `led` when this replica starts or stops
/// leading; jobs must then be planned again, because earlier ones are dropped. Releases the lease at the end.
pub async fn run<J: Job, L: Lock>(
    jobs: mpsc::Receiver<Vec<J>>,
    writer: impl Writer<J>,
    lock: L,
    options: Options,
    stats: Arc<Stats>,
    led: impl AsyncFnMut(bool),
    stop: watch::Receiver<bool>,
) {
    let (leads, leading) = watch::channel(None);
    let clock = Clock::start();
    let elected = election::run(&lock, &options, clock, &leads, &stats, led, stop.clone());
    let executed = writing::run(jobs, Arc::new(writer), &options, &stats, (clock, leading), stop);
    tokio::join!(elected, executed);
}

/// Waits until `stop` is true or closed.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}
