//! The thread that owns the world and the hub.
//!
//! It works in turns. In each, every kind of work gets a share of the time: messages, responses to streams that were
//! woken, requests that are handled in parts, and what streams leave behind when they end. What does not fit waits for
//! the next turn, so that the work of one client, or of thousands that leave, does not hold up that of others.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::MeshConfig;
use model::proxy::Proxy;
use status::Elapsed;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use world::{Batch, World};
use xds::{Limits, Next, Progress, Quarantined, Request, StreamId, Variant};

use crate::counters::Counters;
use crate::discovery::Place;
use crate::grpc::{Down, Status};
use crate::log::log_diagnostics;
use crate::mcp::Configuration;
use crate::pace::{LastCommit, Pace};
use crate::served_world::{Hub, ServedWorld};
use crate::stalls::Step;
use crate::status_tracker::{Observations, StatusTracker};

/// The time that one kind of work gets in a turn. A step that has begun is completed.
const SHARE: Duration = Duration::from_millis(10);
/// The number of unused cells that are closed in one step.
const CLOSED_TOGETHER: usize = 32;

/// Hostnames.
pub type Names = Arc<BTreeSet<Arc<str>>>;

/// A request, and its place among the stream's requests that are not handled yet.
pub(crate) type QueuedRequest = (Box<Request>, Place);

/// A message to the thread.
pub(crate) enum Message {
    Commit(Batch, Observations),
    Connect {
        proxy: Box<Proxy>,
        variant: Variant,
        down: mpsc::Sender<Down>,
        reply: oneshot::Sender<Result<StreamId, Status>>,
    },
    Request(StreamId, QueuedRequest),
    Disconnect(StreamId),
    Inspect(Box<dyn FnOnce(&mut Core) + Send>),
    End,
}

/// The values that other threads watch: the hostnames that the world needs resolved, the mesh configuration in effect, and the
/// objects in effect, for other control planes.
type Watched = (watch::Sender<Names>, watch::Sender<Arc<MeshConfig>>, Configuration);

/// The state of the thread.
pub(crate) struct Core {
    pub(crate) served: ServedWorld,
    pub(crate) hub: Hub,
    pub(crate) counters: Counters,
    pub(crate) tracker: StatusTracker,
    streams: HashMap<StreamId, mpsc::Sender<Down>>,
    /// The streams with a request that is handled in parts, in turn.
    partial: VecDeque<StreamId>,
    /// The further requests of these streams.
    waiting: HashMap<StreamId, VecDeque<QueuedRequest>>,
    /// Streams that have ended and that the hub still has.
    leaving: VecDeque<StreamId>,
    /// The hostnames that the world needs resolved.
    names: watch::Sender<Names>,
    /// The mesh configuration in effect.
    mesh: watch::Sender<Arc<MeshConfig>>,
    /// The objects in effect, for other control planes.
    configuration: Configuration,
    /// The time from which [`Elapsed`] counts.
    pub(crate) started: Instant,
    ending: bool,
    /// Changes that wait for the next commit.
    gathered: Gathered,
    pace: Pace,
    committed: Option<LastCommit>,
}

/// Merged batches with the observations that came with them.
#[derive(Default)]
struct Gathered {
    batch: Option<Batch>,
    observed: Observations,
    /// When the first batch arrived.
    since: Option<Instant>,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.batch.is_none() && self.observed.is_empty()
    }

    fn add(&mut self, later: Batch, observed: Observations) {
        self.observed.extend(observed);
        self.since.get_or_insert_with(Instant::now);
        match &mut self.batch {
            Some(batch) => batch.merge(later),
            None => self.batch = Some(later),
        }
    }
}

impl Core {
    pub(crate) fn new(
        world: World,
        limits: Limits,
        pace: Pace,
        started: Instant,
        (names, mesh, configuration): Watched,
    ) -> Core {
        Core {
            hub: xds::Hub::new(limits, world.types().clone()),
            served: ServedWorld { world, conflicts: Vec::new() },
            counters: Counters::default(),
            tracker: StatusTracker::new(started),
            streams: HashMap::new(),
            partial: VecDeque::new(),
            waiting: HashMap::new(),
            leaving: VecDeque::new(),
            names,
            mesh,
            configuration,
            started,
            ending: false,
            gathered: Gathered::default(),
            pace,
            committed: None,
        }
    }

