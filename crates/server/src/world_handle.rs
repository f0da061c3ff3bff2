//! The thread that owns the world and the hub.
//!
//! Everything that reads or changes them is a message of a bounded channel. Messages that wait while one is worked on are
//! taken together: the batches among them become one commit, so that a storm of changes costs a few commits and an idle
//! system waits for no timer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use model::proxy::Proxy;
use status::Elapsed;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use world::{Batch, World};
use xds::{Limits, Next, Request, StreamId, Variant};

use crate::grpc::{Down, Status};
use crate::metrics::Counts;
use crate::served_world::ServedWorld;
use crate::status_tracker::{Observations, StatusTracker};

/// Messages that may wait; senders wait when there are more.
const QUEUE: usize = 4096;
/// Messages that are taken together at most.
const TAKEN_TOGETHER: usize = 1024;
/// Responses that may wait for one stream: one per type is ever outstanding, and then the end.
pub(crate) const DOWN_QUEUE: usize = 8;

/// Hostnames.
pub type Names = Arc<BTreeSet<Arc<str>>>;

/// The hub of streams over the world.
pub(crate) type Hub = xds::Hub<ServedWorld>;

/// The thread has ended.
#[derive(Debug, thiserror::Error)]
#[error("the control plane is shutting down")]
pub struct Closed;

/// A handle to the thread that owns the world. Cheap to clone.
#[derive(Clone)]
pub struct WorldHandle {
    messages: mpsc::Sender<Message>,
    started: Instant,
    names: watch::Receiver<Names>,
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

/// What the thread owns.
pub(crate) struct Core {
    pub(crate) served: ServedWorld,
    pub(crate) hub: Hub,
    pub(crate) counts: Counts,
    pub(crate) tracker: StatusTracker,
    streams: HashMap<StreamId, mpsc::Sender<Down>>,
    /// The names that the world wants looked up.
    names: watch::Sender<Names>,
    started: Instant,
    ending: bool,
}

/// Commits that came together, as one, and what was told with them.
#[derive(Default)]
struct Gathered {
    batch: Option<Batch>,
    observed: Observations,
}

impl Gathered {
    fn add(&mut self, later: Batch, observed: Observations) {
        self.observed.extend(observed);
        match &mut self.batch {
            Some(batch) => batch.merge(later),
            None => self.batch = Some(later),
        }
    }
}

impl WorldHandle {
    /// Starts the thread. `floor` is the least time between two commits; zero commits at once.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn start(world: World, limits: Limits, floor: Duration) -> std::io::Result<WorldHandle> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let started = Instant::now();
        let (wanted, names) = watch::channel(world.wanted_names());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let core = Core {
            hub: xds::Hub::new(limits, world.types().clone()),
            served: ServedWorld(world),
            counts: Counts::default(),
            tracker: StatusTracker::new(started),
            streams: HashMap::new(),
            names: wanted,
            started,
            ending: false,
        };
        // A thread of its own: deriving takes as long as it takes and must not hold up sockets.
        std::thread::Builder::new()
            .name("world".into())
            .spawn(move || runtime.block_on(run(core, receiver, floor)))?;
        Ok(WorldHandle {
            messages: sender,
            started,
            names,
        })
    }

    /// Commits a batch; returns when it is queued.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit(&self, batch: Batch) -> Result<(), Closed> {
        self.commit_observed(batch, Observations::new()).await
    }

    /// Commits a batch, and tells of its objects, and of objects that are not valid and so not in it. The objects'
    /// statuses tell what became of them: see [`WorldHandle::feedback`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn commit_observed(&self, batch: Batch, observed: Observations) -> Result<(), Closed> {
        self.send(Message::Commit(batch, observed)).await
    }

    /// The hostnames that derivation needs the addresses of, after everything that was committed before. They are told
    /// with [`Batch::set_addresses`].
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn wanted_names(&self) -> Result<watch::Receiver<Names>, Closed> {
        self.inspect(|_| ()).await?;
        Ok(self.names.clone())
    }

    /// Statuses that are to be written, in batches, from when this replica leads ([`WorldHandle::lead`]). A receiver that
    /// does not keep up delays statuses and nothing else. There is one: an earlier one ends.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn feedback(&self, settings: status::Settings) -> Result<mpsc::Receiver<Vec<status::Intent>>, Closed> {
        self.inspect(move |core| core.tracker.attach(settings)).await
    }

    /// Says whether this replica is the one that writes statuses. At first it is not.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn lead(&self, leading: bool) -> Result<(), Closed> {
        self.inspect(move |core| core.tracker.lead(leading, core.now())).await
    }

    /// Ends all streams and the thread.
    pub async fn end(&self) {
        let _ = self.send(Message::End).await;
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), Closed> {
        self.messages.send(message).await.map_err(|_| Closed)
    }

    /// Runs a function on the thread, after everything that was sent before.
    pub(crate) async fn inspect<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |core: &mut Core| drop(reply.send(look(core))));
        self.send(Message::Inspect(look)).await?;
        answer.await.map_err(|_| Closed)
    }

    /// When the thread started: what a [`Elapsed`] counts from.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }
}

