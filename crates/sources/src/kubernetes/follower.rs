//! All kinds together: which are watched, what of it is said, and when.
//!
//! Nothing is said before everything was listed once. Later a kind that is being listed anew says nothing until its list
//! is complete; and for a moment ([`HOLD`]) the others wait for it, for a server that was away is mostly away for all.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use resources::Kind;
use resources::schema::{Definition, definitions};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::crds::{self, Crds};
use super::event::Raw;
use super::mesh::{self, Mesh};
use super::progress::{self, Progress};
use super::request::{Resource, Trouble};
use super::revision::Revision;
use super::slim::Keep;
use super::snapshot::{self, Entry};
use super::table::{Gathered, Reading, Table};
use super::trim::Texts;
use super::watch::{self as watching, Event};
use super::{News, Options, Report};

/// Pieces of watches that may wait; the watches wait when there are more.
const QUEUE: usize = 32;
/// How often time is looked at.
const TICK: Duration = Duration::from_millis(500);
/// How often a server whose definitions cannot be read is asked what it serves.
const ASK: Duration = Duration::from_secs(30);
/// How long changes wait for a kind that is being listed anew.
const HOLD: Duration = Duration::from_secs(3);
/// The mesh file is looked at every so many ticks.
const LOOK: u32 = 4;

/// What a watch is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// CustomResourceDefinitions.
    Crds,
    /// Webhook configurations that stand for tags.
    Tags,
    /// A ConfigMap with the mesh's settings.
    Mesh(mesh::Place),
    /// A kind, by its place, and which of its watches.
    Kind(usize, u32),
}

/// A kind of the mesh.
struct Slot {
    definition: &'static Definition,
    name: String,
    /// Through which it is read; none: the server does not serve it.
    version: Option<&'static str>,
    epoch: u32,
    task: Option<AbortHandle>,
    progress: Progress,
    table: Table,
}

/// Something else that is watched.
#[derive(Default)]
struct Side {
    progress: Progress,
    /// While it is listed: what was found so far.
    found: Option<BTreeSet<Arc<str>>>,
    task: Option<AbortHandle>,
}

/// Everything that is followed.
pub(crate) struct Follower {
    options: Options,
    sender: mpsc::Sender<(Place, Vec<Event>)>,
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
    tags: Side,
    mesh: Option<Mesh>,
    mesh_sides: Vec<(mesh::Place, String, Side)>,
    /// Whether everything was listed once.
    complete: bool,
    pending: Gathered,
    /// Until when changes wait for kinds that are being listed anew.
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
        let tasks = sides.chain(slots).chain([&self.crds_side.task, &self.tags.task]);
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
            receiver,
            slots,
            texts: Texts::default(),
            crds: Crds::default(),
            crds_side: Side::default(),
            asking: None,
            asked: None,
            served: false,
            revision: options.revision.as_deref().map(Revision::new),
            tags: Side::default(),
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
        let client = &self.options.client;
        if self.slots.iter().all(|slot| slot.definition.builtin) {
            self.served = true;
        } else {
            let keep = Keep::only(&["spec", "status"]);
            let crds = Resource::all(client, "apiextensions.k8s.io", "v1", "customresourcedefinitions", keep);
            self.crds_side.task = Some(spawn(crds, Place::Crds, &self.sender));
        }
        if self.revision.is_some() {
            let webhooks = Resource::labelled(
                client,
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations",
                "istio.io/tag",
            );
            self.tags.task = Some(spawn(webhooks, Place::Tags, &self.sender));
        }
        if let (Some(mesh), Some(options)) = (&mut self.mesh, &self.options.mesh) {
            mesh.look(&mut self.pending);
            for (place, name) in mesh.places() {
                let map = Resource::config_map(client, &options.namespace, &name);
                let task = Some(spawn(map, Place::Mesh(place), &self.sender));
                let side = Side {
                    task,
                    ..Side::default()
                };
                self.mesh_sides.push((place, format!("ConfigMap {name}"), side));
            }
        }
        self.choose_versions();
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
                Place::Tags => self.take_tag(event),
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

