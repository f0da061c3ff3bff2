//! The other clusters of the mesh, read for as long as a Secret names them.
//!
//! One task ([`Fleet`]) watches the Secrets and has one follower per cluster. What a cluster said last stays in force while
//! it is away, and while a new kubeconfig leads nowhere; it is forgotten when no Secret names the cluster any more. Clusters
//! that do not answer hold nobody up for longer than [`Options::timeout`].

mod files;
mod member;
mod options;
mod reading;
mod show;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::controllers::{Resource, Watched};
use config::ChangeSet;
use kube::Client;
use server::ServingStatus;
use sources::Closed;
use sources::clusters::{LABEL, Secrets, Step};
use sources::kubernetes::{Report, Seen};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::controllers;
use member::{Member, Running};
use sources::ChangeSender;

pub(super) use options::Options;

/// Events that may wait; who has them waits when there are more.
const QUEUE: usize = 64;
/// How long a denied right to read Secrets is taken for a passing one, at the start: as long as for any other kind.
const DENIED: Duration = Duration::from_secs(3);
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);

/// Whom it tells what.
pub(super) struct Listeners {
    /// Takes what was read.
    pub(super) changes: ChangeSender,
    /// Shows how it stands.
    pub(super) serving_status: ServingStatus,
    /// What is waited for, in words.
    pub(super) awaited: watch::Sender<String>,
    /// The ways to the clusters that are followed, by id.
    pub(super) ways: watch::Sender<Ways>,
}

/// The ways to the clusters that are followed, by id.
pub(super) type Ways = BTreeMap<Arc<str>, Way>;

/// The way to a cluster.
#[derive(Clone)]
pub(super) struct Way {
    /// Tells it from others of the same cluster.
    pub(super) number: u64,
    pub(super) client: Client,
}

/// Something that happened.
enum Event {
    /// A Secret, or that all were told.
    Secret(Seen),
    /// All kubeconfigs of the directory.
    Files(files::Files),
    /// The directory cannot be read, for this reason.
    Failing(String),
    /// What a follower of a cluster read.
    Change(Arc<str>, u64, ChangeSet),
}

/// Reads the clusters that Secrets of this API name, until the control plane ends.
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
            // What is shown is as old as a tick: it costs something by cluster.
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

/// Tells of the Secrets that name clusters.
fn watch_secrets(client: Client, namespace: &str, events: &mpsc::Sender<Event>, tasks: &mut JoinSet<()>) {
    let secrets = Watched::all(Resource::SECRET)
        .within(namespace)
        .labelled(&format!("{LABEL}=true"));
    tasks.spawn(controllers::follow(client, secrets, events.clone(), Event::Secret));
}

/// The clusters.
struct Fleet {
    options: Options,
    listeners: Listeners,
    home: watch::Receiver<Report>,
    events: mpsc::Sender<Event>,
    secrets: Secrets<Client>,
    /// Whether the Secrets were listed once; and why they cannot be read, where they cannot.
    listed: bool,
    trouble: Option<String>,
    /// We may not read the Secrets.
    denied: bool,
    /// What is wrong with Secrets, in words.
    refused: BTreeMap<Arc<str>, Vec<String>>,
    members: BTreeMap<Arc<str>, Member>,
    /// Clusters of which an earlier run's snapshot is served, for the Secrets were not read yet; none: that was not tried.
    remembered: Option<BTreeSet<Arc<str>>>,
    /// Counts followers.
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
            Event::Secret(Seen::There(object)) => {
                reading::secret(&mut self.secrets, &object, self.options.allowed).await;
                if self.listed {
                    return self.settle().await;
                }
                Ok(())
            }
            Event::Secret(Seen::Gone(object)) => {
                self.secrets
                    .remove(object["metadata"]["name"].as_str().unwrap_or_default());
                self.settle().await
            }
            Event::Secret(Seen::Everything) => {
                self.listed = true;
                self.trouble = None;
                self.settle().await?;
                self.forget_others().await
            }
            Event::Files(files) => {
                reading::files(&mut self.secrets, files, self.options.allowed).await;
                self.listed = true;
                self.trouble = None;
                self.settle().await?;
                self.forget_others().await
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
            Event::Change(cluster, generation, change) => self.hear(&cluster, generation, change).await,
        }
    }

    /// Does what the Secrets ask for.
    async fn settle(&mut self) -> Result<(), Closed> {
        let settled = self.secrets.settle();
        if !settled.diagnostics.is_empty() {
            for (file, said) in &settled.diagnostics {
                match said.is_empty() {
                    true => drop(self.refused.remove(file)),
                    false => drop(
                        self.refused
                            .insert(file.clone(), said.iter().map(ToString::to_string).collect()),
                    ),
                }
            }
            let change = ChangeSet {
                diagnostics: settled.diagnostics,
                ..ChangeSet::default()
            };
            self.listeners.changes.send_partial(change).await?;
        }
        for step in settled.steps {
            match step {
                Step::Start { cluster, secret, way } => self.start(cluster, secret, way),
                Step::End { cluster } => self.end(&cluster).await?,
            }
        }
        Ok(())
    }

    fn start(&mut self, cluster: Arc<str>, secret: Arc<str>, way: Client) {
        self.generation += 1;
        let had = self.members.get(&cluster);
        let knows =
            had.is_some_and(Member::knows) || self.remembered.as_ref().is_some_and(|known| known.contains(&cluster));
        tracing::info!(cluster = %cluster, secret = %secret, again = had.is_some(), "a cluster is followed");
        let running = Running::start(
            self.options.source(&cluster, &way, knows),
            self.generation,
            self.events.clone(),
        );
        let way = Way {
            number: self.generation,
            client: way,
        };
        self.listeners
            .ways
            .send_modify(|ways| drop(ways.insert(cluster.clone(), way)));
        match self.members.remove(&cluster) {
            Some(member) => drop(self.members.insert(cluster, member.replaced(secret, running))),
            None => drop(self.members.insert(cluster, Member::new(secret, running))),
        }
    }

    /// Forgets a cluster.
    async fn end(&mut self, cluster: &Arc<str>) -> Result<(), Closed> {
        tracing::info!(cluster = %cluster, "no Secret names this cluster any more: what it had is gone");
        self.listeners.ways.send_modify(|ways| drop(ways.remove(cluster)));
        let member = self.members.remove(cluster);
        self.options.forget(cluster).await;
        let change = ChangeSet {
            diagnostics: member.map(Member::taken_back).unwrap_or_default(),
            ..ChangeSet::default()
        };
        self.listeners.changes.replace_cluster(cluster, change).await
    }

    /// Hands on what a cluster's follower read: the first time everything, in the place of what was there.
    async fn hear(&mut self, cluster: &Arc<str>, generation: u64, mut change: ChangeSet) -> Result<(), Closed> {
        let Some(member) = self.members.get_mut(cluster) else {
            return Ok(());
        };
        match member.hear(generation, &mut change) {
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

    /// Says that everything was said, once nobody is waited for any more.
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
