//! The thread that owns the world and the hub.
//!
//! All accesses are messages of a bounded channel. Messages that arrive while the thread works are processed together,
//! and the batches among them become one commit. Under a storm of changes, commits are paced ([`Pace`]); an idle system
//! waits for no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use config::{Diagnostic, MeshConfig, Severity};
use model::proxy::Proxy;
use status::Elapsed;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use world::{Batch, World};
use xds::{Limits, Next, Request, StreamId, Variant};

use crate::counters::Counters;
use crate::grpc::{Down, Status};
use crate::mcp::Configuration;
use crate::pace::{LastCommit, Pace};
use crate::served_world::{Hub, ServedWorld};
use crate::status_tracker::{Observations, StatusTracker};

/// The number of queued messages; senders wait when the queue is full.
const QUEUE: usize = 4096;
/// The maximum number of messages that are processed together.
const TAKEN_TOGETHER: usize = 1024;
/// The number of queued responses of one stream. At most one per type is outstanding, followed by the end of the
/// stream.
pub(crate) const DOWN_QUEUE: usize = 8;

/// Hostnames.
pub type Names = Arc<BTreeSet<Arc<str>>>;

/// The thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("the control plane is shutting down")]
pub struct Closed;

/// A handle to the thread that owns the world. Cheap to clone.
#[derive(Clone)]
pub struct WorldHandle {
    messages: mpsc::Sender<Message>,
    names: watch::Receiver<Names>,
    mesh: watch::Receiver<Arc<MeshConfig>>,
    configuration: Configuration,
}

pub(crate) enum Message {
    Commit(Batch, Observations),
    Connect {
        proxy: Box<Proxy>,
        variant: Variant,
        down: mpsc::Sender<Down>,
        reply: oneshot::Sender<Result<StreamId, Status>>,
    },
    Request(StreamId, Box<Request>),
    Disconnect(StreamId),
    Inspect(Box<dyn FnOnce(&mut Core) + Send>),
    End,
}

/// The state of the thread.
pub(crate) struct Core {
    pub(crate) served: ServedWorld,
    pub(crate) hub: Hub,
    pub(crate) counters: Counters,
    pub(crate) tracker: StatusTracker,
    streams: HashMap<StreamId, mpsc::Sender<Down>>,
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
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.batch.is_none() && self.observed.is_empty()
    }

    fn add(&mut self, later: Batch, observed: Observations) {
        self.observed.extend(observed);
        match &mut self.batch {
            Some(batch) => batch.merge(later),
            None => self.batch = Some(later),
        }
    }
}

impl WorldHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(world: World, limits: Limits, pace: Pace) -> std::io::Result<WorldHandle> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let started = Instant::now();
        let (wanted, names) = watch::channel(world.wanted_names());
        let (mesh, mesh_in_effect) = watch::channel(Arc::new(world.mesh_settings().config.clone()));
        let configuration = Configuration::default();
        configuration.set_mesh(MeshConfig::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let core = Core {
            hub: xds::Hub::new(limits, world.types().clone()),
            served: ServedWorld { world, conflicts: Vec::new() },
            counters: Counters::default(),
            tracker: StatusTracker::new(started),
            streams: HashMap::new(),
            names: wanted,
            mesh,
            configuration: configuration.clone(),
            started,
            ending: false,
            gathered: Gathered::default(),
            pace,
            committed: None,
        };
        // A separate thread, because derivation must not block sockets.
        std::thread::Builder::new().name("world".into()).spawn(move || runtime.block_on(run(core, receiver)))?;
        Ok(WorldHandle { messages: sender, names, mesh: mesh_in_effect, configuration })
    }

    /// Commits a batch. Returns when it is queued.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit(&self, batch: Batch) -> Result<(), Closed> {
        self.commit_observed(batch, Observations::new()).await
    }

    /// Commits a batch with observations of its objects and of invalid objects that are not in it. Their statuses are
    /// sent through [`WorldHandle::feedback`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit_observed(&self, batch: Batch, observed: Observations) -> Result<(), Closed> {
        self.send(Message::Commit(batch, observed)).await
    }

    /// The hostnames whose addresses derivation needs, after all earlier commits. The addresses are set with
    /// [`Batch::set_addresses`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn wanted_names(&self) -> Result<watch::Receiver<Names>, Closed> {
        self.inspect(|_| ()).await?;
        Ok(self.names.clone())
    }

    /// Batches of statuses to write, while this replica leads ([`WorldHandle::lead`]). A slow receiver delays only
    /// statuses. A new receiver replaces an earlier one.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn feedback(&self, settings: status::Settings) -> Result<mpsc::Receiver<Vec<status::Intent>>, Closed> {
        self.inspect(move |core| core.tracker.attach(settings)).await
    }

    /// Sets whether this replica writes statuses. Initially it does not.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn lead(&self, leading: bool) -> Result<(), Closed> {
        self.inspect(move |core| core.tracker.lead(leading, core.now())).await
    }

    /// The mesh configuration in effect.
    pub fn mesh(&self) -> watch::Receiver<Arc<MeshConfig>> {
        self.mesh.clone()
    }

    /// The objects in effect, for other control planes.
    pub fn configuration(&self) -> Configuration {
        self.configuration.clone()
    }

    /// Ends all streams and the thread.
    pub async fn end(&self) {
        let _ = self.send(Message::End).await;
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), Closed> {
        self.messages.send(message).await.map_err(|_| Closed)
    }

    /// Runs a function on the thread, after all earlier messages.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |core: &mut Core| drop(reply.send(look(core))));
        self.send(Message::Inspect(look)).await?;
        answer.await.map_err(|_| Closed)
    }
}

