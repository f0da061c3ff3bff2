//! Combines all kinds: which are watched, and when their changes are emitted.
//!
//! Nothing is emitted before everything was listed once. Later, a kind that is being relisted emits nothing until its
//! list is complete, and the others wait for it for a limited time (`emitting::HOLD`): a server that was unavailable
//! mostly was so for all kinds, and its changes are emitted together.

mod emitting;
mod events;
mod slot;
mod snapshots;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use config::ChangeSet;
use config::schema::definitions;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::ChangeSender;

use super::crds::{self, Crds};
use super::mesh::{self, Mesh};
use super::progress::Progress;
use super::request::Resource;
use super::revision::{self, Revision};
use super::slim::Keep;
use super::trim::Texts;
use super::watch::{self as watching, Event, RecoverySignal};
use super::{Options, Report};
use slot::{AuxiliaryWatch, KindWatch};

/// The number of queued event batches; watches wait when the queue is full.
const QUEUE: usize = 32;
/// The interval of periodic checks.
const TICK: Duration = Duration::from_millis(500);
/// The interval of discovery requests if CustomResourceDefinitions cannot be read.
const ASK: Duration = Duration::from_secs(30);
/// The mesh file is checked every this many ticks.
const LOOK: u32 = 4;

/// The resources that define tags: name, group, plural.
const TAGS: [(&str, &str, &str); 2] = [
    ("MutatingWebhookConfiguration", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("Service of a tag", "", "services"),
];

/// The subject of a watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchTarget {
    /// CustomResourceDefinitions.
    Crds,
    /// A resource that defines tags, by its index in [`TAGS`].
    Tags(usize),
    /// A ConfigMap with the mesh configuration.
    Mesh(mesh::ConfigMapRole),
    /// A kind, by its index, and the epoch of its watch.
    Kind(usize, u32),
}

/// The state of a Kubernetes source.
pub(crate) struct Follower {
    options: Options,
    /// The watches.
    tasks: JoinSet<()>,
    sender: mpsc::Sender<(WatchTarget, Vec<Event>)>,
    pulse: RecoverySignal,
    receiver: mpsc::Receiver<(WatchTarget, Vec<Event>)>,
    slots: Vec<KindWatch>,
    texts: Texts,
    crds: Crds,
    crds_side: AuxiliaryWatch,
    /// A discovery request in progress, because CustomResourceDefinitions cannot be read.
    asking: Option<JoinHandle<Option<Crds>>>,
    asked: Option<Instant>,
    /// Whether the served kinds are known.
    served: bool,
    revision: Option<Revision>,
    /// Namespaces whose revision changed since the last list of them or change of one.
    relabelled: BTreeSet<Arc<str>>,
    tags: [AuxiliaryWatch; 2],
    mesh: Option<Mesh>,
    mesh_sides: Vec<(mesh::ConfigMapRole, String, AuxiliaryWatch)>,
    /// Whether everything was listed once.
    complete: bool,
    pending: ChangeSet,
    /// Until when changes wait for kinds that are being relisted. Starts with the first change.
    hold: Option<Instant>,
    /// Whether the snapshot was read; and whether its objects are in effect.
    recalled: (bool, bool),
    /// The time of the last snapshot; whether it is outdated; the task that writes it.
    kept: Option<Instant>,
    outdated: bool,
    keeping: Option<JoinHandle<()>>,
    begun: Instant,
    ticks: u32,
    lists: u64,
    report: watch::Sender<Report>,
}

impl Follower {
    /// Starts all watches.
    pub(crate) fn new(options: Options, report: watch::Sender<Report>) -> Follower {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let kinds = definitions().iter().filter_map(|definition| Some((definition, definition.mesh?)));
        let wanted = kinds.filter(|(definition, kind)| {
            options.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
                && (options.credentials || !kind.is_credential())
                && options.filter.reads(definition.plural, definition.group)
        });
        let slots: Vec<KindWatch> = wanted.map(|(definition, kind)| KindWatch::new(definition, kind)).collect();
        let mut follower = Follower {
            tasks: JoinSet::new(),
            sender,
            pulse: RecoverySignal::default(),
            receiver,
            slots,
            texts: Texts::default(),
            crds: Crds::default(),
            crds_side: AuxiliaryWatch::default(),
            asking: None,
            asked: None,
            served: false,
            revision: options.revision.as_deref().map(Revision::new),
            relabelled: BTreeSet::new(),
            tags: Default::default(),
            mesh: options.mesh.clone().map(Mesh::new),
            mesh_sides: Vec::new(),
            complete: false,
            pending: ChangeSet::default(),
            hold: None,
            recalled: (false, false),
            kept: None,
            outdated: false,
            keeping: None,
            begun: Instant::now(),
            ticks: 0,
            lists: 0,
            report,
            options,
        };
        follower.begin();
        follower
    }