    /// Whether the thread must end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending
    }

    /// Whether there is work that waits for neither a message nor a time.
    pub(crate) fn is_busy(&self) -> bool {
        let hub = &self.hub;
        hub.has_woken() || hub.has_unused() || !self.partial.is_empty() || !self.leaving.is_empty()
    }

    /// The time of the next turn, if no message arrives before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadline = [self.hub.deadline(), self.tracker.deadline()].into_iter().flatten().min();
        deadline.map(|at| self.started + at).into_iter().chain(self.commit_due()).min()
    }

    pub(crate) fn now(&self) -> Elapsed {
        self.started.elapsed()
    }

    /// The time at which the waiting changes are committed; `None` if none are waiting.
    fn commit_due(&self) -> Option<Instant> {
        if self.gathered.is_empty() {
            return None;
        }
        Some(self.committed.map_or_else(Instant::now, |last| last.next(&self.pace)))
    }

    /// Processes messages in order, except that batches are merged into one commit, which is made when it is due or before
    /// an inspection; and does a part of what else there is to do. Leaves messages for which there was no time.
    pub(crate) fn turn(&mut self, messages: &mut VecDeque<Message>) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE
            && let Some(message) = messages.pop_front()
        {
            self.take(message);
        }
        if self.commit_due().is_some_and(|due| due <= Instant::now()) {
            self.take_in();
        }
        let now = self.now();
        self.hub.tick(&mut self.served, now);
        self.push();
        self.proceed();
        self.clean_up();
        self.track();
        if self.ending {
            self.end_all();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Commit(later, more) => self.gathered.add(later, more),
            Message::Connect { proxy, variant, down, reply } => {
                let answer = self.connect(*proxy, variant, down);
                if let Err(Ok(id)) = reply.send(answer) {
                    // The client disconnected before it was admitted.
                    self.disconnect(id);
                }
            }
            Message::Request(id, request) => match self.waiting.get_mut(&id) {
                Some(waiting) => waiting.push_back(request),
                None => self.request(id, request),
            },
            Message::Disconnect(id) => self.disconnect(id),
            Message::Inspect(look) => {
                self.take_in();
                let begun = Instant::now();
                let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
                self.contain("a debug page", looked);
                self.counters.stalls.note(Step::Inspect, begun, String::new);
            }
            Message::End => self.ending = true,
        }
    }

    /// Commits the waiting changes and applies the observations.
    fn take_in(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        if gathered.is_empty() {
            return;
        }
        if let Some(batch) = gathered.batch.filter(|batch| !batch.is_empty()) {
            self.committed = Some(LastCommit::now());
            gathered.since.iter().for_each(|since| self.counters.debounce.observe(since.elapsed().as_secs_f64()));
            self.commit(batch);
        }
        let now = self.now();
        let epoch = self.hub.epoch();
        self.tracker.observe(gathered.observed, &mut self.served, epoch, now);
    }

    fn commit(&mut self, batch: Batch) {
        let start = Instant::now();
        let changes = self.served.world.commit(batch);
        for panic in &changes.panics {
            tracing::error!(%panic, "a rule panicked; what it derived before stays");
        }
        self.counters.rule_panics += changes.panics.len() as u64;
        self.counters.commits += 1;
        self.counters.commit_seconds += start.elapsed().as_secs_f64();
        self.counters.events.note(&changes);
        log_diagnostics(&changes.overridden);
        self.configuration.apply(&changes.objects);
        if changes.objects.deletes.contains(&MeshConfig::key()) {
            self.configuration.set_mesh(MeshConfig::default());
        }
        if let Some(mesh) = &changes.mesh {
            self.mesh.send_replace(Arc::new(mesh.config.clone()));
        }
        if changes.names {
            self.names.send_replace(self.served.world.wanted_names());
        }
        let (resources, catalogues) = (changes.resources.len(), changes.catalogues.len());
        tracing::debug!(
            epoch = changes.epoch,
            resources,
            catalogues,
            micros = start.elapsed().as_micros(),
            "committed"
        );
        let now = self.now();
        self.tracker.conflict(&changes.conflicts, now);
        self.tracker.patched(&changes.patching, now);
        let applied =
            catch_unwind(AssertUnwindSafe(|| self.hub.apply(&mut self.served, ServedWorld::changes(changes), now)));
        self.contain("applying a commit", applied);
        self.counters.stalls.note(Step::Commit, start, || format!("{resources} resources, {catalogues} catalogues"));
    }

    fn connect(&mut self, proxy: Proxy, variant: Variant, down: mpsc::Sender<Down>) -> Result<StreamId, Status> {
        let (now, begun, name) = (self.now(), Instant::now(), proxy.id.clone());
        let connected = catch_unwind(AssertUnwindSafe(|| self.hub.connect(&mut self.served, proxy, variant, now)));
        let id = match connected {
            Ok(connected) => connected?,
            Err(panic) => {
                self.contain::<()>("a connecting proxy", Err(panic));
                return Err(Status::new(Status::INTERNAL, "an internal error; see the log"));
            }
        };
        self.streams.insert(id, down);
        self.counters.stalls.note(Step::Connect, begun, || name.to_string());
        Ok(id)
    }

    /// Handles a request, or begins to.
    fn request(&mut self, id: StreamId, (request, _place): QueuedRequest) {
        if !self.streams.contains_key(&id) {
            return;
        }
        let kind = self.hub.types().find(&request.type_url).map_or("unserved", |kind| kind.short_name);
        self.step(id, kind, |core, now| core.hub.request(&mut core.served, id, *request, now));
    }

    /// Continues requests that are handled in parts.
    fn proceed(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE
            && let Some(id) = self.partial.pop_front()
        {
            self.step(id, "in parts", |core, now| core.hub.proceed(&mut core.served, id, now));
            while !self.partial.contains(&id)
                && let Some(waiting) = self.waiting.get_mut(&id)
            {
                match waiting.pop_front() {
                    Some(request) => self.request(id, request),
                    None => drop(self.waiting.remove(&id)),
                }
            }
        }
    }

    /// Does a part of a request, and ends the stream if that fails.
    fn step(
        &mut self,
        id: StreamId,
        kind: &'static str,
        part: impl FnOnce(&mut Core, Elapsed) -> Result<Progress, xds::Status>,
    ) {
        let (now, begun) = (self.now(), Instant::now());
        match catch_unwind(AssertUnwindSafe(|| part(self, now))) {
            Ok(Ok(Progress::Done)) => {}
            Ok(Ok(Progress::More)) => {
                self.partial.push_back(id);
                self.waiting.entry(id).or_default();
            }
            Ok(Err(status)) => self.end(id, status.into()),
            Err(panic) => {
                self.contain::<()>("a stream", Err(panic));
                self.end(id, Status::new(Status::INTERNAL, "an internal error; see the log"));
            }
        }
        let Core { counters, hub, .. } = self;
        counters.stalls.note(Step::Request, begun, || format!("{kind} of {}", name_of(hub, id)));
    }

    /// Queues responses that can be sent.
    fn push(&mut self) {
        let (now, begun) = (self.now(), Instant::now());
        let mut last = None;
        while begun.elapsed() < SHARE
            && let Some(id) = self.hub.pop_woken()
        {
            // A stream that has ended may still be in the hub.
            if self.streams.contains_key(&id) {
                self.push_to(id, now);
                last = Some(id);
            }
        }
        if let Some(last) = last {
            let Core { counters, hub, .. } = self;
            counters.stalls.note(Step::Push, begun, || format!("the last one to {}", name_of(hub, last)));
        }
    }

    fn push_to(&mut self, id: StreamId, now: Elapsed) {
        loop {
            let begun = Instant::now();
            match catch_unwind(AssertUnwindSafe(|| self.hub.next(id, now))) {
                Ok(Next::Idle) => return,
                Ok(Next::Send(response)) => {
                    self.counters.note(&response, begun.elapsed());
                    let sent = self.streams.get(&id).map(|down| down.try_send(Down::Message(response.rope)));
                    if !matches!(sent, Some(Ok(()))) {
                        // The client has disconnected, or does not read the responses that it requested.
                        self.counters.unread += u64::from(matches!(sent, Some(Err(TrySendError::Full(_)))));
                        return self.disconnect(id);
                    }
                }
                Ok(Next::End(status)) => return self.end(id, status.into()),
                Err(panic) => {
                    self.contain::<()>("a stream", Err(panic));
                    return self.end(id, Status::new(Status::INTERNAL, "an internal error; see the log"));
                }
            }
        }
    }

    /// Removes streams that have ended from the hub, and closes unused cells.
    fn clean_up(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE
            && let Some(id) = self.leaving.pop_front()
        {
            let (step, name) = (Instant::now(), name_of(&self.hub, id));
            let gone = catch_unwind(AssertUnwindSafe(|| self.hub.disconnect(&mut self.served, id)));
            self.contain("a leaving stream", gone);
            self.counters.stalls.note(Step::Disconnect, step, || name.to_string());
        }
        while begun.elapsed() < SHARE && self.hub.has_unused() {
            let step = Instant::now();
            let closed = catch_unwind(AssertUnwindSafe(|| self.hub.close_unused(&mut self.served, CLOSED_TOGETHER)));
            self.contain("closing cells", closed);
            self.counters.stalls.note(Step::Close, step, String::new);
        }
    }

    /// Counts due objects and sends changed statuses.
    fn track(&mut self) {
        let (now, begun) = (self.now(), Instant::now());
        self.tracker.conflict(&std::mem::take(&mut self.served.conflicts), now);
        let tracked = catch_unwind(AssertUnwindSafe(|| {
            self.tracker.turn(&self.served, &mut self.hub, now);
        }));
        self.contain("counting", tracked);
        for one in self.hub.take_quarantined() {
            self.counters.quarantined += 1;
            log_quarantined(&one);
        }
        self.counters.stalls.note(Step::Count, begun, String::new);
    }

    fn end(&mut self, id: StreamId, status: Status) {
        if let Some(down) = self.streams.get(&id) {
            let _ = down.try_send(Down::End(status));
        }
        self.disconnect(id);
    }

    fn end_all(&mut self) {
        let ids: Vec<StreamId> = self.streams.keys().copied().collect();
        for id in ids {
            self.end(id, Status::new(Status::UNAVAILABLE, "the control plane is shutting down"));
        }
    }

    /// Ends a stream. The hub removes it later.
    fn disconnect(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_some() {
            self.waiting.remove(&id);
            self.partial.retain(|other| *other != id);
            self.leaving.push_back(id);
        }
    }

    /// Logs a panic and continues without its result.
    fn contain<T>(&mut self, what: &str, outcome: std::thread::Result<T>) {
        let Err(panic) = outcome else { return };
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(what, panic = text, "a panic was contained");
        self.counters.panics += 1;
    }
}

/// Logs that a resource is no longer sent to the proxies that reject it.
fn log_quarantined(one: &Quarantined) {
    let Quarantined { kind, resource, part, replaced, proxy, message, .. } = one;
    tracing::warn!(
        target: "xds",
        r#type = kind.short_name,
        ?resource,
        part = ?part.as_deref().unwrap_or_default(),
        instead = if *replaced { "the last acknowledged version, or one without routes" } else { "nothing" },
        node = ?proxy,
        error = ?message,
        "quarantined what a proxy rejects"
    );
}

/// The name of a stream's proxy.
fn name_of(hub: &Hub, id: StreamId) -> Arc<str> {
    hub.proxy(id).map(|proxy| proxy.id.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
