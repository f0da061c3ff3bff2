//! Combines all sources and commits their changes to the world.
//!
//! If several sources define an object, the one with the lowest rank takes precedence ([`registry::tables`]). Nothing is
//! committed before every source has sent its complete state, so no proxy receives a partial mesh. Remote sources are
//! waited for only for a limited time ([`Options::patience`]).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use config::{AnyObject, ChangeSet, Diagnostic, MeshConfig, ObjectKey, Observed};
use registry::tables::Rank;
use server::{Closed, WorldHandle, log_diagnostics};
use sources::{ChangeSender, SourceChange};
use tokio::sync::{mpsc, watch};
use world::Batch;

use crate::changed::Changed;

/// The number of queued changes; sources wait when the queue is full.
const QUEUE: usize = 64;
/// The interval at which the log names the awaited sources.
const REMIND: Duration = Duration::from_secs(10);
/// The number of files of a change that are logged as resolved.
const RESOLVED_SHOWN: usize = 20;

/// A source, with its name in diagnostics.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    /// Whether the source is remote and may be unavailable: it is waited for only for a limited time.
    pub(super) remote: bool,
}

pub(super) struct Options {
    pub(super) pilot: WorldHandle,
    /// How long to wait for remote sources; zero for no limit.
    pub(super) patience: Duration,
}

/// The progress of the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The sources that have not sent their complete state.
    pub(super) awaited: Vec<Arc<str>>,
    /// Whether the first commit was made.
    pub(super) begun: bool,
}

/// Starts the intake of these sources, in order of rank. Returns their senders, in the same order.
pub(super) fn start(sources: Vec<Source>, options: Options) -> (Vec<ChangeSender>, watch::Receiver<Progress>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let senders = (0..sources.len()).map(|rank| ChangeSender::new(rank, sender.clone()));
    let senders = senders.collect();
    let mut batch = Batch::new();
    for (rank, source) in (0..).zip(&sources) {
        batch.set_source(Rank(rank), source.name.clone());
    }
    let intake = Intake {
        awaited: (0..sources.len()).collect(),
        batch,
        observed: BTreeMap::new(),
        journal: Journal::default(),
        progress: watch::Sender::new(Progress::default()),
        sources,
        options,
    };
    intake.publish(false);
    let progress = intake.progress.subscribe();
    tokio::spawn(intake.run(receiver));
    (senders, progress)
}

struct Intake {
    sources: Vec<Source>,
    options: Options,
    awaited: BTreeSet<usize>,
    /// The changes of the next commit.
    batch: Batch,
    observed: BTreeMap<ObjectKey, Option<Observed>>,
    journal: Journal,
    progress: watch::Sender<Progress>,
}

impl Intake {
    async fn run(mut self, mut received: mpsc::Receiver<SourceChange>) {
        if self.wait_for_sources(&mut received).await.is_none() {
            return;
        }
        let mut taken = Vec::new();
        loop {
            if self.commit().await.is_err() {
                return;
            }
            self.publish(true);
            // Changes that arrived during the commit are committed together.
            if received.recv_many(&mut taken, QUEUE).await == 0 {
                return;
            }
            taken.drain(..).for_each(|change| self.take(change));
        }
    }

    /// Waits until every source has sent its complete state, or the timeout has passed. `None` if the sources ended.
    async fn wait_for_sources(&mut self, received: &mut mpsc::Receiver<SourceChange>) -> Option<()> {
        let patience = self.options.patience;
        let end = tokio::time::sleep(patience);
        tokio::pin!(end);
        let mut waits = !patience.is_zero();
        let mut reminders = tokio::time::interval(REMIND);
        reminders.tick().await;
        while !self.awaited.is_empty() {
            tokio::select! {
                change = received.recv() => self.take(change?),
                () = &mut end, if waits => waits = false,
                _ = reminders.tick() => tracing::warn!("waiting for {}", self.awaited().join(", ")),
            }
            self.publish(false);
            let remote = self.awaited.iter().all(|rank| self.sources[*rank].remote);
            if remote && !waits && !patience.is_zero() && !self.awaited.is_empty() {
                tracing::error!(
                    "serving without {}, which did not answer within {patience:?} (--source-timeout); their objects are \
                     added when they answer",
                    self.awaited().join(", ")
                );
                return Some(());
            }
        }
        Some(())
    }

