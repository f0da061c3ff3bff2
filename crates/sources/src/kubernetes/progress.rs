//! The state of watches and the report for operators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::request::RequestError;

/// How long access must be denied before the other kinds stop waiting. A server that has just started denies everything
/// until it has loaded its RBAC rules.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// How long a kind may fail before the other kinds, which do not fail, stop waiting. Enough for a server that is
/// starting or overloaded.
const FAILED_FOR: Duration = Duration::from_secs(30);

/// The state of the source, for logs, metrics and the readiness page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Whether every served and permitted kind was listed once.
    pub synced: bool,
    /// The kinds that are still awaited.
    pub waiting: BTreeSet<String>,
    /// The kinds that were never listed and are no longer awaited.
    pub without: BTreeSet<String>,
    /// The denied kinds, with the server's message.
    pub denied: BTreeMap<String, String>,
    /// The kinds that currently fail, with the error. Their last objects stay in effect.
    pub failing: BTreeMap<String, String>,
    /// The number of lists.
    pub lists: u64,
    /// The number of known objects.
    pub objects: usize,
    /// Whether the objects in effect come from a snapshot, because the server has not answered yet.
    pub from_snapshot: bool,
    /// Whether any mesh configuration text is invalid.
    pub mesh_rejected: bool,
    /// The revision of the tag `default`, if defined.
    pub default_revision: Option<Arc<str>>,
    /// The names of the revision and its tags.
    pub revision_names: BTreeSet<Arc<str>>,
}

/// The state of a watch.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether it was listed.
    pub(crate) synced: bool,
    /// Whether a list is in progress.
    pub(crate) listing: bool,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    error: RequestError,
    /// When this kind of error, and any error, started.
    since: Instant,
    begun: Instant,
}

impl Progress {
    /// Records the end of a list.
    pub(crate) fn listed(&mut self, name: &str) {
        self.listing = false;
        self.synced = true;
        self.recovered(name);
    }

    /// Records an error, and logs it if its kind is new.
    pub(crate) fn failed(&mut self, name: &str, error: RequestError) {
        let same = |before: &Failing| std::mem::discriminant(&before.error) == std::mem::discriminant(&error);
        if self.failing.as_ref().is_some_and(same) {
            return;
        }
        log(name, &error, self.synced);
        let since = Instant::now();
        let begun = self.failing.as_ref().map_or(since, |before| before.begun);
        self.failing = Some(Failing { error, since, begun });
    }

    /// Records success.
    pub(crate) fn recovered(&mut self, name: &str) {
        if self.failing.take().is_some() {
            tracing::info!(kind = name, "the Kubernetes API is available again");
        }
    }

    /// Whether others stop waiting for it, because access has been denied for long enough.
    pub(crate) fn is_excused(&self) -> bool {
        let long = |failing: &Failing| failing.since.elapsed() >= REFUSED_FOR;
        self.is_refused() && self.failing.as_ref().is_some_and(long)
    }

    /// Whether the kind does not exist or access is denied.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = |failing: &Failing| matches!(failing.error, RequestError::Denied(_) | RequestError::NotFound);
        self.failing.as_ref().is_some_and(refused)
    }

    /// Whether others stop waiting for it if they do not fail: it was never listed, and has failed for long.
    pub(crate) fn is_stuck(&self) -> bool {
        let long = |failing: &Failing| failing.begun.elapsed() >= FAILED_FOR;
        !self.synced && self.failing.as_ref().is_some_and(long)
    }

    /// Whether others do not wait for it.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.is_excused()
    }

    /// Whether the server is unavailable.
    pub(crate) fn is_away(&self) -> bool {
        let away = |failing: &Failing| {
            matches!(
                failing.error,
                RequestError::Unavailable(_) | RequestError::ServerError(_) | RequestError::Throttled(..)
            )
        };
        self.failing.as_ref().is_some_and(away)
    }

    /// Adds it to a report.
    pub(crate) fn report(&self, name: &str, report: &mut Report) {
        if !report.synced && !self.is_settled() {
            report.waiting.insert(name.to_owned());
        } else if report.synced && self.is_stuck() && !self.is_excused() {
            report.without.insert(name.to_owned());
        }
        match self.failing.as_ref().map(|failing| &failing.error) {
            Some(RequestError::Denied(message)) => drop(report.denied.insert(name.to_owned(), message.clone())),
            // A missing kind is not an error, and an expired version is being relisted.
            Some(RequestError::NotFound | RequestError::Expired(_)) | None => {}
            Some(error) => drop(report.failing.insert(name.to_owned(), error.to_string())),
        }
    }
}

/// Logs an error.
fn log(name: &str, error: &RequestError, synced: bool) {
    match error {
        RequestError::Denied(message) => tracing::error!(
            kind = name,
            "we may not list and watch it: {message}. Without it the others go on; docs/operations/kubernetes.md has the rights that \
             are needed"
        ),
        RequestError::NotFound => tracing::debug!(kind = name, "the server does not have it"),
        RequestError::Expired(message) => tracing::info!(kind = name, "relisting: {message}"),
        error if synced => tracing::warn!(kind = name, "the Kubernetes API fails: {error}; what was there stays"),
        error => tracing::warn!(kind = name, "the Kubernetes API fails: {error}"),
    }
}
