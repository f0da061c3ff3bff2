//! The state of an API: its store, options, caches and counters.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use config::Timestamp;
use store::{Store, Stored};
use tokio::sync::watch;

use crate::access::Access;
use crate::cluster_ips::ServiceRange;
use crate::crds;
use crate::events::Lines;
use crate::metrics::{Metrics, Snapshot};
use crate::places::Places;

/// Limits of an [`Api`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum size of an object, in bytes.
    pub object: usize,
    /// Maximum size of a request body, in bytes.
    pub body: usize,
    /// Maximum number of open watches. Administrators have a tenth in addition.
    pub watches: usize,
    /// Maximum number of open watches of a user.
    pub watches_per_user: usize,
    /// Maximum size of the cache of encoded watch events, in bytes.
    pub lines: usize,
    /// Interval of watch bookmarks.
    pub bookmarks: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            object: 3 << 19,
            body: 3 << 20,
            watches: 10_000,
            watches_per_user: 1000,
            lines: 16 << 20,
            bookmarks: Duration::from_secs(30),
        }
    }
}

/// Options of an [`Api`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Users and roles.
    pub access: Access,
    /// Limits.
    pub limits: Limits,
    /// Clock.
    pub now: fn() -> SystemTime,
    /// Version of the program, for example `0.1.0`.
    pub version: &'static str,
    /// The cluster's DNS domain, for references to short names of services.
    pub domain: Arc<str>,
    /// The ranges from which Services get cluster IPs, at most one of each family. If there is none, Services get no
    /// addresses.
    pub service_ranges: Vec<ServiceRange>,
    /// The reason for which clients may only read, if so: `its objects are read from …`. The namespaces that every store has are not
    /// created then, and there is no housekeeping.
    pub read_only: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            access: Access::default(),
            limits: Limits::default(),
            now: SystemTime::now,
            version: env!("CARGO_PKG_VERSION"),
            domain: "cluster.local".into(),
            service_ranges: Vec::new(),
            read_only: None,
        }
    }
}

/// The REST API of a store. Cheap to clone.
#[derive(Clone)]
pub struct Api(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub options: Options,
    pub lines: Lines,
    pub metrics: Metrics,
    pub watches: Places,
    /// The built-in CRDs as objects, by name.
    pub crds: Vec<Stored>,
    /// Becomes true on shutdown, which ends watches.
    pub stop: watch::Sender<bool>,
}

impl Api {
    /// Creates the API of a store.
    pub fn new(store: Arc<dyn Store>, options: Options) -> Api {
        let started = timestamp((options.now)());
        Api(Arc::new(Inner {
            store,
            lines: Lines::new(options.limits.lines),
            metrics: Metrics::default(),
            watches: Places::new(options.limits.watches, options.limits.watches_per_user),
            crds: crds::objects(started),
            stop: watch::Sender::new(false),
            options,
        }))
    }

    /// The request counters.
    pub fn metrics(&self) -> Snapshot {
        self.0.metrics.snapshot()
    }

    /// Ends all watches before a shutdown. Clients reconnect to another replica.
    pub fn end_watches(&self) {
        self.0.stop.send_replace(true);
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.0.options.read_only.is_some()
    }

    pub(crate) fn now(&self) -> Timestamp {
        timestamp((self.0.options.now)())
    }
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Timestamp::from_unix(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Waits for the shutdown signal.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A closed channel also means shutdown.
    let _ = stop.wait_for(|stop| *stop).await;
}