async fn run(mut core: Core, mut messages: mpsc::Receiver<Message>, floor: Duration) {
    let mut taken = Vec::new();
    let mut committed: Option<Instant> = None;
    while !core.ending {
        let deadline = [core.hub.deadline(), core.tracker.deadline()]
            .into_iter()
            .flatten()
            .min();
        let deadline = deadline.map(|at| core.started + at);
        tokio::select! {
            count = messages.recv_many(&mut taken, TAKEN_TOGETHER) => if count == 0 { return },
            () = until(deadline) => {}
        }
        if let Some(wait) = committed
            .and_then(|at| floor.checked_sub(at.elapsed()))
            .filter(|w| !w.is_zero())
            && taken.iter().any(|m| matches!(m, Message::Commit(..)))
        {
            // Requested, for small machines: what comes meanwhile is gathered into the same commit.
            tokio::time::sleep(wait).await;
        }
        while taken.len() < TAKEN_TOGETHER
            && let Ok(message) = messages.try_recv()
        {
            taken.push(message);
        }
        if core.work(taken.drain(..)) {
            committed = Some(Instant::now());
        }
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

    /// Works on messages in order, but for commits, which become one: at the end, or before somebody looks. True: there
    /// was one.
    fn work(&mut self, messages: impl Iterator<Item = Message>) -> bool {
        let mut gathered = Gathered::default();
        let mut committed = false;
        for message in messages {
            match message {
                Message::Commit(later, more) => gathered.add(later, more),
                Message::Connect {
                    proxy,
                    variant,
                    down,
                    reply,
                } => {
                    let answer = self.connect(*proxy, variant, down);
                    if let Err(Ok(id)) = reply.send(answer) {
                        // The client left before it was let in.
                        self.disconnect(id);
                    }
                }
                Message::Request(id, request) => self.request(id, *request),
                Message::Disconnect(id) => self.disconnect(id),
                Message::Inspect(look) => {
                    committed |= self.take_in(std::mem::take(&mut gathered));
                    let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
                    self.contain("a debug page", looked);
                }
                Message::End => self.ending = true,
            }
        }
        committed |= self.take_in(gathered);
        self.hub.tick(self.now());
        self.push();
        self.track();
        if self.ending {
            self.end_all();
        }
        committed
    }

    /// Commits what was gathered, and notes what was told with it. True: there was something to commit.
    fn take_in(&mut self, gathered: Gathered) -> bool {
        let committed = gathered.batch.is_some();
        if let Some(batch) = gathered.batch.filter(|batch| !batch.is_empty()) {
            self.commit(batch);
        }
        let now = self.now();
        let epoch = self.hub.epoch();
        self.tracker.observe(gathered.observed, &mut self.served, epoch, now);
        committed
    }

    fn commit(&mut self, batch: Batch) {
        let start = Instant::now();
        let changes = self.served.0.commit(batch);
        for panic in &changes.panics {
            tracing::error!(%panic, "a rule panicked; what it derived before stays");
        }
        self.counts.rule_panics += changes.panics.len() as u64;
        self.counts.commits += 1;
        self.counts.commit_seconds += start.elapsed().as_secs_f64();
        if changes.names {
            self.names.send_replace(self.served.0.wanted_names());
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
        let applied = catch_unwind(AssertUnwindSafe(|| {
            self.hub.apply(&mut self.served, ServedWorld::changes(changes), now)
        }));
        self.contain("applying a commit", applied);
    }

    fn connect(&mut self, proxy: Proxy, variant: Variant, down: mpsc::Sender<Down>) -> Result<StreamId, Status> {
        let now = self.now();
        let connected = catch_unwind(AssertUnwindSafe(|| {
            self.hub.connect(&mut self.served, proxy, variant, now)
        }));
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
        let fed = catch_unwind(AssertUnwindSafe(|| {
            self.hub.request(&mut self.served, id, request, now)
        }));
        match fed {
            Ok(Ok(())) => {}
            Ok(Err(status)) => self.end(id, status.into()),
            Err(panic) => {
                self.contain::<()>("a stream", Err(panic));
                self.end(id, Status::new(Status::INTERNAL, "an internal error; see the log"));
            }
        }
    }

    /// Sends what there is to send.
    fn push(&mut self) {
        let now = self.now();
        for id in self.hub.take_woken() {
            loop {
                match catch_unwind(AssertUnwindSafe(|| self.hub.next(id, now))) {
                    Ok(Next::Idle) => break,
                    Ok(Next::Send(response)) => {
                        self.counts.note(&response);
                        let sent = self
                            .streams
                            .get(&id)
                            .map(|down| down.try_send(Down::Message(response.rope)));
                        if !matches!(sent, Some(Ok(()))) {
                            // Gone, or it does not take what it asked for.
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

    /// Hands out what is to be told of objects.
    fn track(&mut self) {
        let now = self.now();
        let said = self.served.0.take_conflicts();
        self.tracker.conflict(&said, now);
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
            self.end(
                id,
                Status::new(Status::UNAVAILABLE, "the control plane is shutting down"),
            );
        }
    }

    fn disconnect(&mut self, id: StreamId) {
        if self.streams.remove(&id).is_none() {
            return;
        }
        let gone = catch_unwind(AssertUnwindSafe(|| self.hub.disconnect(&mut self.served, id)));
        self.contain("a leaving stream", gone);
    }

    /// Notes a panic and goes on without what panicked.
    fn contain<T>(&mut self, what: &str, outcome: std::thread::Result<T>) {
        let Err(panic) = outcome else { return };
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        tracing::error!(what, panic = text, "a panic was contained");
        self.counts.panics += 1;
    }
}
