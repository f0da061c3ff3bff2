//! The hub: all ledgers and streams, and the operations on them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType, ResourceTypes};
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::cells::Cells;
use crate::compose::Composed;
use crate::core::Core;
use crate::decode::{Body, Held};
use crate::divisions::Divisions;
use crate::forgetting::Forgetting;
use crate::goods::Goods;
use crate::holds::Kept;
use crate::moves::Moves;
use crate::moving::Preparation;
use crate::opening::{Asked, Opening};
use crate::quarantine::Quarantine;
use crate::spread_map::SpreadMap;
use crate::status::LastNack;
use crate::stream::Stream;
use crate::tally::News;
use crate::unanswered::Unanswered;
use crate::watch::Watch;
use crate::{Code, Limits, Moment, Name, Origin, Request, Status, StreamStatus, WatchStatus};

/// Identifies a stream of this hub; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StreamId(pub u64);

/// The variants of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Variant {
    /// A request lists all names that the client subscribes to; a response of a wildcard type has all resources.
    Sotw,
    /// Requests and responses have changes only.
    Delta,
}

/// Whether a request was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It was.
    Done,
    /// Call [`Hub::proceed`].
    More,
}

/// A request of which only a part was handled.
pub(crate) enum Unfinished<O: Origin> {
    /// It waits until what it needs is open.
    Opens(Box<(Opening<O>, Request)>),
    /// The client has these resources of a type that it now watches. They are not compared with the current ones yet.
    Compares(ResourceType, Held),
}

impl<O: Origin> Unfinished<O> {
    pub(crate) fn opens(&mut self) -> Option<&mut (Opening<O>, Request)> {
        match self {
            Unfinished::Opens(opens) => Some(opens),
            Unfinished::Compares(..) => None,
        }
    }
}

/// Lists and responses that are not used any more.
pub struct Garbage<O: Origin> {
    _lists: Vec<O::Catalogue>,
    _responses: Vec<Arc<Composed>>,
}

/// Counters of one type since the hub was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TypeStats {
    /// Responses sent.
    pub responses: u64,
    /// Resources in them.
    pub resources: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Responses that were composed and not shared.
    pub composed: u64,
    /// Responses that were acknowledged (ACK).
    pub accepted: u64,
    /// Responses that were rejected (NACK).
    pub rejected: u64,
    /// Requests that answered an older response than the last.
    pub stale: u64,
    /// Responses that were sent before the types that they wait for were in place, because the wait was too long.
    pub overdue: u64,
}

/// Counters by type, in sending order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats(Vec<(ResourceType, TypeStats)>);

impl Stats {
    fn new(types: &ResourceTypes) -> Stats {
        Stats(types.iter().map(|kind| (kind, TypeStats::default())).collect())
    }

    /// All types and their counters.
    pub fn iter(&self) -> impl Iterator<Item = &(ResourceType, TypeStats)> {
        self.0.iter()
    }

    /// The counters of a type; zero for one that is not registered.
    pub fn of(&self, kind: ResourceType) -> TypeStats {
        let found = self.iter().find(|(one, _)| *one == kind);
        found.map(|(_, stats)| *stats).unwrap_or_default()
    }

