//! The thread that owns the world and the hub.
//!
//! It works in turns. In each, every kind of work gets a share of the time: messages, responses to streams that were
//! woken, requests that are handled in parts, moves between audiences, and what streams leave behind when they end. What
//! does not fit waits for the next turn, so that the work of one client, or of thousands that leave, does not hold up that of
//! others. A commit runs on another thread; meanwhile, this one does what needs no world ([`Clients`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::proxy::Proxy;
use status::Elapsed;
use tokio::sync::{mpsc, oneshot};
use world::{Batch, World};
use xds::{Limits, Request, StreamId, Variant};

use crate::ahead::{Ahead, Expected};
use crate::clients::{Clients, Streams, name_of};
use crate::counters::Counters;
use crate::discovery::Place;
use crate::gathered::{Gathered, Paces};
use crate::grpc::{Down, Status};
use crate::inbox::Inbox;
use crate::pace::Pace;
use crate::repairs::Repairs;
use crate::served_world::{Hub, ServedWorld};
use crate::stalls::Step;
use crate::status_tracker::{Observations, StatusTracker};
use crate::watched::Watched;
use crate::xds_log;

/// The time that one kind of work gets in a turn. A step that has begun is completed.
pub(crate) const SHARE: Duration = Duration::from_millis(10);
/// The number of unused cells that are closed in one step.
const CLOSED_TOGETHER: usize = 8;
/// The number of streams that are connected, removed or moved in one step.
const STREAMS_TOGETHER: usize = 32;

/// The number of threads that derive for a step of this one: it must not wait for another one to be scheduled.
const ALONE: usize = 1;

/// The reason for which the control plane does not work as it should, if there is one.
pub(crate) type Health = Result<(), String>;

/// The time between two turns without a message if the world cannot be used.
const WITHOUT_WORLD: Duration = Duration::from_secs(1);

/// A request, and its place among the stream's requests that are not handled yet.
pub(crate) type QueuedRequest = (Box<Request>, Place);

/// A message to the thread.
pub(crate) enum Message {
    Commit(Batch, Observations),
    Connect(Connect),
    Request(StreamId, QueuedRequest),
    /// A stream has ended, for this reason.
    Disconnect(StreamId, String),
    /// A question that is answered when all earlier messages have had their effect.
    Inspect(Look),
    /// A question that is answered without a commit of changes that wait: for a further part of a long answer.
    Look(Look),
    /// Asks for a fork of the world in which all earlier messages have had their effect.
    Fork(oneshot::Sender<World>),
    /// Asks whether the thread works.
    Check(oneshot::Sender<Health>),
    End,
}

/// Answers a question.
pub(crate) type Look = Box<dyn FnOnce(&mut Core) + Send>;

/// A proxy that connects.
pub(crate) struct Connect {
    pub(crate) proxy: Box<Proxy>,
    pub(crate) variant: Variant,
    pub(crate) down: mpsc::Sender<Down>,
    pub(crate) reply: oneshot::Sender<Result<StreamId, Status>>,
}

/// The state of the thread.
pub(crate) struct Core {
    pub(crate) served: ServedWorld,
    pub(crate) hub: Hub,
    pub(crate) counters: Counters,
    pub(crate) tracker: StatusTracker,
    pub(crate) streams: Streams,
    /// Proxies that connect in this turn.
    connecting: Vec<Connect>,
    watched: Watched,
    /// The time from which [`Elapsed`] counts.
    pub(crate) started: Instant,
    ending: bool,
    /// Changes that wait for the next commit.
    gathered: Gathered,
    pace: Pace,
    paces: Paces,
    /// The time that the next commit may take.
    expected: Expected,
    /// A fork of the world while a commit runs that may take long.
    ahead: Option<Ahead>,
    pub(crate) repairs: Repairs,
}

