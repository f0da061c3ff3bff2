//! The work of the world's thread for clients that does not need the world: it sends responses, takes ACKs and ends streams.
//!
//! A commit can take long. It runs on another thread, and meanwhile this is done ([`Clients::serve_until`]). Other messages
//! wait until the commit is complete, in the order of each stream.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flow::CellId;
use model::xds::Resource;
use status::Elapsed;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use xds::{Next, StreamId};

use crate::core::{Health, Message, QueuedRequest, SHARE};
use crate::counters::Counters;
use crate::gathered::Gathered;
use crate::grpc::{Down, Status};
use crate::inbox::Inbox;
use crate::served_world::Hub;
use crate::stalls::Step;
use crate::xds_log;

/// The longest pause while a commit runs and there is nothing to do. Its end also ends the pause.
const PAUSE: Duration = Duration::from_millis(1);
/// The maximum number of messages that wait for a commit. With more, the others stay in the queue.
const WAITING: usize = 4096;

/// A commit that takes longer is taken for one that never ends.
const LONGEST_COMMIT: Duration = Duration::from_secs(120);

/// The state of streams that is not in the hub.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) open: HashMap<StreamId, mpsc::Sender<Down>>,
    /// The streams with a request that is handled in parts, in turn.
    pub(crate) partial: VecDeque<StreamId>,
    /// The number of parts of the first stream's request that were handled in succession.
    pub(crate) parts: usize,
    /// The further requests of these streams.
    pub(crate) waiting: HashMap<StreamId, VecDeque<QueuedRequest>>,
    /// Streams that have ended and that the hub still has.
    pub(crate) leaving: VecDeque<StreamId>,
}

/// The thread's state without the world.
pub(crate) struct Clients<'c> {
    pub(crate) hub: &'c mut Hub,
    pub(crate) streams: &'c mut Streams,
    pub(crate) counters: &'c mut Counters,
    pub(crate) started: Instant,
}

