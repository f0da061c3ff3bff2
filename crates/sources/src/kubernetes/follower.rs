//! All kinds together: which are watched, what of it is said, and when.
//!
//! Nothing is said before everything was listed once. Later a kind that is being listed anew says nothing until its list
//! is complete; and for a moment (`saying::HOLD`) the others wait for it, for a server that was away is mostly away for all: what
//! changed meanwhile is said at once.

mod kept;
mod saying;
mod slot;
mod taking;

use std::time::Duration;

use config::schema::definitions;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::crds::{self, Crds};
use super::mesh::{self, Mesh};
use super::progress::Progress;
use super::request::Resource;
use super::revision::{self, Revision};
use super::slim::Keep;
use super::table::Gathered;
use super::trim::Texts;
use super::watch::{self as watching, Event, Pulse};
use super::{News, Options, Report};
use slot::{Side, Slot};

/// Pieces of watches that may wait; the watches wait when there are more.
const QUEUE: usize = 32;
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often a server whose definitions cannot be read is asked what it serves.
const ASK: Duration = Duration::from_secs(30);
/// The mesh file is looked at every so many ticks.
const LOOK: u32 = 4;

/// What may stand for a tag: name, group, plural.
const TAGS: [(&str, &str, &str); 2] = [
    (
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
    ),
    ("Service of a tag", "", "services"),
];

/// What a watch is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// CustomResourceDefinitions.
    Crds,
    /// What stands for tags ([`TAGS`]), by its place.
    Tags(usize),
    /// A ConfigMap with the mesh's settings.
    Mesh(mesh::Place),
    /// A kind, by its place, and which of its watches.
    Kind(usize, u32),
}

/// Everything that is followed.
pub(crate) struct Follower {
    options: Options,
    sender: mpsc::Sender<(Place, Vec<Event>)>,
    pulse: Pulse,
    receiver: mpsc::Receiver<(Place, Vec<Event>)>,
    slots: Vec<Slot>,
    texts: Texts,
    crds: Crds,
    crds_side: Side,
    /// Asking the server what it serves, for its definitions may not be read.
    asking: Option<JoinHandle<Option<Crds>>>,
    asked: Option<Instant>,
    /// Whether it is known what the server serves.
    served: bool,
    revision: Option<Revision>,
    tags: [Side; 2],
    mesh: Option<Mesh>,
    mesh_sides: Vec<(mesh::Place, String, Side)>,
    /// Whether everything was listed once.
    complete: bool,
    pending: Gathered,
    /// Until when changes wait for kinds that are being listed anew; it begins with the first change.
    hold: Option<Instant>,
    /// Whether the snapshot of an earlier life was looked for; and whether it is what is in force.
    recalled: (bool, bool),
    /// When the snapshot was written last; whether it is old; its writing.
    kept: Option<Instant>,
    outdated: bool,
    keeping: Option<JoinHandle<()>>,
    begun: Instant,
    ticks: u32,
    lists: u64,
    report: watch::Sender<Report>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let sides = self.mesh_sides.iter().map(|(_, _, side)| &side.task);
        let slots = self.slots.iter().map(|slot| &slot.task);
        let tasks = sides
            .chain(slots)
            .chain([&self.crds_side.task])
            .chain(self.tags.iter().map(|side| &side.task));
        tasks.flatten().for_each(AbortHandle::abort);
        if let Some(asking) = &self.asking {
            asking.abort();
        }
    }
}