impl Core {
    pub(crate) fn new(mut world: World, limits: Limits, pace: Pace, started: Instant, watched: Watched) -> Core {
        world.limit_threads(ALONE);
        Core {
            hub: xds::Hub::new(limits, world.types().clone()),
            served: ServedWorld { world, conflicts: Vec::new() },
            counters: Counters::default(),
            tracker: StatusTracker::new(started),
            streams: Streams::default(),
            connecting: Vec::new(),
            watched,
            started,
            ending: false,
            gathered: Gathered::default(),
            pace,
            paces: Paces::default(),
            expected: Expected::default(),
            ahead: None,
            repairs: Repairs::default(),
        }
    }

    /// Whether the thread must end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending
    }

    /// Whether there is work that waits for neither a message nor a time.
    pub(crate) fn is_busy(&self) -> bool {
        let (hub, streams) = (&self.hub, &self.streams);
        if self.repairs.has_failed() {
            return hub.has_woken();
        }
        let hub_is_busy = hub.has_woken() || hub.has_moving() || hub.has_unused() || self.tracker.has_observed();
        hub_is_busy || self.served.world.has_unused() || !streams.partial.is_empty() || !streams.leaving.is_empty()
    }

    /// The time of the next turn, if no message arrives before.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.repairs.has_failed() {
            return Some(Instant::now() + WITHOUT_WORLD);
        }
        let deadline = [self.hub.deadline(), self.tracker.deadline()].into_iter().flatten().min();
        deadline.map(|at| self.started + at).into_iter().chain(self.commit_due()).min()
    }

    pub(crate) fn now(&self) -> Elapsed {
        self.started.elapsed()
    }

    /// The time at which waiting changes are committed; `None` if none are waiting.
    fn commit_due(&self) -> Option<Instant> {
        self.gathered.due(&self.paces, &self.pace)
    }

    /// Processes messages in order, except that batches are merged into one commit, which is made when it is due or before
    /// an inspection, and that proxies are connected together; and does a part of what else there is to do. Leaves messages
    /// for which there was no time.
    pub(crate) fn turn(&mut self, inbox: &mut Inbox) {
        let begun = Instant::now();
        self.counters.stalls.begin_turn();
        while begun.elapsed() < SHARE
            && let Some(message) = inbox.pop()
        {
            self.take(message, inbox);
        }
        self.connect_all();
        if self.repairs.has_failed() {
            self.clients().expire();
            self.clients().push();
        } else {
            self.work(inbox);
        }
        if let Some(readers) = self.served.world.take_wanted_readers() {
            self.watched.readers.send_replace(Arc::new(readers));
        }
        if self.ending {
            self.end_all();
        }
    }

    /// The part of a turn that needs the world.
    fn work(&mut self, inbox: &mut Inbox) {
        if self.commit_due().is_some_and(|due| due <= Instant::now()) {
            let taken = self.gathered.take(&self.paces, &self.pace);
            self.take_in(taken, inbox);
        }
        self.tick();
        self.move_streams(inbox);
        self.clients().push();
        self.proceed(inbox);
        self.clean_up();
        self.track();
    }

    /// Does what is due.
    fn tick(&mut self) {
        let (now, begun) = (self.now(), Instant::now());
        if self.hub.deadline().is_some_and(|due| due <= now) {
            self.hub.tick(&mut self.served, now);
            self.counters.stalls.note(Step::Tick, begun, String::new);
        }
    }

    fn take(&mut self, message: Message, inbox: &mut Inbox) {
        match message {
            Message::Commit(later, more) => self.gathered.add(later, more),
            Message::Connect(connect) => {
                self.connecting.push(connect);
                if self.connecting.len() >= STREAMS_TOGETHER {
                    self.connect_all();
                }
            }
            Message::Request(id, request) => match self.streams.waiting.get_mut(&id) {
                Some(waiting) => waiting.push_back(request),
                // Without a world, no stream moves.
                None if self.hub.is_moving(id) && !self.repairs.has_failed() => {
                    self.streams.waiting.entry(id).or_default().push_back(request)
                }
                None => self.request(id, request),
            },
            Message::Disconnect(id, reason) => self.clients().disconnect(id, &reason),
            Message::Inspect(look) => {
                self.commit_all(inbox);
                self.look(look);
            }
            Message::Look(look) => self.look(look),
            Message::Fork(reply) => {
                self.commit_all(inbox);
                match self.beside(inbox, |served| served.world.fork()) {
                    Ok(fork) => drop(reply.send(fork)),
                    Err(panic) => self.contain::<()>("a fork of the world", Err(panic)),
                }
            }
            Message::Check(reply) => drop(reply.send(self.repairs.health())),
            Message::End => self.ending = true,
        }
    }

    /// Connects all proxies and commits all changes that wait.
    fn commit_all(&mut self, inbox: &mut Inbox) {
        self.connect_all();
        let taken = self.gathered.take_all();
        self.take_in(taken, inbox);
    }

    fn look(&mut self, look: Look) {
        let begun = Instant::now();
        let looked = catch_unwind(AssertUnwindSafe(|| look(self)));
        self.contain("a debug page", looked);
        self.counters.stalls.note(Step::Inspect, begun, String::new);
    }

    /// The part of the state that is not the world.
    fn clients(&mut self) -> Clients<'_> {
        let Core { hub, streams, counters, started, .. } = self;
        Clients { hub, streams, counters, started: *started }
    }

    /// Repairs the state after a panic that may have left it inconsistent: derives everything again from all objects, and ends
    /// all streams, so that proxies connect again. If that is impossible, proxies keep being served from the hub, and the
    /// world is not used any more.
    pub(crate) fn repair(&mut self, what: &'static str, panic: Box<dyn std::any::Any + Send>) {
        self.contain::<()>(what, Err(panic));
        if self.repairs.may_begin() {
            let rebuilt = catch_unwind(AssertUnwindSafe(|| self.rebuild()));
            let succeeded = rebuilt.is_ok();
            self.contain("deriving everything again", rebuilt);
            if succeeded {
                tracing::warn!(what, "everything was derived again after a panic; proxies connect again");
                return;
            }
        }
        tracing::error!(
            what,
            "changes have no effect until the control plane is restarted; proxies keep what they have"
        );
        self.repairs.fail(what);
    }

    fn rebuild(&mut self) {
        self.served.world.rebuild();
        self.served.world.limit_threads(ALONE);
        self.watched.publish(&self.served.world, true, true);
        self.watched.mesh.send_replace(Arc::new(self.served.world.mesh_settings().config.clone()));
        self.end_all_with("an internal error; connect again");
        self.streams = Streams::default();
        self.hub.restart();
        let now = self.now();
        self.tracker.watch_again(&mut self.served, now);
    }

    /// Connects proxies together, in one commit.
    fn connect_all(&mut self) {
        if self.connecting.is_empty() {
            return;
        }
        if let Err(reason) = self.repairs.health() {
            for Connect { reply, .. } in self.connecting.drain(..) {
                let _ = reply.send(Err(Status::new(Status::UNAVAILABLE, reason.clone())));
            }
            return;
        }
        let (now, begun) = (self.now(), Instant::now());
        let mut proxies = Vec::new();
        let mut replies = Vec::new();
        for Connect { proxy, variant, down, reply } in self.connecting.drain(..) {
            proxies.push((*proxy, variant));
            replies.push((down, reply));
        }
        let connected = catch_unwind(AssertUnwindSafe(|| self.hub.connect_all(&mut self.served, proxies, now)));
        let connected = connected.unwrap_or_else(|panic| {
            self.contain::<()>("connecting proxies", Err(panic));
            Vec::new()
        });
        let count = replies.len();
        let mut connected = connected.into_iter();
        for (down, reply) in replies {
            let answer = connected.next().map_or_else(|| Err(Status::failed()), |one| one.map_err(Status::from));
            if let Ok(id) = answer {
                self.streams.open.insert(id, down);
            }
            if let Err(Ok(id)) = reply.send(answer) {
                self.clients().disconnect(id, "the client disconnected before it was admitted");
            }
        }
        self.counters.stalls.note(Step::Connect, begun, || format!("{count} proxies"));
    }

    /// Moves streams whose audiences changed.
    fn move_streams(&mut self, inbox: &mut Inbox) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE
            && let Some(id) = self.hub.next_moving()
        {
            let wanted = self.hub.wanted_to_move(&self.served);
            self.open_beside((id, wanted), inbox, |hub, opened| hub.opened_to_move(opened));
            let (step, now) = (Instant::now(), self.now());
            let moved = catch_unwind(AssertUnwindSafe(|| self.hub.move_some(&mut self.served, 1, now)));
            if let Err(panic) = moved {
                self.clients().fail(id, panic);
            }
            self.counters.stalls.note(Step::Move, step, || name_of(&self.hub, id).to_string());
            if !self.hub.is_moving(id) {
                self.resume(id);
            }
        }
    }

    /// Removes streams that have ended from the hub, and closes unused cells.
    fn clean_up(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < SHARE && !self.streams.leaving.is_empty() {
            let (step, before) = (Instant::now(), self.streams.leaving.len());
            let leaving = &mut self.streams.leaving;
            let goes_on = |removed: usize| removed < STREAMS_TOGETHER && step.elapsed() < SHARE / 2;
            let gone = catch_unwind(AssertUnwindSafe(|| self.hub.disconnect_some(&mut self.served, leaving, goes_on)));
            self.contain("leaving streams", gone);
            let removed = before - self.streams.leaving.len();
            self.counters.stalls.note(Step::Disconnect, step, || format!("{removed} streams"));
        }
        if let Some(garbage) = self.hub.take_garbage() {
            // Without another thread, this one drops it.
            let _ = std::thread::Builder::new().name("drop".into()).spawn(move || drop(garbage));
        }
        while begun.elapsed() < SHARE && self.hub.has_unused() {
            let step = Instant::now();
            let closed = catch_unwind(AssertUnwindSafe(|| self.hub.close_unused(&mut self.served, CLOSED_TOGETHER)));
            self.contain("closing cells", closed);
            self.counters.stalls.note(Step::Close, step, || "what streams do not use any more".into());
        }
        while begun.elapsed() < SHARE && self.served.world.has_unused() {
            let step = Instant::now();
            let dropped = catch_unwind(AssertUnwindSafe(|| self.served.world.drop_unused()));
            self.contain("dropping what is not used", dropped);
            self.counters.stalls.note(Step::Close, step, || "rows that are not derived any more".into());
        }
    }

    /// Counts due objects and sends changed statuses.
    fn track(&mut self) {
        let panics = self.served.world.take_panics();
        self.note_panics(&panics);
        if self.hub.has_moving() {
            return;
        }
        let (now, begun) = (self.now(), Instant::now());
        if self.tracker.has_observed() {
            let observed = catch_unwind(AssertUnwindSafe(|| self.tracker.observe_some(&mut self.served, now)));
            self.contain("observed objects", observed);
            self.counters.stalls.note(Step::Count, begun, || "observed objects".to_owned());
            return;
        }
        self.tracker.conflict(&std::mem::take(&mut self.served.conflicts), now);
        let tracked = catch_unwind(AssertUnwindSafe(|| {
            self.tracker.turn(&self.served, &mut self.hub, now);
        }));
        self.contain("counting", tracked);
        for one in self.hub.take_quarantined() {
            self.counters.quarantined += 1;
            xds_log::quarantined(&self.hub, &self.served, &one);
        }
        self.counters.stalls.note(Step::Count, begun, String::new);
    }

    fn end_all(&mut self) {
        self.end_all_with("the control plane is shutting down");
    }

    fn end_all_with(&mut self, reason: &str) {
        let ids: Vec<StreamId> = self.streams.open.keys().copied().collect();
        for id in ids {
            self.clients().end(id, Status::new(Status::UNAVAILABLE, reason));
        }
    }

    /// Logs a panic and continues without its result.
    fn contain<T>(&mut self, what: &str, outcome: std::thread::Result<T>) {
        self.clients().contain(what, outcome);
    }
}

mod beside;
mod commits;
mod requests;
#[cfg(test)]
pub(crate) mod tests;
