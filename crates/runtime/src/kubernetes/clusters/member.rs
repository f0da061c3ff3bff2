//! One remote cluster: its follower, and the previous follower while that is still needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::{ChangeSet, Diagnostic};
use sources::ChangeSender;
use sources::kubernetes::{self, Options, Report};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Event;

/// The number of queued changes of a follower.
const QUEUE: usize = 2;

/// A running follower. Dropping it stops its tasks.
pub(super) struct Running {
    generation: u64,
    report: watch::Receiver<Report>,
    /// Whether it has sent its complete state.
    synced: bool,
    late: bool,
    since: Instant,
    /// The task that forwards the changes. The follower ends after it.
    forwarding: AbortHandle,
    tasks: JoinSet<()>,
}

/// A remote cluster.
pub(super) struct Member {
    /// The Secret that names the cluster.
    pub(super) secret: Arc<str>,
    running: Running,
    /// The follower with the previous kubeconfig, kept until the new one is synced.
    before: Option<Running>,
    /// The objects with diagnostics.
    files: BTreeSet<Arc<str>>,
}

impl Running {
    /// Starts a follower.
    pub(super) fn start(options: Options, generation: u64, events: mpsc::Sender<Event>) -> Running {
        let cluster = options.cluster.clone();
        let (report, reported) = watch::channel(Report::default());
        let (sender, mut changes) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        let span = tracing::info_span!("cluster", id = %cluster);
        tasks.spawn(kubernetes::follow(options, ChangeSender::new(0, sender), report).instrument(span));
        let forwarding = tasks.spawn(async move {
            while let Some(received) = changes.recv().await {
                if events.send(Event::Change(cluster.clone(), generation, received.change)).await.is_err() {
                    return;
                }
            }
        });
        Running { generation, report: reported, synced: false, late: false, since: Instant::now(), forwarding, tasks }
    }

    /// Stops the follower. Returns when it writes no snapshot any more, so that the file can be removed, or written by
    /// another follower.
    async fn stop(mut self) {
        self.forwarding.abort();
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Member {
    /// Adds a cluster.
    pub(super) fn new(secret: Arc<str>, running: Running) -> Member {
        Member { secret, running, before: None, files: BTreeSet::new() }
    }

    /// Replaces the kubeconfig of a cluster. A synced follower is kept until the new one is synced.
    pub(super) async fn replaced(self, secret: Arc<str>, running: Running) -> Member {
        let (before, over) = match self.running.synced {
            true => (Some(self.running), self.before),
            false => (self.before, Some(self.running)),
        };
        if let Some(over) = over {
            over.stop().await;
        }
        Member { secret, running, before, files: self.files }
    }

    /// Whether objects of the cluster are known.
    pub(super) fn knows(&self) -> bool {
        self.running.synced || self.before.is_some()
    }

    /// Processes a change. Returns `None` if it comes from an obsolete follower, and true if it is the first complete
    /// state of the current one.
    pub(super) async fn accept(&mut self, generation: u64, change: &mut ChangeSet) -> Option<bool> {
        let first = match generation {
            of if of == self.running.generation => !std::mem::replace(&mut self.running.synced, true),
            of if self.before.as_ref().is_some_and(|before| before.generation == of) => false,
            _ => return None,
        };
        if first {
            if let Some(before) = self.before.take() {
                before.stop().await;
            }
            // The complete state replaces all earlier diagnostics.
            let over = self.files.iter().filter(|file| !change.diagnostics.contains_key(*file));
            let over: Vec<Arc<str>> = over.cloned().collect();
            change.diagnostics.extend(over.into_iter().map(|file| (file, Vec::new())));
        }
        for (file, diagnostics) in &change.diagnostics {
            match diagnostics.is_empty() {
                true => self.files.remove(file),
                false => self.files.insert(file.clone()),
            };
        }
        Some(first)
    }

    /// Stops following the cluster, and returns an update that clears all diagnostics of its objects.
    pub(super) async fn stop(self) -> BTreeMap<Arc<str>, Vec<Diagnostic>> {
        for running in self.before.into_iter().chain([self.running]) {
            running.stop().await;
        }
        self.files.into_iter().map(|file| (file, Vec::new())).collect()
    }

    /// Whether the cluster has just exceeded the timeout. True only once.
    pub(super) fn is_late(&mut self, timeout: Duration) -> bool {
        let running = &mut self.running;
        let late = !timeout.is_zero() && !running.synced && running.since.elapsed() >= timeout;
        late && !std::mem::replace(&mut running.late, true)
    }

    /// Whether the cluster no longer delays the start.
    pub(super) fn is_settled(&self) -> bool {
        self.running.synced || self.running.late
    }

    /// The status, in istiod's terms.
    pub(super) fn status(&self) -> &'static str {
        match (self.running.report.borrow().synced, self.running.late) {
            (true, _) => "synced",
            (false, true) => "timeout",
            (false, false) => "syncing",
        }
    }

    /// The status of the follower.
    pub(super) fn report(&self) -> Report {
        self.running.report.borrow().clone()
    }
}
