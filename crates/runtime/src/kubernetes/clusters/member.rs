//! One cluster: its follower, and the one before it while that is still needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::ChangeSet;
use config::Diagnostic;
use sources::ChangeSender;
use sources::kubernetes::{self, Options, Report};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Event;

/// Changes that may wait in a follower.
const QUEUE: usize = 2;

/// A follower that runs. It ends when this goes.
pub(super) struct Running {
    generation: u64,
    report: watch::Receiver<Report>,
    /// Whether it has said everything once.
    told: bool,
    late: bool,
    since: Instant,
    _tasks: JoinSet<()>,
}

/// A cluster.
pub(super) struct Member {
    /// The Secret that names it.
    pub(super) secret: Arc<str>,
    running: Running,
    /// The follower by the kubeconfig before, until the new one has said everything.
    before: Option<Running>,
    /// Of which objects something is wrong.
    files: BTreeSet<Arc<str>>,
}

impl Running {
    /// Begins to follow.
    pub(super) fn start(options: Options, generation: u64, events: mpsc::Sender<Event>) -> Running {
        let cluster = options.cluster.clone();
        let (report, reported) = watch::channel(Report::default());
        let (sender, mut changes) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let span = tracing::info_span!("cluster", id = %cluster);
        tasks.spawn(kubernetes::follow(options, ChangeSender::new(0, sender), report).instrument(span));
        tasks.spawn(async move {
            while let Some(received) = changes.recv().await {
                if events
                    .send(Event::Change(cluster.clone(), generation, received.change))
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        Running {
            generation,
            report: reported,
            told: false,
            late: false,
            since: Instant::now(),
            _tasks: tasks,
        }
    }
}

impl Member {
    /// A cluster that is new.
    pub(super) fn new(secret: Arc<str>, running: Running) -> Member {
        Member {
            secret,
            running,
            before: None,
            files: BTreeSet::new(),
        }
    }

    /// The same cluster by another kubeconfig. The follower that has something goes on until the new one has it, too.
    pub(super) fn replaced(self, secret: Arc<str>, running: Running) -> Member {
        Member {
            secret,
            running,
            before: Some(self.running).filter(|running| running.told).or(self.before),
            files: self.files,
        }
    }

    /// Whether something is known of it.
    pub(super) fn knows(&self) -> bool {
        self.running.told || self.before.is_some()
    }

    /// Takes in what a follower said. None: it does not count any more; true: it is everything, for the first time.
    pub(super) fn hear(&mut self, generation: u64, change: &mut ChangeSet) -> Option<bool> {
        let first = match generation {
            of if of == self.running.generation => !std::mem::replace(&mut self.running.told, true),
            of if self.before.as_ref().is_some_and(|before| before.generation == of) => false,
            _ => return None,
        };
        if first {
            self.before = None;
            // What was said of objects before is said again, or is over.
            let over = self.files.iter().filter(|file| !change.diagnostics.contains_key(*file));
            let over: Vec<Arc<str>> = over.cloned().collect();
            change
                .diagnostics
                .extend(over.into_iter().map(|file| (file, Vec::new())));
        }
        for (file, said) in &change.diagnostics {
            match said.is_empty() {
                true => self.files.remove(file),
                false => self.files.insert(file.clone()),
            };
        }
        Some(first)
    }

    /// What takes back all that was said of its objects.
    pub(super) fn taken_back(self) -> BTreeMap<Arc<str>, Vec<Diagnostic>> {
        self.files.into_iter().map(|file| (file, Vec::new())).collect()
    }

    /// Whether it is just now that it has kept others waiting for too long.
    pub(super) fn is_late(&mut self, timeout: Duration) -> bool {
        let running = &mut self.running;
        let late = !timeout.is_zero() && !running.told && running.since.elapsed() >= timeout;
        late && !std::mem::replace(&mut running.late, true)
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_settled(&self) -> bool {
        self.running.told || self.running.late
    }

    /// As istiod says how it stands.
    pub(super) fn status(&self) -> &'static str {
        match (self.running.report.borrow().synced, self.running.late) {
            (true, _) => "synced",
            (false, true) => "timeout",
            (false, false) => "syncing",
        }
    }

    /// How its follower stands.
    pub(super) fn report(&self) -> Report {
        self.running.report.borrow().clone()
    }
}