    pub(crate) fn of_mut(&mut self, kind: ResourceType) -> &mut TypeStats {
        let at = self.0.iter().position(|(one, _)| *one == kind);
        let at = at.unwrap_or_else(|| {
            self.0.push((kind, TypeStats::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

/// The served resources and the streams that they are served to.
///
/// One thread owns it together with the origin. After each call, [`Hub::take_woken`] returns the streams that may have
/// something to do, and [`Hub::next`] the next step of each.
pub struct Hub<O: Origin> {
    pub(crate) core: Core<O>,
    pub(crate) streams: FxHashMap<StreamId, Box<Stream<O::Token>>>,
    by_token: FxHashMap<O::Token, StreamId>,
    /// The newest stream of each node.
    by_node: FxHashMap<Arc<str>, StreamId>,
    pub(crate) woken: BTreeSet<StreamId>,
    /// The woken streams are taken in turn, from this one on.
    turn: StreamId,
    /// Streams whose audiences changed, and that are not in the ledgers of the new ones yet.
    pub(crate) moving: BTreeSet<StreamId>,
    /// The preparation of the next move.
    pub(crate) preparation: Option<Preparation<O>>,
    /// Cells and parts of ledgers that stay open until all types of a stream have moved.
    pub(crate) held: FxHashMap<StreamId, Kept<O::Cell>>,
    /// Requests of which only a part was handled.
    pub(crate) unfinished: FxHashMap<StreamId, Unfinished<O>>,
    pub(crate) timers: BTreeSet<(Moment, StreamId)>,
    /// The search for unused cached responses, if there are any cached ones.
    pub(crate) forgetting: Option<Forgetting>,
    next_stream: u64,
}

impl<O: Origin> Hub<O> {
    /// A hub without streams that serves these types.
    pub fn new(limits: Limits, types: ResourceTypes) -> Hub<O> {
        Hub {
            core: Core {
                stats: Stats::new(&types),
                types,
                limits,
                ledgers: Slab::new(),
                by_audience: SpreadMap::new(),
                catalogues: SpreadMap::new(),
                cells: Cells::new(),
                epoch: 1,
                serial: 0,
                news: News::default(),
                unanswered: Unanswered::default(),
                quarantine: Quarantine::default(),
                goods: Goods::new(),
                by_lens: FxHashMap::default(),
                divisions: Divisions::default(),
                moves: Moves::default(),
                released: Vec::new(),
                waiting_moves: Vec::new(),
                built: None,
                outdated: Vec::new(),
                idle: Vec::new(),
            },
            streams: FxHashMap::default(),
            by_token: FxHashMap::default(),
            by_node: FxHashMap::default(),
            woken: BTreeSet::new(),
            turn: StreamId(0),
            moving: BTreeSet::new(),
            preparation: None,
            held: FxHashMap::default(),
            unfinished: FxHashMap::default(),
            timers: BTreeSet::new(),
            forgetting: None,
            next_stream: 1,
        }
    }

    /// Adds a stream of this proxy.
    ///
    /// # Errors
    /// The origin does not serve it.
    pub fn connect(&mut self, origin: &mut O, proxy: Proxy, variant: Variant, now: Moment) -> Result<StreamId, Status> {
        let mut connected = self.connect_all(origin, vec![(proxy, variant)], now);
        connected.pop().unwrap_or_else(|| Err(Status::new(Code::Unavailable, "the origin did not answer")))
    }

    /// Adds streams of these proxies. An error is that of [`Hub::connect`]. The results are in the same order.
    pub fn connect_all(
        &mut self,
        origin: &mut O,
        proxies: Vec<(Proxy, Variant)>,
        now: Moment,
    ) -> Vec<Result<StreamId, Status>> {
        let (proxies, variants): (Vec<Arc<Proxy>>, Vec<Variant>) =
            proxies.into_iter().map(|(proxy, variant)| (Arc::new(proxy), variant)).unzip();
        let tokens = origin.connect(&proxies);
        let streams = tokens.into_iter().zip(proxies).zip(variants);
        streams.map(|((token, proxy), variant)| Ok(self.add(token?, proxy, variant, now))).collect()
    }

    fn add(&mut self, token: O::Token, proxy: Arc<Proxy>, variant: Variant, now: Moment) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        // The end of the node's previous stream may be noticed later.
        if let Some(before) = self.by_node.insert(proxy.id.clone(), id).and_then(|id| self.streams.get(&id)) {
            self.core.unanswered.note(&self.core.types, before);
        }
        let stream = Stream::new(id, token, proxy, variant, &self.core.limits, now);
        self.streams.insert(id, Box::new(stream));
        self.by_token.insert(token, id);
        id
    }

    /// Drops all streams and what they are served from, and keeps counters. Call it when the origin was replaced, or when a
    /// method panicked, which may leave an inconsistent state. Nothing is closed, and no proxy is removed from the origin.
    pub fn restart(&mut self) {
        for stream in self.streams.values() {
            self.core.unanswered.note(&self.core.types, stream);
        }
        let mut hub = Hub::new(self.core.limits.clone(), self.core.types.clone());
        (hub.next_stream, hub.core.epoch) = (self.next_stream, self.core.epoch + 1);
        hub.core.stats = self.core.stats.clone();
        std::mem::swap(&mut hub.core.unanswered, &mut self.core.unanswered);
        *self = hub;
    }

    /// Removes a stream, if it exists.
    pub fn disconnect(&mut self, origin: &mut O, id: StreamId) {
        self.disconnect_some(origin, &mut [id].into(), |_| true);
    }

    /// Removes streams from the front of a queue, at least one, as long as `goes_on` is true, which is called with the number of removed
    /// ones. Those that do not exist are left out.
    pub fn disconnect_some(&mut self, origin: &mut O, ids: &mut VecDeque<StreamId>, goes_on: impl Fn(usize) -> bool) {
        let mut tokens = Vec::new();
        while let Some(id) = ids.pop_front() {
            tokens.extend(self.remove(id));
            if !goes_on(tokens.len()) {
                break;
            }
        }
        if !tokens.is_empty() {
            origin.disconnect(&tokens);
        }
    }

    fn remove(&mut self, id: StreamId) -> Option<O::Token> {
        let mut stream = self.streams.remove(&id)?;
        self.by_token.remove(&stream.token);
        if self.by_node.get(&stream.proxy.id) == Some(&id) {
            self.by_node.remove(&stream.proxy.id);
            self.core.unanswered.note(&self.core.types, &stream);
        }
        self.woken.remove(&id);
        if let Some(Unfinished::Opens(opens)) = self.unfinished.remove(&id) {
            self.core.release(opens.0.kept);
        }
        self.forget_move(id);
        if let Some(timer) = stream.timer {
            self.timers.remove(&(timer, id));
        }
        for kind in self.core.types.clone().iter() {
            self.core.unwatch(&mut stream, kind);
        }
        if self.streams.is_empty() {
            self.forgetting = None;
        }
        if self.core.quarantine.has_trials() {
            // Another stream tries it at once.
            self.core.quarantine.end_trials(id, Moment::ZERO, Moment::ZERO, |_| true);
        }
        Some(stream.token)
    }

    /// Handles a request that only accepts the outstanding response of its type, if it is one. This needs no origin. Returns
    /// whether it was handled.
    pub fn accept(&mut self, id: StreamId, request: &Request, now: Moment) -> bool {
        if self.unfinished.contains_key(&id) || self.moving.contains(&id) {
            return false;
        }
        let (Some(stream), Some(kind)) = (self.streams.get_mut(&id), self.core.types.find(&request.type_url)) else {
            return false;
        };
        if !self.core.is_acceptance(stream, kind, request) {
            return false;
        }
        self.woken.insert(id);
        stream.busy_since.get_or_insert(now);
        if self.core.whole_answer(stream, kind, None, now).is_continue() {
            self.core.accepted(stream, kind, now);
        }
        true
    }

    /// Handles a request of a stream's client. If it needs much that was not derived yet, it is only handled by later calls
    /// of [`Hub::proceed`]. Another request of the stream completes it first.
    ///
    /// # Errors
    /// The client violated the protocol or a limit: end the stream with this status, and call [`Hub::disconnect`].
    pub fn request(&mut self, origin: &mut O, id: StreamId, request: Request, now: Moment) -> Result<Progress, Status> {
        // Most requests are like that. After others, streams may have to move.
        if self.core.quarantine.is_settled() && self.accept(id, &request, now) {
            return Ok(Progress::Done);
        }
        while self.proceed(origin, id, now)? == Progress::More {}
        self.move_at_once(origin, id, now);
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(Progress::Done);
        };
        self.woken.insert(id);
        stream.busy_since.get_or_insert(now);
        let limits = &self.core.limits;
        let Some(kind) = self.core.types.find(&request.type_url) else {
            stream.note_unserved(&request.type_url, limits.unserved_types);
            let counted = (limits.requests_per_second, limits.request_burst);
            return match stream.requests.take(1, counted, now) {
                true => Ok(Progress::Done),
                false => Err(Status::new(Code::ResourceExhausted, "too many requests")),
            };
        };
        let names = self.core.counted_names(stream, kind, &request.body);
        self.core.check_rates(stream, kind, (&request, names), now)?;
        match self.core.opening(origin, stream, (kind, names), &request) {
            Some(opening) => {
                self.unfinished.insert(id, Unfinished::Opens(Box::new((opening, request))));
                Ok(Progress::More)
            }
            None => self.handle(origin, id, (kind, request), now),
        }
    }

    /// Continues the stream's request, if there is an incomplete one. A call opens at most [`Limits::opened_together`] cells,
    /// builds a long set of names, handles the request if all is prepared, or compares what a reconnecting client has.
    ///
    /// # Errors
    /// The same as [`Hub::request`].
    pub fn proceed(&mut self, origin: &mut O, id: StreamId, now: Moment) -> Result<Progress, Status> {
        if let Some((opening, request)) = self.unfinished.get_mut(&id).and_then(Unfinished::opens) {
            let is_open = opening.sources.is_empty();
            if !self.core.open_some(origin, opening, Asked::Request(request)) || !is_open {
                return Ok(Progress::More);
            }
            let stream = self.streams.get(&id);
            if stream.is_some_and(|stream| self.core.build_set(origin, stream, opening, request)) {
                return Ok(Progress::More);
            }
        }
        match self.unfinished.remove(&id) {
            None => Ok(Progress::Done),
            Some(Unfinished::Opens(opens)) => {
                let (Opening { kind, kept, set, .. }, request) = *opens;
                // It is closed after the request was handled.
                self.core.release(kept);
                self.core.built = set;
                let progress = self.handle(origin, id, (kind, request), now);
                self.core.built = None;
                progress
            }
            Some(Unfinished::Compares(kind, held)) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    self.core.resume_watched(stream, kind, &held);
                    self.woken.insert(id);
                }
                Ok(Progress::Done)
            }
        }
    }

    fn handle(
        &mut self,
        origin: &mut O,
        id: StreamId,
        (kind, request): (ResourceType, Request),
        now: Moment,
    ) -> Result<Progress, Status> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(Progress::Done);
        };
        self.woken.insert(id);
        let compared = match (&request.body, stream.variant) {
            (Body::Sotw { .. }, Variant::Sotw) => {
                self.core.sotw(origin, stream, kind, request, now)?;
                None
            }
            (Body::Delta { .. }, Variant::Delta) => self.core.delta(origin, stream, kind, request, now)?,
            _ => return Err(Status::new(Code::InvalidArgument, "a request of the other variant of the protocol")),
        };
        self.release_held(id);
        self.spread_quarantine(origin, now);
        let Some(held) = compared else { return Ok(Progress::Done) };
        self.unfinished.insert(id, Unfinished::Compares(kind, held));
        Ok(Progress::More)
    }