    fn take(&mut self, received: SourceChange) {
        let SourceChange { rank, mut change, replaces, complete } = received;
        let name = self.sources[rank].name.clone();
        if complete && self.awaited.remove(&rank) {
            tracing::info!(source = %name, objects = change.upserts.len(), "read");
        }
        for (key, observed) in &change.observed {
            let rejected = observed.as_ref().filter(|one| one.diagnostics.iter().any(Diagnostic::is_error));
            self.batch.set_refused(key, rejected.map(|one| &*one.parents));
        }
        self.observed.extend(mem::take(&mut change.observed));
        self.journal.write(rank, &name, mem::take(&mut change.diagnostics));
        if self.progress.borrow().begun && (change.has_objects() || replaces.is_some()) {
            let (upserts, deletes) = (change.upserts.len(), change.deletes.len());
            tracing::info!(source = %name, upserts, deletes, changed = %Changed(&change), "configuration changed");
        }
        self.set_environment(&change);
        let rank = Rank(u16::try_from(rank).unwrap_or(u16::MAX));
        match replaces {
            Some(cluster) => self.batch.replace(rank, cluster, change),
            None => self.batch.apply(rank, change),
        }
    }

    /// Adds the environment variables that a mesh configuration refers to.
    fn set_environment(&mut self, change: &ChangeSet) {
        if let Some(AnyObject::MeshConfig(config)) = change.upserts.get(&MeshConfig::key()) {
            for name in config.spec.environment() {
                let value = std::env::var(&*name).ok();
                self.batch.set_environment(name, value);
            }
        }
    }

    async fn commit(&mut self) -> Result<(), Closed> {
        let (batch, observed) = (mem::take(&mut self.batch), mem::take(&mut self.observed));
        if batch.is_empty() && observed.is_empty() {
            return Ok(());
        }
        self.options.pilot.commit_observed(batch, observed).await
    }

    fn publish(&self, begun: bool) {
        let awaited = self.awaited();
        self.progress.send_if_modified(|progress| {
            let differs = progress.begun != begun || progress.awaited != awaited;
            *progress = Progress { awaited, begun };
            differs
        });
    }

    fn awaited(&self) -> Vec<Arc<str>> {
        self.awaited.iter().map(|rank| self.sources[*rank].name.clone()).collect()
    }
}

/// The reported diagnostics, so that each one is logged once.
#[derive(Default)]
struct Journal {
    /// By source and file.
    reported: BTreeMap<(usize, Arc<str>), Vec<Diagnostic>>,
}

impl Journal {
    fn write(&mut self, rank: usize, source: &str, reported: BTreeMap<Arc<str>, Vec<Diagnostic>>) {
        let mut resolved = 0;
        log_diagnostics(reported.iter().flat_map(|(file, problems)| {
            let before = self.reported.get(&(rank, file.clone())).map_or(&[][..], |before| before);
            let before: BTreeSet<&Diagnostic> = before.iter().collect();
            problems.iter().filter(move |problem| !before.contains(problem))
        }));
        for (file, problems) in reported {
            let key = (rank, file);
            if !problems.is_empty() {
                self.reported.insert(key, problems);
            } else if self.reported.remove(&key).is_some() {
                resolved += 1;
                if resolved <= RESOLVED_SHOWN {
                    tracing::info!(source, file = %key.1, "the problems of a file are resolved");
                }
            }
        }
        if resolved > RESOLVED_SHOWN {
            tracing::info!(source, files = resolved - RESOLVED_SHOWN, "the problems of more files are resolved");
        }
    }
}
