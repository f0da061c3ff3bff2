//! All kinds together: which are watched, what of it is said, and when.
//!
//! Nothing is said before everything was listed once. Later a kind that is being listed anew says nothing until its list
//! is complete; and for a moment ([`HOLD`]) the others wait for it, for a server that was away is mostly away for all: what
//! changed meanwhile is said at once.

mod kept;
mod slot;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use resources::schema::definitions;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::crds::{self, Crds};
use super::event::Raw;
use super::mesh::{self, Mesh};
use super::progress::Progress;
use super::request::Resource;
use super::revision::{self, Revision};
use super::slim::Keep;
use super::table::{Gathered, Reading};
use super::trim::Texts;
use super::watch::{self as watching, Event, Pulse};
use super::{News, Options, Report};
use slot::{Found, Side, Slot};

/// Pieces of watches that may wait; the watches wait when there are more.
const QUEUE: usize = 32;
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often a server whose definitions cannot be read is asked what it serves.
const ASK: Duration = Duration::from_secs(30);
/// How long changes wait for kinds that are being listed anew.
const HOLD: Duration = Duration::from_secs(5);
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

    fn take_object(&mut self, at: usize, epoch: u32, event: Event) {
        let Some(slot) = self.slots.get_mut(at).filter(|slot| slot.epoch == epoch) else {
            return;
        };
        let mut reading = Reading {
            options: &self.options.parse,
            revision: self.revision.as_ref(),
            texts: &mut self.texts,
            cluster: &self.options.cluster,
        };
        match event {
            Event::Listing => {
                slot.progress.listing = true;
                slot.table.begin();
            }
            Event::Put(raw) => slot.table.put(raw, &mut reading),
            Event::Gone(raw) => slot.table.gone(&raw, &reading),
            Event::Listed => {
                slot.table.listed();
                slot.progress.listed(&slot.name);
                // The server is back, maybe only now: others may need their moment.
                if self.hold.is_some_and(|until| until <= Instant::now()) {
                    self.hold = None;
                }
                self.lists += 1;
            }
            Event::Failed(trouble) => slot.progress.fails(&slot.name, trouble),
            Event::Well => slot.progress.goes_well(&slot.name),
        }
    }

    fn take_crd(&mut self, event: Event) {
        match self.crds_side.take("CustomResourceDefinition", event) {
            Some(Found::Put(raw)) => self.crds.put(&raw.name, &raw.value),
            Some(Found::Gone(raw)) => self.crds.remove(&raw.name),
            Some(Found::All(names)) => {
                self.crds.retain(&|name| names.contains(name));
                self.served = true;
            }
            None => return,
        }
        // Not by halves.
        if self.crds_side.found.is_none() {
            self.choose_versions();
        }
    }

    fn take_tag(&mut self, at: usize, event: Event) {
        let Some(revision) = &mut self.revision else { return };
        let (name, ..) = TAGS[at];
        let key = |raw: &Raw| -> Arc<str> { format!("{at}/{}", raw.name).into() };
        let changed = match self.tags[at].take(name, event) {
            Some(Found::Put(raw)) => revision.tag(&key(&raw), Some(&raw.value["metadata"]["labels"])),
            Some(Found::Gone(raw)) => revision.tag(&key(&raw), None),
            Some(Found::All(names)) => revision.retain(&|key| match key.split_once('/') {
                Some((of, name)) if of == at.to_string() => names.contains(name),
                _ => true,
            }),
            None => false,
        };
        if !changed {
            return;
        }
        // Those that are not ours were not kept: what may choose anew is listed again.
        for at in 0..self.slots.len() {
            if self.slots[at].table.is_labelled() {
                self.start(at);
            }
        }
    }

    fn take_mesh(&mut self, place: mesh::Place, event: Event) {
        let (Some(mesh), Some((_, name, side))) = (
            &mut self.mesh,
            self.mesh_sides.iter_mut().find(|(of, _, _)| *of == place),
        ) else {
            return;
        };
        match side.take(name, event) {
            Some(Found::Put(raw)) => mesh.take(place, Some(&raw.value), &mut self.pending),
            Some(Found::Gone(_)) => mesh.take(place, None, &mut self.pending),
            Some(Found::All(names)) if names.is_empty() => mesh.take(place, None, &mut self.pending),
            Some(Found::All(_)) | None => {}
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

    /// Whether nobody needs to be waited for: everything was listed, or is refused; or it fails where most of the rest does
    /// not, so that it is not the server that fails.
    fn settled(&self) -> bool {
        let served = self.slots.iter().filter(|slot| slot.version.is_some());
        let slots = served.map(|slot| &slot.progress);
        let tags = self.tags.iter().filter(|_| self.revision.is_some());
        let sides = tags.chain(self.mesh_sides.iter().map(|(_, _, side)| side));
        let all: Vec<&Progress> = slots.chain(sides.map(|side| &side.progress)).collect();
        let synced = all.iter().filter(|progress| progress.synced).count();
        let answers = synced * 2 > all.len();
        // Of a server that refuses everything nobody knows what it has.
        let any = synced > 0 || all.is_empty();
        self.served
            && any
            && all
                .iter()
                .all(|progress| progress.is_settled() || (answers && progress.is_stuck()))
    }

    /// What may be said now.
    fn ready(&mut self) -> Option<News> {
        let first = !self.complete;
        if first {
            if !self.settled() {
                return None;
            }
            self.complete = true;
        }
        if !first && self.holds() {
            return None;
        }
        let mut gathered = mem::take(&mut self.pending);
        for slot in self.slots.iter_mut().filter(|slot| !slot.progress.listing || first) {
            gathered.add(slot.table.take());
        }
        if !first && gathered.is_empty() {
            return None;
        }
        self.outdated = true;
        Some(gathered.into_news())
    }

    /// Whether changes wait for kinds that were known and are being listed anew.
    fn holds(&mut self) -> bool {
        let relisted = |slot: &Slot| slot.progress.synced && slot.progress.listing && slot.version.is_some();
        if !self.slots.iter().any(relisted) {
            self.hold = None;
            return false;
        }
        let ready = |slot: &Slot| !slot.progress.listing && slot.table.has_news();
        let news = !self.pending.is_empty() || self.slots.iter().any(ready);
        if self.hold.is_none() && !news {
            return true;
        }
        let until = *self.hold.get_or_insert_with(|| Instant::now() + HOLD);
        Instant::now() < until
    }

    /// Makes the report.
    fn tell(&mut self) {
        let mut report = Report {
            synced: self.complete,
            lists: self.lists,
            objects: self.slots.iter().map(|slot| slot.table.len()).sum(),
            from_snapshot: self.recalled.1 && !self.complete,
            mesh_rejected: self.mesh.as_ref().is_some_and(Mesh::is_rejected),
            default_revision: self.revision.as_ref().and_then(|revision| revision.default().cloned()),
            ..Report::default()
        };
        if !self.served {
            self.crds_side.progress.report("CustomResourceDefinition", &mut report);
        }
        for slot in self.slots.iter().filter(|slot| slot.version.is_some()) {
            slot.progress.report(&slot.name, &mut report);
        }
        for (_, name, side) in &self.mesh_sides {
            side.progress.report(name, &mut report);
        }
        if self.revision.is_some() {
            for (side, (name, ..)) in self.tags.iter().zip(TAGS) {
                side.progress.report(name, &mut report);
            }
        }
        self.report.send_if_modified(|before| {
            let differs = *before != report;
            *before = report;
            differs
        });
    }
}