    /// Takes the lists and responses that are not used any more. To drop them can take tens of milliseconds: do it on another
    /// thread. [`Hub::close_unused`] drops those that are not taken, one at a time.
    pub fn take_garbage(&mut self) -> Option<Garbage<O>> {
        let Core { outdated, idle, .. } = &mut self.core;
        let is_empty = outdated.is_empty() && idle.is_empty();
        (!is_empty).then(|| Garbage { _lists: std::mem::take(outdated), _responses: std::mem::take(idle) })
    }

    /// Closes up to `count` cells that are not used any more. Returns whether others remain. Dropping what is derived takes
    /// time, so that it is not part of other operations.
    pub fn close_unused(&mut self, origin: &mut O, count: usize) -> bool {
        self.core.outdated.pop();
        self.core.idle.pop();
        self.core.close_released(count);
        let closed: Vec<O::Cell> = self.core.cells.take_unused(count).collect();
        for cell in closed {
            origin.close(cell);
            if !self.core.cells.contains(cell) {
                self.core.goods.forget(cell);
            }
        }
        self.has_unused()
    }

    /// Whether there are cells to be closed.
    pub fn has_unused(&self) -> bool {
        let Core { cells, released, outdated, idle, .. } = &self.core;
        cells.has_unused() || !released.is_empty() || !outdated.is_empty() || !idle.is_empty()
    }

