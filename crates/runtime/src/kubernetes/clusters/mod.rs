//! The other clusters of the mesh. Each is read for as long as a Secret names it.
//!
//! One task ([`Fleet`]) watches the Secrets and runs one follower per cluster. The last known state of a cluster stays
//! in effect while the cluster is unavailable or a new kubeconfig does not work. It is dropped when no Secret names the
//! cluster any more. A cluster that does not respond delays the start for at most [`Options::timeout`].

mod files;
mod member;
mod options;
mod reading;
mod show;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use config::ChangeSet;
use controllers::{Resource, Watched};
use kube::Client;
use server::ServingStatus;
use sources::clusters::{LABEL, Secrets, Step};
use sources::kubernetes::{Report, Seen};
use sources::{ChangeSender, Closed};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::watched;
use member::{Member, Running};

pub(super) use options::Options;

/// The number of queued events; senders wait when the queue is full.
const QUEUE: usize = 64;
/// How long a 403 for Secrets counts as temporary at the start, as for any other kind.
const DENIED: Duration = Duration::from_secs(3);
/// The interval of timeout checks and status updates.
const TICK: Duration = Duration::from_millis(500);

/// The receivers of what the fleet reads.
pub(super) struct Listeners {
    /// Receives the changes.
    pub(super) changes: ChangeSender,
    /// Publishes the status.
    pub(super) serving_status: ServingStatus,
    /// The clusters and Secrets that are not synced yet, as text.
    pub(super) awaited: watch::Sender<String>,
    /// The connections to the followed clusters, by id.
    pub(super) ways: watch::Sender<Ways>,
}

/// The connections to the followed clusters, by id.
pub(crate) type Ways = BTreeMap<Arc<str>, Way>;

/// A connection to a cluster.
#[derive(Clone)]
pub(crate) struct Way {
    /// Distinguishes successive connections to the same cluster.
    pub(crate) number: u64,
    pub(crate) client: Client,
}

/// An event of the fleet.
enum Event {
    /// A change of a Secret, or the end of the initial list.
    Secret(Seen),
    /// All kubeconfigs of the directory.
    Files(files::Files),
    /// The directory cannot be read, with the reason.
    Failing(String),
    /// A change from the follower of a cluster, with its generation.
    Change(Arc<str>, u64, ChangeSet),
}

/// Follows the clusters that the Secrets of this API name, until the control plane ends.
pub(super) async fn run(client: Client, options: Options, listeners: Listeners, home: watch::Receiver<Report>) {
    let (sender, mut events) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    match options.directory.clone() {
        Some(directory) => drop(tasks.spawn(files::watch(directory, sender.clone()))),
        None => watch_secrets(client, &options.namespace, &sender, &mut tasks),
    }
    let mut fleet = Fleet::new(options, listeners, home, sender);
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let (done, shows) = tokio::select! {
            Some(event) = events.recv() => (fleet.take(event).await, !fleet.begun),
            // The status is updated once per tick, because its cost grows with the number of clusters.
            _ = ticks.tick() => (fleet.tick().await, true),
        };
        if done.is_err() || fleet.begin().await.is_err() {
            return;
        }
        if shows {
            fleet.show();
        }
    }
}

/// Watches the Secrets that name clusters.
fn watch_secrets(client: Client, namespace: &str, events: &mpsc::Sender<Event>, tasks: &mut JoinSet<()>) {
    let secrets = Watched::all(Resource::SECRET).within(namespace).labelled(&format!("{LABEL}=true"));
    tasks.spawn(watched::follow(client, secrets, events.clone(), Event::Secret));
}

/// The remote clusters.
struct Fleet {
    options: Options,
    listeners: Listeners,
    home: watch::Receiver<Report>,
    events: mpsc::Sender<Event>,
    secrets: Secrets<Client>,
    /// Whether the Secrets were listed. If they cannot be read, `trouble` has the reason.
    listed: bool,
    trouble: Option<String>,
    /// Whether the API denies access to Secrets.
    denied: bool,
    /// The errors of rejected Secrets, as text.
    refused: BTreeMap<Arc<str>, Vec<String>>,
    members: BTreeMap<Arc<str>, Member>,
    /// The clusters served from snapshots of an earlier run, until the Secrets are listed. `None` if the snapshots were
    /// not read.
    remembered: Option<BTreeSet<Arc<str>>>,
    /// The number of followers started so far.
    generation: u64,
    begun: bool,
    since: Instant,
}

impl Fleet {
    fn new(
        options: Options,
        listeners: Listeners,
        home: watch::Receiver<Report>,
        events: mpsc::Sender<Event>,
    ) -> Fleet {
        Fleet {
            secrets: match &options.directory {
                Some(directory) => Secrets::new(&format!("{}/", directory.display()), &options.home),
                None => Secrets::new(&format!("Secret {}/", options.namespace), &options.home),
            },
            options,
            listeners,
            home,
            events,
            listed: false,
            trouble: None,
            denied: false,
            refused: BTreeMap::new(),
            members: BTreeMap::new(),
            remembered: None,
            generation: 0,
            begun: false,
            since: Instant::now(),
        }
    }

