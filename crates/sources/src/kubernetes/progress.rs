//! How far a watched thing is, and what those who operate it are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::request::Trouble;

/// How long a refusal must stand before the others go on without the kind. A server that was just started refuses
/// everybody until it has read its own rules.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// How long a kind may fail before the others, which do not, go on without it. A server that is only slow to start, or
/// overloaded, is over it by then.
const FAILED_FOR: Duration = Duration::from_secs(30);

/// How it stands with the API, for logs, metrics and the readiness page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Whether everything that the server serves, and that we may read, was read once.
    pub synced: bool,
    /// What is waited for until then.
    pub waiting: BTreeSet<String>,
    /// What was never read and is not waited for any more: the others are used without it.
    pub without: BTreeSet<String>,
    /// What we may not read, each with what the server says.
    pub denied: BTreeMap<String, String>,
    /// What cannot be read now, each with the reason; what was there stays.
    pub failing: BTreeMap<String, String>,
    /// How often anything was listed.
    pub lists: u64,
    /// How many objects are known.
    pub objects: usize,
    /// Whether what is in force comes from a snapshot of an earlier life, for the server did not answer yet.
    pub from_snapshot: bool,
    /// Whether a text with the mesh's settings is not valid.
    pub mesh_rejected: bool,
    /// The revision that the tag `default` names, where something stands for that tag.
    pub default_revision: Option<Arc<str>>,
}

/// How far one watched thing is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether it was listed since it is watched.
    pub(crate) synced: bool,
    /// Whether a list is under way.
    pub(crate) listing: bool,
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    trouble: Trouble,
    /// Since when it is this trouble, and since when it is any.
    since: Instant,
    begun: Instant,
}

impl Progress {
    /// Notes that it failed. Whether that is news.
    pub(crate) fn failed(&mut self, trouble: Trouble) -> bool {
        let same = |before: &Failing| std::mem::discriminant(&before.trouble) == std::mem::discriminant(&trouble);
        if self.failing.as_ref().is_some_and(same) {
            return false;
        }
        let since = Instant::now();
        let begun = self.failing.as_ref().map_or(since, |before| before.begun);
        self.failing = Some(Failing { trouble, since, begun });
        true
    }

    /// Notes that it goes well. Whether that is news.
    pub(crate) fn well(&mut self) -> bool {
        self.failing.take().is_some()
    }

    /// Whether others go on without it: it is refused, and has been for a while.
    pub(crate) fn is_excused(&self) -> bool {
        let long = |failing: &Failing| failing.since.elapsed() >= REFUSED_FOR;
        self.is_refused() && self.failing.as_ref().is_some_and(long)
    }

    /// Whether the server says that there is nothing to read, or nothing for us.
    pub(crate) fn is_refused(&self) -> bool {
        let refused = |failing: &Failing| matches!(failing.trouble, Trouble::Denied(_) | Trouble::Missing);
        self.failing.as_ref().is_some_and(refused)
    }

    /// Whether others, if they do not fail, go on without it: it was never read, and has failed for long.
    pub(crate) fn is_stuck(&self) -> bool {
        let long = |failing: &Failing| failing.begun.elapsed() >= FAILED_FOR;
        !self.synced && self.failing.as_ref().is_some_and(long)
    }

    /// Whether nobody waits for it.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.is_excused()
    }

    /// Whether the server does not answer.
    pub(crate) fn is_away(&self) -> bool {
        let away = |failing: &Failing| {
            matches!(
                failing.trouble,
                Trouble::Away(_) | Trouble::Failed(_) | Trouble::Busy(..)
            )
        };
        self.failing.as_ref().is_some_and(away)
    }

    /// Adds it to a report under its name.
    pub(crate) fn report(&self, name: &str, report: &mut Report) {
        if !report.synced && !self.is_settled() {
            report.waiting.insert(name.to_owned());
        } else if report.synced && self.is_stuck() && !self.is_excused() {
            report.without.insert(name.to_owned());
        }
        match self.failing.as_ref().map(|failing| &failing.trouble) {
            Some(Trouble::Denied(message)) => drop(report.denied.insert(name.to_owned(), message.clone())),
            // Not every server has everything, and what is old is being listed.
            Some(Trouble::Missing | Trouble::Gone(_)) | None => {}
            Some(trouble) => drop(report.failing.insert(name.to_owned(), trouble.to_string())),
        }
    }
}

/// Says in the log that a watched thing fails.
pub(crate) fn log(name: &str, trouble: &Trouble, synced: bool) {
    match trouble {
        Trouble::Denied(message) => tracing::error!(
            kind = name,
            "we may not list and watch it: {message}. Without it the others go on; docs/operations/kubernetes.md has the rights that \
             are needed"
        ),
        Trouble::Missing => tracing::debug!(kind = name, "the server does not have it"),
        Trouble::Gone(message) => tracing::info!(kind = name, "it is listed anew: {message}"),
        trouble if synced => tracing::warn!(kind = name, "the Kubernetes API fails: {trouble}; what was there stays"),
        trouble => tracing::warn!(kind = name, "the Kubernetes API fails: {trouble}"),
    }
}