    fn begin(&mut self) {
        let client = &self.options.client.clone();
        if self.slots.iter().all(|slot| slot.definition.builtin) {
            self.served = true;
        } else {
            let crds =
                Resource::all(client, "apiextensions.k8s.io", "v1", "customresourcedefinitions", Keep::definition());
            self.spawn(crds, WatchTarget::Crds);
        }
        if self.revision.is_some() {
            for (at, (_, group, plural)) in TAGS.into_iter().enumerate() {
                let tagged = Resource::labelled(client, group, plural, revision::TAG);
                self.spawn(tagged, WatchTarget::Tags(at));
            }
        }
        if let (Some(mesh), Some(options)) = (&mut self.mesh, self.options.mesh.clone()) {
            mesh.look(&mut self.pending);
            for (place, name) in mesh.places() {
                let map = Resource::config_map(client, &options.namespace, &name);
                self.spawn(map, WatchTarget::Mesh(place));
                self.mesh_sides.push((place, format!("ConfigMap {name}"), AuxiliaryWatch::default()));
            }
        }
        self.choose_versions();
    }

    fn spawn(&mut self, resource: Resource, place: WatchTarget) -> AbortHandle {
        let watched = watching::run(resource, place, self.sender.clone(), self.pulse.clone());
        self.tasks.spawn(watched)
    }

    /// Runs until the receiver is dropped, and then until the snapshot that is being written is complete.
    pub(crate) async fn run(mut self, out: ChangeSender) {
        self.follow(out).await;
        if let Some(keeping) = self.keeping {
            // Fails only after a panic, which is logged.
            let _ = keeping.await;
        }
    }

    async fn follow(&mut self, out: ChangeSender) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let change = self.ready();
            self.update_report();
            if let Some(change) = change
                && out.send(change).await.is_err()
            {
                return;
            }
            tokio::select! {
                Some((place, events)) = self.receiver.recv() => {
                    self.take(place, events);
                    // Batches that are already queued are handled together.
                    for _ in 0..QUEUE {
                        match self.receiver.try_recv() {
                            Ok((place, events)) => self.take(place, events),
                            Err(_) => break,
                        }
                    }
                }
                _ = ticks.tick() => {
                    self.tick().await;
                    self.keep();
                    if let Some(change) = self.recall().await
                        && out.send(change).await.is_err()
                    {
                        return;
                    }
                }
                () = out.closed() => return,
            }
        }
    }

    fn take(&mut self, place: WatchTarget, events: Vec<Event>) {
        for event in events {
            match place {
                WatchTarget::Kind(at, epoch) => self.take_object(at, epoch, event),
                WatchTarget::Crds => self.take_crd(event),
                WatchTarget::Tags(at) => self.take_tag(at, event),
                WatchTarget::Mesh(place) => self.take_mesh(place, event),
            }
        }
    }

    /// Watches each kind in the version that the server serves, and removes kinds that are no longer served.
    fn choose_versions(&mut self) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let version = self.crds.version(slot.definition);
            if slot.version == version {
                // A snapshot may contain objects of a kind that the server no longer serves.
                if version.is_none() && self.served {
                    slot.table.clear();
                }
                continue;
            }
            if slot.version.is_some() || self.complete {
                tracing::info!(kind = slot.name, ?version, "the served version of a kind changed");
            }
            slot.version = version;
            match version {
                Some(_) => self.start(at),
                None => {
                    slot.stop();
                    slot.table.clear();
                    slot.progress = Progress::default();
                }
            }
        }
    }

    /// Lists and watches a kind, again if it was watched already.
    fn start(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.stop();
        let Some(version) = slot.version else { return };
        let definition = slot.definition;
        let Some(kind) = definition.mesh else { return };
        let resource =
            Resource::all(&self.options.client, definition.group, version, definition.plural, Keep::of(kind));
        slot.progress.listing = true;
        let place = WatchTarget::Kind(at, slot.epoch);
        self.slots[at].task = Some(self.spawn(resource, place));
    }

    async fn tick(&mut self) {
        // Forgets watches that were replaced.
        while self.tasks.try_join_next().is_some() {}
        self.ticks = self.ticks.wrapping_add(1);
        if self.ticks.is_multiple_of(LOOK)
            && let Some(mesh) = &mut self.mesh
        {
            mesh.look(&mut self.pending);
        }
        if self.asking.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(asking) = self.asking.take()
            && let Ok(Some(crds)) = asking.await
            && !self.crds_side.progress.synced
        {
            self.crds = crds;
            self.served = true;
            self.choose_versions();
        }
        let due = self.asked.is_none_or(|asked| asked.elapsed() >= ASK);
        let progress = &self.crds_side.progress;
        if (progress.is_excused() || progress.is_stuck()) && self.asking.is_none() && due {
            let (client, definitions) = (self.options.client.clone(), self.slots.iter().map(|slot| slot.definition));
            let definitions = definitions.collect();
            self.asking = Some(tokio::spawn(async move { crds::discover(&client, definitions).await }));
            self.asked = Some(Instant::now());
        }
    }
}
