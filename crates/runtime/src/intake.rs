//! All sources as one: what each of them says goes in, what is committed comes out.
//!
//! Where two sources define an object, the one that comes first holds ([`Aggregate`]). Nothing is committed before every
//! source has said all that it has, so that no proxy is told of half a mesh; sources elsewhere may be gone on without
//! after a while ([`Options::patience`]).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::log_diagnostic;
use crate::objects::Listener;
use config::{AnyObject, Diagnostic, Kind, MeshConfig, ObjectKey};
use registry::inputs::MeshSettings;
use server::{Closed, Configuration, Observation, WorldHandle};
use sources::Change;
use sources::aggregate::Aggregate;
use sources::selection::Selection;
use tokio::sync::{mpsc, watch};
use world::Batch;

/// Changes that may wait; their sources wait when there are more.
const QUEUE: usize = 64;
/// How often the log says what is waited for.
const REMIND: Duration = Duration::from_secs(10);

/// A source, by what it is called in diagnostics.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: Arc<str>,
    /// Whether it may be away, so that in the end it is gone on without.
    pub(super) elsewhere: bool,
}

/// What is done with what the sources say.
pub(super) struct Options {
    pub(super) pilot: WorldHandle,
    /// What other control planes may read.
    pub(super) configuration: Configuration,
    /// The settings of the mesh that hold without a MeshConfig.
    pub(super) defaults: MeshSettings,
    /// How long sources elsewhere are waited for; zero: for as long as it takes.
    pub(super) patience: Duration,
    /// Tells the mesh configuration to others.
    pub(super) mesh: watch::Sender<Arc<MeshConfig>>,
}

/// Where one source says what it has.
#[derive(Clone)]
pub(super) struct Voice {
    place: usize,
    said: mpsc::Sender<Said>,
}

struct Said {
    place: usize,
    change: Change,
    observed: Vec<Observation>,
    /// The cluster of which the change names everything; none: it names what changed.
    whole: Option<Arc<str>>,
    /// Whether more is to come before the source has said everything that it has.
    more: bool,
}

/// How far it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The sources that have not said everything yet.
    pub(super) awaited: Vec<Arc<str>>,
    /// Whether the first commit was made.
    pub(super) begun: bool,
}

impl Voice {
    /// Hands on a change, the first time one with everything; and what is to be told of its objects. Waits while the
    /// queue is full; fails when the control plane is shutting down.
    pub(super) async fn say(&self, change: Change, observed: Vec<Observation>) -> Result<(), Closed> {
        self.said.send(self.said(change, observed)).await.map_err(|_| Closed)
    }

    /// Hands on a part of what is to be said the first time; or, of a source that has spoken, what changed.
    pub(super) async fn say_part(&self, change: Change) -> Result<(), Closed> {
        let said = Said {
            more: true,
            ..self.said(change, Vec::new())
        };
        self.said.send(said).await.map_err(|_| Closed)
    }

    /// The same with everything that there is of a cluster: what this source said of it before and is not named is gone.
    pub(super) async fn say_all_of(&self, cluster: &Arc<str>, change: Change) -> Result<(), Closed> {
        let said = Said {
            whole: Some(cluster.clone()),
            more: true,
            ..self.said(change, Vec::new())
        };
        self.said.send(said).await.map_err(|_| Closed)
    }

    /// The same from a thread that may block.
    pub(super) fn say_blocking(&self, change: Change) -> Result<(), Closed> {
        self.said
            .blocking_send(self.said(change, Vec::new()))
            .map_err(|_| Closed)
    }

    fn said(&self, change: Change, observed: Vec<Observation>) -> Said {
        Said {
            place: self.place,
            change,
            observed,
            whole: None,
            more: false,
        }
    }
}

impl Listener for Voice {
    async fn say(&self, change: Change, observed: Vec<Observation>) -> Result<(), Closed> {
        Voice::say(self, change, observed).await
    }
}

/// Joins these sources, of which the first holds, in a task of its own. Returns each one's voice, in the same order.
pub(super) fn start(sources: Vec<Source>, options: Options) -> (Vec<Voice>, watch::Receiver<Progress>) {
    let (said, receiver) = mpsc::channel(QUEUE);
    let voices = (0..sources.len()).map(|place| Voice {
        place,
        said: said.clone(),
    });
    let voices = voices.collect();
    let intake = Intake {
        selection: Selection::default(),
        all: Aggregate::new(sources.iter().map(|source| source.name.clone())),
        awaited: (0..sources.len()).collect(),
        batch: Batch::new(),
        observed: Vec::new(),
        journal: Journal::default(),
        progress: watch::Sender::new(Progress::default()),
        sources,
        options,
    };
    intake.options.configuration.set_mesh(MeshConfig::default());
    intake.publish(false);
    let progress = intake.progress.subscribe();
    tokio::spawn(intake.run(receiver));
    (voices, progress)
}