async fn run(mut core: Core, mut messages: mpsc::Receiver<Message>) {
    let mut taken = Vec::new();
    while !core.ending {
        let deadline = [core.hub.deadline(), core.tracker.deadline()].into_iter().flatten().min();
        let deadline = deadline.map(|at| core.started + at).into_iter().chain(core.commit_due()).min();
        tokio::select! {
            count = messages.recv_many(&mut taken, TAKEN_TOGETHER) => if count == 0 { return },
            () = until(deadline) => {}
        }
        while taken.len() < TAKEN_TOGETHER
            && let Ok(message) = messages.try_recv()
        {
            taken.push(message);
        }
        core.work(taken.drain(..));
    }
}

/// Logs a diagnostic at the level of its severity.
pub fn log_diagnostic(diagnostic: &Diagnostic) {
    match diagnostic.severity {
        Severity::Error => tracing::error!(code = diagnostic.code, "{diagnostic}"),
        Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        Severity::Info => tracing::info!(code = diagnostic.code, "{diagnostic}"),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

impl Core {
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
    /// an inspection.
    fn work(&mut self, messages: impl Iterator<Item = Message>) {
        for message in messages {
            match message {
                Message::Commit(later, more) => self.gathered.add(later, more),
                Message::Connect { proxy, variant, down, reply } => {
                    let answer = self.connect(*proxy, variant, down);
                    if let Err(Ok(id)) = reply.send(answer) {
                        // The client disconnected before it was admitted.
                        self.disconnect(id);
                    }
                }
                Message::Request(id, request) => self.request(id, *request),
                Message::Disconnect(id) => self.disconnect(id),
                Message::Inspect(look) => {
                    self.take_in();
                    let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
                    self.contain("a debug page", looked);
                }
                Message::End => self.ending = true,
            }
        }
        if self.commit_due().is_some_and(|due| due <= Instant::now()) {
            self.take_in();
        }
        self.hub.tick(self.now());
        self.push();
        self.track();
        if self.ending {
            self.end_all();
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
        changes.overridden.iter().for_each(log_diagnostic);
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
        tracing::debug!(
            epoch = changes.epoch,
            resources = changes.resources.len(),
            catalogues = changes.catalogues.len(),
            micros = start.elapsed().as_micros(),
            "committed"
        );
        let now = self.now();
        self.tracker.conflict(&changes.conflicts, now);
        self.tracker.patched(&changes.patching, now);
        let applied =
            catch_unwind(AssertUnwindSafe(|| self.hub.apply(&mut self.served, ServedWorld::changes(changes), now)));
        self.contain("applying a commit", applied);
    }

    fn connect(&mut self, proxy: Proxy, variant: Variant, down: mpsc::Sender<Down>) -> Result<StreamId, Status> {
        let now = self.now();
        let connected = catch_unwind(AssertUnwindSafe(|| self.hub.connect(&mut self.served, proxy, variant, now)));
        let id = match connected {
            Ok(connected) => connected?,
            Err(panic) => {
                self.contain::<()>("a connecting proxy", Err(panic));
                return Err(Status::new(Status::INTERNAL, "an internal error; see the log"));
            }
        };
        self.streams.insert(id, down);
        Ok(id)
    }

    fn request(&mut self, id: StreamId, request: Request) {
        let now = self.now();
        let fed = catch_unwind(AssertUnwindSafe(|| self.hub.request(&mut self.served, id, request, now)));
        match fed {
            Ok(Ok(())) => {}
            Ok(Err(status)) => self.end(id, status.into()),
            Err(panic) => {
                self.contain::<()>("a stream", Err(panic));
                self.end(id, Status::new(Status::INTERNAL, "an internal error; see the log"));
            }
        }
    }

    /// Queues all responses that can be sent.
    fn push(&mut self) {
        let now = self.now();
        for id in self.hub.take_woken() {
            loop {
                match catch_unwind(AssertUnwindSafe(|| self.hub.next(id, now))) {
                    Ok(Next::Idle) => break,
                    Ok(Next::Send(response)) => {
                        self.counters.note(&response);
                        let sent = self.streams.get(&id).map(|down| down.try_send(Down::Message(response.rope)));
                        if !matches!(sent, Some(Ok(()))) {
                            // The client has disconnected, or does not read the responses that it requested.
                            self.disconnect(id);
                            break;
                        }
                    }
                    Ok(Next::End(status)) => {
                        self.end(id, status.into());
                        break;
                    }
                    Err(panic) => {
                        self.contain::<()>("a stream", Err(panic));
                        self.end(id, Status::new(Status::INTERNAL, "an internal error; see the log"));
                        break;
                    }
                }
            }
        }
    }

    /// Counts due objects and sends changed statuses.
    fn track(&mut self) {
        let now = self.now();
        self.tracker.conflict(&std::mem::take(&mut self.served.conflicts), now);
        let tracked = catch_unwind(AssertUnwindSafe(|| {
            self.tracker.turn(&self.served, &mut self.hub, now);
        }));
        self.contain("counting", tracked);
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

    fn disconnect(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_none() {
            return;
        }
        let gone = catch_unwind(AssertUnwindSafe(|| self.hub.disconnect(&mut self.served, id)));
        self.contain("a leaving stream", gone);
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