impl Follower {
    /// Begins to watch.
    pub(crate) fn new(options: Options, report: watch::Sender<Report>) -> Follower {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let kinds = definitions()
            .iter()
            .filter_map(|definition| Some((definition, definition.mesh?)));
        let wanted = kinds.filter(|(definition, kind)| {
            options.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
                && (options.credentials || !kind.is_credential())
                && options.filter.reads(definition.plural, definition.group)
        });
        let slots: Vec<Slot> = wanted.map(|(definition, kind)| Slot::new(definition, kind)).collect();
        let mut follower = Follower {
            sender,
            pulse: Pulse::default(),
            receiver,
            slots,
            texts: Texts::default(),
            crds: Crds::default(),
            crds_side: Side::default(),
            asking: None,
            asked: None,
            served: false,
            revision: options.revision.as_deref().map(Revision::new),
            tags: Default::default(),
            mesh: options.mesh.clone().map(Mesh::new),
            mesh_sides: Vec::new(),
            complete: false,
            pending: Gathered::default(),
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
        let client = self.options.client.clone();
        let client = &client;
        if self.slots.iter().all(|slot| slot.definition.builtin) {
            self.served = true;
        } else {
            let crds = Resource::all(
                client,
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                Keep::definition(),
            );
            self.crds_side.task = Some(self.spawn(crds, Place::Crds));
        }
        if self.revision.is_some() {
            for (at, (_, group, plural)) in TAGS.into_iter().enumerate() {
                let tagged = Resource::labelled(client, group, plural, revision::TAG);
                self.tags[at].task = Some(self.spawn(tagged, Place::Tags(at)));
            }
        }
        if let (Some(mesh), Some(options)) = (&mut self.mesh, self.options.mesh.clone()) {
            mesh.look(&mut self.pending);
            for (place, name) in mesh.places() {
                let map = Resource::config_map(client, &options.namespace, &name);
                let task = Some(self.spawn(map, Place::Mesh(place)));
                let side = Side {
                    task,
                    ..Side::default()
                };
                self.mesh_sides.push((place, format!("ConfigMap {name}"), side));
            }
        }
        self.choose_versions();
    }

    fn spawn(&self, resource: Resource, place: Place) -> AbortHandle {
        let watched = watching::run(resource, place, self.sender.clone(), self.pulse.clone());
        tokio::spawn(watched).abort_handle()
    }

    /// Follows until nobody takes the news any more.
    pub(crate) async fn run(mut self, out: mpsc::Sender<News>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let news = self.ready();
            self.tell();
            if let Some(news) = news
                && out.send(news).await.is_err()
            {
                return;
            }
            tokio::select! {
                Some((place, events)) = self.receiver.recv() => {
                    self.take(place, events);
                    // What is there already goes along.
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
                    if let Some(news) = self.recall().await
                        && out.send(news).await.is_err()
                    {
                        return;
                    }
                }
                () = out.closed() => return,
            }
        }
    }

    fn take(&mut self, place: Place, events: Vec<Event>) {
        for event in events {
            match place {
                Place::Kind(at, epoch) => self.take_object(at, epoch, event),
                Place::Crds => self.take_crd(event),
                Place::Tags(at) => self.take_tag(at, event),
                Place::Mesh(place) => self.take_mesh(place, event),
            }
        }
    }

    /// Watches each kind through the version that the server serves of it, and forgets kinds that it serves no more.
    fn choose_versions(&mut self) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let version = self.crds.version(slot.definition);
            if slot.version == version {
                // A snapshot may have objects of a kind that the server does not serve any more.
                if version.is_none() && self.served {
                    slot.table.clear();
                }
                continue;
            }
            if slot.version.is_some() || self.complete {
                tracing::info!(kind = slot.name, ?version, "the server serves it now, or no more");
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

    /// Lists and watches a kind from now on, anew where it was watched already.
    fn start(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        slot.stop();
        let Some(version) = slot.version else { return };
        let definition = slot.definition;
        let Some(kind) = definition.mesh else { return };
        let resource = Resource::all(
            &self.options.client,
            definition.group,
            version,
            definition.plural,
            Keep::of(kind),
        );
        slot.progress.listing = true;
        let place = Place::Kind(at, slot.epoch);
        self.slots[at].task = Some(self.spawn(resource, place));
    }

    async fn tick(&mut self) {
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
            let (client, definitions) = (
                self.options.client.clone(),
                self.slots.iter().map(|slot| slot.definition),
            );
            let definitions = definitions.collect();
            self.asking = Some(tokio::spawn(async move { crds::asked(&client, definitions).await }));
            self.asked = Some(Instant::now());
        }
    }
}