struct Intake {
    sources: Vec<Source>,
    options: Options,
    all: Aggregate,
    /// The namespaces that the mesh sees.
    selection: Selection,
    awaited: BTreeSet<usize>,
    /// What is to be committed next.
    batch: Batch,
    observed: Vec<Observation>,
    journal: Journal,
    progress: watch::Sender<Progress>,
}

impl Intake {
    async fn run(mut self, mut said: mpsc::Receiver<Said>) {
        if self.gather(&mut said).await.is_none() {
            return;
        }
        let mut taken = Vec::new();
        loop {
            if self.commit().await.is_err() {
                return;
            }
            self.publish(true);
            // What came while that was committed goes together.
            if said.recv_many(&mut taken, QUEUE).await == 0 {
                return;
            }
            taken.drain(..).for_each(|said| self.take(said));
        }
    }

    /// Until every source has said what it has, or nobody is waited for any more. None: the sources ended before.
    async fn gather(&mut self, said: &mut mpsc::Receiver<Said>) -> Option<()> {
        let patience = self.options.patience;
        let end = tokio::time::sleep(patience);
        tokio::pin!(end);
        let mut waits = !patience.is_zero();
        let mut reminders = tokio::time::interval(REMIND);
        reminders.tick().await;
        while !self.awaited.is_empty() {
            tokio::select! {
                one = said.recv() => self.take(one?),
                () = &mut end, if waits => waits = false,
                _ = reminders.tick() => tracing::warn!("waiting for {}", self.awaited().join(", ")),
            }
            self.publish(false);
            let elsewhere = self.awaited.iter().all(|place| self.sources[*place].elsewhere);
            if elsewhere && !waits && !patience.is_zero() && !self.awaited.is_empty() {
                tracing::error!(
                    "serving without {}, which did not answer within {patience:?} (--source-timeout); what they have is taken \
                     in when they answer",
                    self.awaited().join(", ")
                );
                return Some(());
            }
        }
        Some(())
    }

    fn take(&mut self, said: Said) {
        let Said {
            place,
            mut change,
            observed,
            whole,
            more,
        } = said;
        let name = self.sources[place].name.clone();
        if !more && self.awaited.remove(&place) {
            tracing::info!(source = %name, objects = change.upserts.len(), "read");
        }
        self.observed.extend(observed);
        self.journal
            .write(Some(place), &name, mem::take(&mut change.diagnostics));
        let whole = match whole {
            Some(cluster) => self.all.replace(place, &cluster, change),
            None => self.all.apply(place, change),
        };
        let whole = self.selection.apply(whole, self.all.objects());
        self.journal.write(None, &name, whole.diagnostics);
        if whole.upserts.is_empty() && whole.deletes.is_empty() {
            return;
        }
        let configuration = &self.options.configuration;
        configuration.apply(&whole.upserts, &whole.deletes);
        if self.progress.borrow().begun {
            let (upserts, deletes) = (whole.upserts.len(), whole.deletes.len());
            tracing::info!(source = %name, upserts, deletes, "configuration changed");
        }
        for key in &whole.deletes {
            self.remove(key);
        }
        for object in whole.upserts {
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
            .map(|place| self.sources[*place].name.clone())
            .collect()
    }
}

/// What was said of which file, so that each thing is logged once.
#[derive(Default)]
struct Journal {
    /// By source (none: of the whole) and file.
    said: BTreeMap<(Option<usize>, Arc<str>), Vec<Diagnostic>>,
}

impl Journal {
    fn write(&mut self, place: Option<usize>, source: &str, said: BTreeMap<Arc<str>, Vec<Diagnostic>>) {
        for (file, problems) in said {
            let key = (place, file);
            let before = self.said.get(&key).map_or(&[][..], |before| before);
            problems
                .iter()
                .filter(|problem| !before.contains(problem))
                .for_each(log_diagnostic);
            if !problems.is_empty() {
                self.said.insert(key, problems);
            } else if self.said.remove(&key).is_some() {
                tracing::info!(source, file = %key.1, "nothing is wrong any more");
            }
        }
    }
}