    /// Takes a stream that was woken. All are taken in turn.
    pub fn pop_woken(&mut self) -> Option<StreamId> {
        let next = self.woken.range(self.turn..).next().or_else(|| self.woken.first()).copied()?;
        self.woken.remove(&next);
        self.turn = StreamId(next.0 + 1);
        Some(next)
    }

    /// Whether streams were woken that were not taken since.
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// The streams that were woken since the last call.
    pub fn take_woken(&mut self) -> BTreeSet<StreamId> {
        std::mem::take(&mut self.woken)
    }

    /// The time at which [`Hub::tick`] must be called.
    pub fn deadline(&self) -> Option<Moment> {
        let timers = self.timers.first().map(|(at, _)| *at);
        timers
            .into_iter()
            .chain(self.forgetting.as_ref().map(Forgetting::at))
            .chain(self.core.quarantine.deadline())
            .min()
    }

    /// Does what is due: [`Hub::expire`], and tries quarantined resources again.
    pub fn tick(&mut self, origin: &mut O, now: Moment) {
        self.retry_quarantined(origin, now);
        self.expire(now);
    }

    /// Wakes streams whose waits have expired, and drops some of the unused cached responses; it is due again at once if there
    /// may be others. This needs no origin.
    pub fn expire(&mut self, now: Moment) {
        if let Some(forgetting) = self.forgetting.take_if(|forgetting| forgetting.at() <= now) {
            self.forgetting = self.core.forget_some_idle(forgetting, now);
        }
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            self.woken.insert(id);
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.timer = None;
            }
        }
    }

    /// Counters by type.
    pub fn stats(&self) -> Stats {
        self.core.stats.clone()
    }

    /// The types that are served, in sending order.
    pub fn types(&self) -> &ResourceTypes {
        &self.core.types
    }

    /// The number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are no streams.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Sizes of the hub's tables: ledgers, selections, names in ledgers, tombstones, open cells, cached responses.
    pub fn sizes(&self) -> [(&'static str, usize); 6] {
        let ledgers = || self.core.ledgers.iter().map(|(_, ledger)| ledger);
        let selections = ledgers().flat_map(|ledger| ledger.selections.iter());
        let responses = selections.map(|(_, selection)| selection.responses());
        [
            ("ledgers", self.core.ledgers.len()),
            ("selections", ledgers().map(|ledger| ledger.selections.len()).sum()),
            ("names", ledgers().map(|ledger| ledger.len()).sum()),
            ("tombs", ledgers().map(|ledger| ledger.tombs.len()).sum()),
            ("cells", self.core.cells.len()),
            ("responses", responses.sum()),
        ]
    }

    /// The proxies of all streams with the NACKs of each, in no order. It costs less than their statuses.
    pub fn nacks(&self) -> impl Iterator<Item = (&Proxy, impl Iterator<Item = (ResourceType, LastNack)>)> {
        self.streams.values().map(|stream| {
            let nacks = stream.watches.iter().filter_map(|watch| Some((watch.kind, self.core.nack(watch)?)));
            (&*stream.proxy, nacks)
        })
    }

    /// All streams and their proxies, in no order.
    pub fn proxies(&self) -> impl Iterator<Item = (StreamId, &Arc<Proxy>)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.proxy))
    }

    /// The proxy of a stream.
    pub fn proxy(&self, id: StreamId) -> Option<&Arc<Proxy>> {
        self.streams.get(&id).map(|stream| &stream.proxy)
    }

    /// One stream.
    pub fn status(&self, id: StreamId) -> Option<StreamStatus> {
        let stream = self.streams.get(&id)?;
        let settled = !self.moving.contains(&id);
        let status = |watch| {
            let status = self.core.watch_status(watch);
            WatchStatus { synced: status.synced && settled, ..status }
        };
        Some(StreamStatus {
            id,
            proxy: stream.proxy.clone(),
            variant: stream.variant,
            connected: stream.connected,
            watches: stream.watches.iter().map(status).collect(),
            unserved: stream.unserved.clone(),
        })
    }

    /// The type of the outstanding response that a request answers, if it does.
    pub fn answers(&self, id: StreamId, request: &Request) -> Option<ResourceType> {
        let kind = self.core.types.find(&request.type_url)?;
        let inflight = self.streams.get(&id)?.watch(kind)?.inflight.as_ref()?;
        (*inflight.nonce == *request.nonce).then_some(kind)
    }

    /// The resources of the outstanding response of a type that a NACK with this error concerns: those that it names, or else
    /// all. With the cell of each, if there is one.
    pub fn rejected(&self, id: StreamId, kind: ResourceType, error: &str) -> Vec<(Name, Option<O::Cell>)> {
        let Some(stream) = self.streams.get(&id) else { return Vec::new() };
        let Some(watch) = stream.watch(kind) else { return Vec::new() };
        let mut names = self.core.named_in(stream, kind, error);
        if names.is_empty() {
            let contents = watch.inflight.iter().flat_map(|inflight| inflight.contents.iter());
            names = contents.flat_map(|some| some.iter()).map(|(name, _)| name.clone()).collect();
        }
        let names = names.into_iter();
        names.map(|name| (name.clone(), self.cell_in(watch, &name))).collect()
    }

    /// The cell of a resource that a node's newest stream subscribes to.
    pub fn cell(&self, node: &str, kind: ResourceType, name: &str) -> Option<O::Cell> {
        let stream = self.streams.get(self.by_node.get(node)?)?;
        self.cell_in(stream.watch(kind)?, name)
    }

    fn cell_in(&self, watch: &Watch, name: &str) -> Option<O::Cell> {
        // The own ledger, which is the second, has precedence.
        watch.places().filter_map(|place| self.core.part(place).ledger.cell_of(name)).last()
    }

    /// The resources of a type that a stream's client has, or is about to be sent.
    pub fn resources(&self, id: StreamId, kind: ResourceType) -> Vec<Resource> {
        let Some(watch) = self.streams.get(&id).and_then(|stream| stream.watch(kind)) else {
            return Vec::new();
        };
        let live = self.core.subscription(watch).live(&self.core.cells);
        live.map(|(_, resource)| resource.clone()).collect()
    }

    pub(crate) fn stream_of(&self, token: O::Token) -> Option<StreamId> {
        self.by_token.get(&token).copied()
    }
}