    fn take_tag(&mut self, event: Event) {
        let Some(revision) = &mut self.revision else { return };
        let changed = match self.tags.take("MutatingWebhookConfiguration", event) {
            Some(Found::Put(raw)) => revision.tag(&raw.name, Some(&raw.value["metadata"]["labels"])),
            Some(Found::Gone(raw)) => revision.tag(&raw.name, None),
            Some(Found::All(names)) => revision.retain(&|name| names.contains(name)),
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
        slot.task = Some(spawn(resource, Place::Kind(at, slot.epoch), &self.sender));
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
        if self.crds_side.progress.is_excused() && self.asking.is_none() && due {
            let (client, definitions) = (
                self.options.client.clone(),
                self.slots.iter().map(|slot| slot.definition),
            );
            let definitions = definitions.collect();
            self.asking = Some(tokio::spawn(async move { crds::asked(&client, definitions).await }));
            self.asked = Some(Instant::now());
        }
    }

    fn settled(&self) -> bool {
        let served = self.slots.iter().filter(|slot| slot.version.is_some());
        self.served
            && served.map(|slot| &slot.progress).all(Progress::is_settled)
            && (self.revision.is_none() || self.tags.progress.is_settled())
            && self.mesh_sides.iter().all(|(_, _, side)| side.progress.is_settled())
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

    /// What an earlier life knew, once the server is away for too long at the start. Everything that comes is compared with
    /// it; it is said when all of it is there.
    async fn recall(&mut self) -> Option<News> {
        let options = self.options.snapshot.clone()?;
        let progresses = self.slots.iter().map(|slot| &slot.progress);
        let sides = self.mesh_sides.iter().map(|(_, _, side)| &side.progress);
        let away = progresses
            .chain(sides)
            .chain([&self.crds_side.progress])
            .any(Progress::is_away);
        if self.complete || self.recalled.0 || !away || self.begun.elapsed() < options.patience {
            return None;
        }
        self.recalled.0 = true;
        let file = options.file.clone();
        let read = tokio::task::spawn_blocking(move || snapshot::read(&options))
            .await
            .ok()?;
        let entries = match read {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(file = %file.display(), "there is no snapshot that could be served meanwhile: {error}");
                return None;
            }
        };
        tracing::warn!(
            objects = entries.len(),
            "the Kubernetes API is away: serving what an earlier run read, until it answers"
        );
        self.recalled.1 = true;
        Some(self.seed(entries).into_news())
    }

    fn seed(&mut self, entries: Vec<Entry>) -> Gathered {
        let mut gathered = Gathered::default();
        // What was listed by half is listed again.
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if let Some(kind) = slot.definition.mesh {
                slot.table = Table::new(kind, slot.definition);
            }
            slot.progress.synced = false;
            self.start(at);
        }
        for (hash, object) in entries {
            let object = self.texts.trim(object, &self.options.cluster);
            let kind = object.kind();
            let slot = self.slots.iter_mut().find(|slot| slot.definition.mesh == Some(kind));
            let counts = match (&mut self.mesh, slot) {
                (Some(mesh), _) if matches!(kind, Kind::MeshConfig | Kind::MeshNetworks) => mesh.seed(&object),
                (_, Some(slot)) => {
                    slot.table.seed(hash, object.clone());
                    true
                }
                _ => false,
            };
            if counts {
                gathered.put(object);
            }
        }
        gathered
    }

    /// Keeps a snapshot of what is in force, now and then.
    fn keep(&mut self) {
        let Some(options) = &self.options.snapshot else { return };
        let due = self.kept.is_none_or(|kept| kept.elapsed() >= options.interval);
        let busy = self.keeping.as_ref().is_some_and(|keeping| !keeping.is_finished());
        if !self.complete || !self.outdated || !due || busy {
            return;
        }
        let objects = self.slots.iter().flat_map(|slot| slot.table.objects());
        let mut entries: Vec<Entry> = objects.map(|(hash, object)| (hash, object.clone())).collect();
        let settings = self.mesh.iter().flat_map(Mesh::objects);
        entries.extend(settings.map(|object| (0, object.clone())));
        let options = options.clone();
        self.keeping = Some(tokio::task::spawn_blocking(move || {
            if let Err(error) = snapshot::write(&options, &entries) {
                let file = options.file.display();
                tracing::warn!(%file, "the snapshot for a start without the Kubernetes API cannot be kept: {error}");
            }
        }));
        (self.kept, self.outdated) = (Some(Instant::now()), false);
    }

    /// Whether changes wait for kinds that were known and are being listed anew.
    fn holds(&mut self) -> bool {
        let relisted = |slot: &Slot| slot.progress.synced && slot.progress.listing && slot.version.is_some();
        if !self.slots.iter().any(relisted) {
            self.hold = None;
            return false;
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
            self.tags.progress.report("MutatingWebhookConfiguration", &mut report);
        }
        self.report.send_if_modified(|before| {
            let differs = *before != report;
            *before = report;
            differs
        });
    }
}

fn spawn(resource: Resource, place: Place, events: &mpsc::Sender<(Place, Vec<Event>)>) -> AbortHandle {
    tokio::spawn(watching::run(resource, place, events.clone())).abort_handle()
}

impl Slot {
    fn new(definition: &'static Definition, kind: Kind) -> Slot {
        let name = match definition.group {
            "" => definition.plural.to_owned(),
            group => format!("{}.{group}", definition.plural),
        };
        Slot {
            definition,
            name,
            version: None,
            epoch: 0,
            task: None,
            progress: Progress::default(),
            table: Table::new(kind, definition),
        }
    }

    /// Ends its watch; what still comes of it does not count.
    fn stop(&mut self) {
        self.epoch += 1;
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What a watch beside the kinds found.
enum Found {
    Put(Raw),
    Gone(Raw),
    /// The names of all that there are.
    All(BTreeSet<Arc<str>>),
}

impl Side {
    fn take(&mut self, name: &str, event: Event) -> Option<Found> {
        match event {
            Event::Listing => {
                self.found = Some(BTreeSet::new());
                None
            }
            Event::Put(raw) => {
                if let Some(found) = &mut self.found {
                    found.insert(raw.name.clone());
                }
                Some(Found::Put(raw))
            }
            Event::Gone(raw) => Some(Found::Gone(raw)),
            Event::Listed => {
                self.progress.listed(name);
                Some(Found::All(self.found.take().unwrap_or_default()))
            }
            Event::Failed(trouble) => {
                self.progress.fails(name, trouble);
                None
            }
            Event::Well => {
                self.progress.goes_well(name);
                None
            }
        }
    }
}

impl Progress {
    fn listed(&mut self, name: &str) {
        self.listing = false;
        self.synced = true;
        self.goes_well(name);
    }

    fn fails(&mut self, name: &str, trouble: Trouble) {
        let (synced, said) = (self.synced, trouble.clone());
        if self.failed(trouble) {
            progress::log(name, &said, synced);
        }
    }

    fn goes_well(&mut self, name: &str) {
        if self.well() {
            tracing::info!(kind = name, "the Kubernetes API answers again");
        }
    }
}