impl Clients<'_> {
    /// Serves clients while a commit runs, until it is done. `done` is called after each turn, and at least once per
    /// millisecond.
    pub(crate) fn serve_until(
        &mut self,
        mut done: impl FnMut(&mut Clients<'_>, &mut Gathered) -> bool,
        inbox: &mut Inbox,
        gathered: &mut Gathered,
    ) {
        let (mut waiting, mut held, since) = (VecDeque::new(), HashSet::new(), Instant::now());
        while !done(self, gathered) {
            if waiting.len() < WAITING {
                inbox.fill();
            }
            let begun = Instant::now();
            let mut idle = true;
            while begun.elapsed() < SHARE
                && let Some(message) = inbox.pop()
            {
                idle = false;
                if let Message::Check(reply) = message {
                    let _ = reply.send(health(since.elapsed()));
                    continue;
                }
                waiting.extend(self.take(message, &mut held, gathered));
            }
            self.expire();
            if self.hub.has_woken() {
                self.push();
            } else if idle && !done(self, gathered) {
                std::thread::park_timeout(PAUSE);
            }
        }
        inbox.put_back(waiting);
    }

    /// Processes a message if that needs no world, and returns it otherwise. `held` are the streams of returned messages.
    fn take(&mut self, message: Message, held: &mut HashSet<StreamId>, gathered: &mut Gathered) -> Option<Message> {
        match message {
            Message::Commit(batch, observed) => gathered.add(batch, observed),
            Message::Disconnect(id, reason) => self.disconnect(id, &reason),
            Message::Request(id, (request, place)) => {
                let is_next = !held.contains(&id) && !self.streams.waiting.contains_key(&id);
                let open = self.streams.open.contains_key(&id);
                let (begun, now) = (Instant::now(), self.started.elapsed());
                let accepted = catch_unwind(AssertUnwindSafe(|| is_next && open && self.hub.accept(id, &request, now)));
                match accepted {
                    Ok(true) => {
                        if xds_log::logs_acks()
                            && let Some(kind) = self.hub.types().find(&request.type_url)
                        {
                            xds_log::acknowledged(self.hub, id, kind, &request.nonce);
                        }
                        self.counters.stalls.note(Step::Request, begun, || name_of(self.hub, id).to_string());
                    }
                    Ok(false) => {
                        held.insert(id);
                        return Some(Message::Request(id, (request, place)));
                    }
                    Err(panic) => self.fail(id, panic),
                }
            }
            Message::Connect(_)
            | Message::Inspect(_)
            | Message::Look(_)
            | Message::Fork(_)
            | Message::Check(_)
            | Message::End => return Some(message),
        }
        None
    }

    /// Ends waits that are due. This needs no world.
    pub(crate) fn expire(&mut self) {
        let (now, begun) = (self.started.elapsed(), Instant::now());
        if self.hub.deadline().is_some_and(|due| due <= now) {
            self.hub.expire(now);
            self.counters.stalls.note(Step::Tick, begun, String::new);
        }
    }

    /// Replaces resources before the changes of the commit that runs.
    pub(crate) fn send_ahead(&mut self, resources: Vec<(CellId, Resource)>) {
        let (begun, now, count) = (Instant::now(), self.started.elapsed(), resources.len());
        let applied = catch_unwind(AssertUnwindSafe(|| self.hub.apply_ahead(resources, now)));
        self.contain("changes of endpoints", applied);
        self.counters.stalls.note(Step::Commit, begun, || format!("{count} resources, ahead of a commit"));
    }

    /// Queues responses that can be sent.
    pub(crate) fn push(&mut self) {
        let (now, begun) = (self.started.elapsed(), Instant::now());
        let mut last = None;
        while begun.elapsed() < SHARE
            && let Some(id) = self.hub.pop_woken()
        {
            // A stream that has ended may still be in the hub.
            if self.streams.open.contains_key(&id) {
                self.push_to(id, begun, now);
                last = Some(id);
            }
        }
        if let Some(last) = last {
            self.counters.stalls.note(Step::Push, begun, || format!("the last one to {}", name_of(self.hub, last)));
        }
    }

    /// Queues responses to a stream. If it has more when the time since `since` is used up, it has its next turn after the others.
    fn push_to(&mut self, id: StreamId, since: Instant, now: Elapsed) {
        loop {
            let begun = Instant::now();
            match catch_unwind(AssertUnwindSafe(|| self.hub.next(id, now))) {
                Ok(Next::More | Next::Idle) => return,
                Ok(Next::Send(response)) => {
                    self.counters.note(&response, begun.elapsed());
                    xds_log::pushed(self.hub, id, &response);
                    let sent = self.streams.open.get(&id).map(|down| down.try_send(Down::Message(response.rope)));
                    if !matches!(sent, Some(Ok(()))) {
                        // The client has disconnected, or does not read the responses that it requested.
                        self.counters.unread += u64::from(matches!(sent, Some(Err(TrySendError::Full(_)))));
                        return self.disconnect(id, "the client does not read responses, or has disconnected");
                    }
                    if since.elapsed() >= SHARE {
                        return self.hub.wake(id, now);
                    }
                }
                Ok(Next::End(status)) => return self.end(id, status.into()),
                Err(panic) => return self.fail(id, panic),
            }
        }
    }

    /// Ends a stream whose handling panicked.
    pub(crate) fn fail(&mut self, id: StreamId, panic: Box<dyn std::any::Any + Send>) {
        self.contain::<()>("a stream", Err(panic));
        self.end(id, Status::failed());
    }

    pub(crate) fn end(&mut self, id: StreamId, status: Status) {
        let reason = status.message.clone();
        if let Some(down) = self.streams.open.get(&id) {
            let _ = down.try_send(Down::end(status));
        }
        self.disconnect(id, &reason);
    }

    /// Ends a stream. The hub removes it later.
    pub(crate) fn disconnect(&mut self, id: StreamId, reason: &str) {
        if self.streams.open.remove(&id).is_some() {
            xds_log::disconnected(&name_of(self.hub, id), id, reason);
            if self.streams.waiting.remove(&id).is_some() {
                self.streams.partial.retain(|other| *other != id);
            }
            self.streams.leaving.push_back(id);
        }
    }

    /// Logs a panic and continues without its result.
    pub(crate) fn contain<T>(&mut self, what: &str, outcome: std::thread::Result<T>) {
        let Err(panic) = outcome else { return };
        let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!(what, panic = text, "a panic was contained");
        self.counters.panics += 1;
    }
}

/// Whether the thread works although a commit has been running for this time.
fn health(running: Duration) -> Health {
    match running > LONGEST_COMMIT {
        true => Err(format!("a commit has been running for {} s", running.as_secs())),
        false => Ok(()),
    }
}

/// The name of a stream's proxy.
pub(crate) fn name_of(hub: &Hub, id: StreamId) -> Arc<str> {
    hub.proxy(id).map(|proxy| proxy.id.clone()).unwrap_or_default()
}
