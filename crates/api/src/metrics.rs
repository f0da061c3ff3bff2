//! Request counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The labels of a series. All values come from closed sets, so that clients cannot create series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Series {
    /// `get`, `list`, …; `other` for requests that do not concern objects.
    pub verb: &'static str,
    /// The plural name of the type; empty for requests that do not concern objects.
    pub resource: &'static str,
    /// The HTTP status code.
    pub code: u16,
}

/// The counters of a series.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Requests {
    /// Number of requests.
    pub count: u64,
    /// Total duration in seconds; for watches until the response starts.
    pub seconds: f64,
}

/// Counters of an [`Api`](crate::Api).
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Series, Requests>>,
    watches: AtomicU64,
    events: AtomicU64,
    dropped: AtomicU64,
    limited: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// Completed requests.
    pub requests: Vec<(Series, Requests)>,
    /// Open watches.
    pub watches: u64,
    /// Events sent to watchers.
    pub events: u64,
    /// Watches closed because they fell behind.
    pub watches_dropped: u64,
    /// Requests rejected because of a limit.
    pub limited: u64,
}

impl Metrics {
    /// A snapshot of all counters.
    pub fn snapshot(&self) -> Snapshot {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            requests: requests.iter().map(|(series, requests)| (series.clone(), *requests)).collect(),
            watches: self.watches.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
            watches_dropped: self.dropped.load(Ordering::Relaxed),
            limited: self.limited.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn answered(&self, series: Series, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = requests.entry(series).or_default();
        requests.count += 1;
        requests.seconds += took.as_secs_f64();
    }

    pub(crate) fn watch_opened(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_closed(&self) {
        self.watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn event_sent(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn limited(&self) {
        self.limited.fetch_add(1, Ordering::Relaxed);
    }
}
