//! Combines all sources and commits their changes to the world.
//!
//! If several sources define an object, the one with the lowest rank takes precedence ([`Aggregate`]). Nothing is
//! committed before every source has sent its complete state, so no proxy receives a partial mesh. Remote sources are
//! waited for only for a limited time ([`Options::patience`]).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use config::{AnyObject, Diagnostic, Kind, MeshConfig, ObjectKey, Observed};
use registry::inputs::MeshSettings;
use server::{Closed, Configuration, WorldHandle};
use sources::aggregate::Aggregate;
use sources::selection::Selection;
use sources::{ChangeSender, SourceChange};
use tokio::sync::{mpsc, watch};
use world::Batch;

use crate::log_diagnostic;

/// The number of queued changes; sources wait when the queue is full.
const QUEUE: usize = 64;
/// The interval at which the log names the awaited sources.
const REMIND: Duration = Duration::from_secs(10);

/// A source, with its name in diagnostics.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    /// Whether the source is remote and may be unavailable: it is waited for only for a limited time.
    pub(super) remote: bool,
}

pub(super) struct Options {
    pub(super) pilot: WorldHandle,
    /// The configuration served to other control planes.
    pub(super) configuration: Configuration,
    /// The mesh settings without a MeshConfig.
    pub(super) defaults: MeshSettings,
    /// How long to wait for remote sources; zero for no limit.
    pub(super) patience: Duration,
    /// Publishes the mesh configuration.
    pub(super) mesh: watch::Sender<Arc<MeshConfig>>,
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
    let intake = Intake {
        selection: Selection::default(),
        all: Aggregate::new(sources.iter().map(|source| source.name.clone())),
        awaited: (0..sources.len()).collect(),
        batch: Batch::new(),
        observed: BTreeMap::new(),
        journal: Journal::default(),
        progress: watch::Sender::new(Progress::default()),
        sources,
        options,
    };
    intake.options.configuration.set_mesh(MeshConfig::default());
    intake.publish(false);
    let progress = intake.progress.subscribe();
    tokio::spawn(intake.run(receiver));
    (senders, progress)
}

struct Intake {
    sources: Vec<Source>,
    options: Options,
    all: Aggregate,
    /// The selected namespaces.
    selection: Selection,
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
        let SourceChange {
            rank,
            mut change,
            replaces,
            complete,
        } = received;
        let name = self.sources[rank].name.clone();
        if complete && self.awaited.remove(&rank) {
            tracing::info!(source = %name, objects = change.upserts.len(), "read");
        }
        self.observed.extend(mem::take(&mut change.observed));
        self.journal
            .write(Some(rank), &name, mem::take(&mut change.diagnostics));
        let merged = match replaces {
            Some(cluster) => self.all.replace(rank, &cluster, change),
            None => self.all.apply(rank, change),
        };
        let mut merged = self.selection.apply(merged, &self.all);
        self.journal.write(None, &name, mem::take(&mut merged.diagnostics));
        if !merged.has_objects() {
            return;
        }
        let configuration = &self.options.configuration;
        configuration.apply(&merged);
        if self.progress.borrow().begun {
            let (upserts, deletes) = (merged.upserts.len(), merged.deletes.len());
            tracing::info!(source = %name, upserts, deletes, "configuration changed");
        }
        for key in &merged.deletes {
            self.remove(key);
        }
        for object in merged.upserts.into_values() {
            self.put(object);
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        if key.kind == Kind::MeshConfig {
            self.options.configuration.set_mesh(MeshConfig::default());
            self.options
                .mesh
                .send_replace(Arc::new(self.options.defaults.config.clone()));
            self.batch.set_mesh(self.options.defaults.clone());
        }
        self.batch.remove(key);
    }

    fn put(&mut self, object: AnyObject) {
        if let AnyObject::MeshConfig(config) = &object {
            self.options.mesh.send_replace(Arc::new(config.spec.clone()));
            for name in config.spec.environment() {
                let value = std::env::var(&*name).ok();
                self.batch.set_environment(name, value);
            }
            self.batch.set_mesh(MeshSettings {
                config: config.spec.clone(),
                ..self.options.defaults.clone()
            });
        }
        self.batch.put(object);
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
        self.awaited
            .iter()
            .map(|rank| self.sources[*rank].name.clone())
            .collect()
    }
}

/// The reported diagnostics, so that each one is logged once.
#[derive(Default)]
struct Journal {
    /// By source (`None` for the merged configuration) and file.
    reported: BTreeMap<(Option<usize>, Arc<str>), Vec<Diagnostic>>,
}

impl Journal {
    fn write(&mut self, rank: Option<usize>, source: &str, reported: BTreeMap<Arc<str>, Vec<Diagnostic>>) {
        for (file, problems) in reported {
            let key = (rank, file);
            let before = self.reported.get(&key).map_or(&[][..], |before| before);
            problems
                .iter()
                .filter(|problem| !before.contains(problem))
                .for_each(log_diagnostic);
            if !problems.is_empty() {
                self.reported.insert(key, problems);
            } else if self.reported.remove(&key).is_some() {
                tracing::info!(source, file = %key.1, "the problems of a file are resolved");
            }
        }
    }
}