    async fn take(&mut self, event: Event) -> Result<(), Closed> {
        match event {
            Event::Secret(Seen::Applied(object)) => {
                reading::secret(&mut self.secrets, &object, self.options.allowed).await;
                if self.listed {
                    return self.settle().await;
                }
                Ok(())
            }
            Event::Secret(Seen::Deleted(object)) => {
                self.secrets.remove(object["metadata"]["name"].as_str().unwrap_or_default());
                self.settle().await
            }
            Event::Secret(Seen::Synced) => self.all_known().await,
            Event::Files(files) => {
                reading::files(&mut self.secrets, files, self.options.allowed).await;
                self.all_known().await
            }
            Event::Failing(why) => {
                self.trouble = Some(why);
                Ok(())
            }
            Event::Secret(Seen::Failing { why, denied }) => {
                self.trouble = Some(why);
                self.denied = denied;
                Ok(())
            }
            Event::Change(cluster, generation, change) => self.accept(&cluster, generation, change).await,
        }
    }

    /// Handles that all Secrets, or all files, are known.
    async fn all_known(&mut self) -> Result<(), Closed> {
        self.listed = true;
        self.trouble = None;
        self.settle().await?;
        self.forget_others().await
    }

    /// Starts and stops followers as the Secrets require.
    async fn settle(&mut self) -> Result<(), Closed> {
        let settled = self.secrets.settle();
        if !settled.diagnostics.is_empty() {
            for (file, diagnostics) in &settled.diagnostics {
                let lines = diagnostics.iter().map(ToString::to_string).collect();
                match diagnostics.is_empty() {
                    true => self.refused.remove(file),
                    false => self.refused.insert(file.clone(), lines),
                };
            }
            let change = ChangeSet { diagnostics: settled.diagnostics, ..ChangeSet::default() };
            self.listeners.changes.send_partial(change).await?;
        }
        for step in settled.steps {
            match step {
                Step::Start { cluster, secret, way } => self.start(cluster, secret, way).await,
                Step::End { cluster } => self.end(&cluster).await?,
            }
        }
        Ok(())
    }

    async fn start(&mut self, cluster: Arc<str>, secret: Arc<str>, way: Client) {
        self.generation += 1;
        let had = self.members.get(&cluster);
        let knows =
            had.is_some_and(Member::knows) || self.remembered.as_ref().is_some_and(|known| known.contains(&cluster));
        tracing::info!(cluster = %cluster, secret = %secret, again = had.is_some(), "a cluster is followed");
        let running = Running::start(self.options.source(&cluster, &way, knows), self.generation, self.events.clone());
        let way = Way { number: self.generation, client: way };
        self.listeners.ways.send_modify(|ways| drop(ways.insert(cluster.clone(), way)));
        let member = match self.members.remove(&cluster) {
            Some(member) => member.replaced(secret, running).await,
            None => Member::new(secret, running),
        };
        self.members.insert(cluster, member);
    }

    /// Removes a cluster and its objects.
    async fn end(&mut self, cluster: &Arc<str>) -> Result<(), Closed> {
        tracing::info!(cluster = %cluster, "no Secret names this cluster any more: what it had is gone");
        self.listeners.ways.send_modify(|ways| drop(ways.remove(cluster)));
        let diagnostics = match self.members.remove(cluster) {
            Some(member) => member.stop().await,
            None => BTreeMap::new(),
        };
        self.options.forget(cluster).await;
        let change = ChangeSet { diagnostics, ..ChangeSet::default() };
        self.listeners.changes.replace_cluster(cluster, change).await
    }

    /// Forwards a change of a cluster. The first complete state replaces the previous one.
    async fn accept(&mut self, cluster: &Arc<str>, generation: u64, mut change: ChangeSet) -> Result<(), Closed> {
        let Some(member) = self.members.get_mut(cluster) else {
            return Ok(());
        };
        match member.accept(generation, &mut change).await {
            None => Ok(()),
            Some(true) => {
                tracing::info!(cluster = %cluster, objects = change.upserts.len(), "a cluster was read");
                self.listeners.changes.replace_cluster(cluster, change).await
            }
            Some(false) => self.listeners.changes.send_partial(change).await,
        }
    }

    async fn tick(&mut self) -> Result<(), Closed> {
        let timeout = self.options.timeout;
        for (cluster, member) in &mut self.members {
            if member.is_late(timeout) {
                let stays = match member.knows() {
                    true => "what it had stays",
                    false => "the others are served without it",
                };
                tracing::error!(cluster = %cluster, secret = %member.secret, "no answer within {timeout:?} (--remote-cluster-timeout); {stays}");
            }
        }
        if self.listed || self.remembered.is_some() {
            return Ok(());
        }
        if self.denied && self.since.elapsed() >= DENIED {
            tracing::error!(
                "we may not read the Secrets of other clusters: serving without those of which no earlier run kept anything; \
                 grant get, list and watch of secrets in the namespace {}",
                self.options.namespace
            );
            return self.remember().await;
        }
        if self.home.borrow().from_snapshot {
            return self.remember().await;
        }
        Ok(())
    }

    /// Reports this source as synced once no cluster delays the start.
    async fn begin(&mut self) -> Result<(), Closed> {
        let timeout = self.options.timeout;
        let late = !timeout.is_zero() && self.since.elapsed() >= timeout;
        let settled = match self.listed {
            true => self.members.values().all(Member::is_settled),
            false => late || self.remembered.is_some(),
        };
        if self.begun || !settled {
            return Ok(());
        }
        if !self.listed && self.remembered.is_none() {
            tracing::error!(
                "the Secrets of other clusters could not be read within {timeout:?}: serving without these clusters"
            );
        }
        self.begun = true;
        self.listeners.changes.send(ChangeSet::default()).await
    }
}
