//! The hub: all ledgers and streams, and the operations on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType, ResourceTypes};
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::cells::Cells;
use crate::core::Core;
use crate::decode::Body;
use crate::ledger::Ledger;
use crate::rate::Rate;
use crate::stream::Stream;
use crate::tally::News;
use crate::unanswered::Unanswered;
use crate::{Code, Limits, Moment, Origin, Request, Status, StreamStatus};

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
    pub refused: u64,
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
    pub(crate) streams: FxHashMap<StreamId, Stream<O::Token>>,
    by_token: FxHashMap<O::Token, StreamId>,
    /// The newest stream of each node.
    by_node: FxHashMap<Arc<str>, StreamId>,
    pub(crate) woken: BTreeSet<StreamId>,
    pub(crate) timers: BTreeSet<(Moment, StreamId)>,
    /// When unused cached responses are dropped, if there are any.
    pub(crate) forget_at: Option<Moment>,
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
                by_audience: FxHashMap::default(),
                catalogues: FxHashMap::default(),
                cells: Cells::new(),
                epoch: 1,
                serial: 0,
                news: News::default(),
                unanswered: Unanswered::default(),
            },
            streams: FxHashMap::default(),
            by_token: FxHashMap::default(),
            by_node: FxHashMap::default(),
            woken: BTreeSet::new(),
            timers: BTreeSet::new(),
            forget_at: None,
            next_stream: 1,
        }
    }

    /// Adds a stream of this proxy.
    ///
    /// # Errors
    /// The origin does not serve it.
    pub fn connect(&mut self, origin: &mut O, proxy: Proxy, variant: Variant, now: Moment) -> Result<StreamId, Status> {
        let proxy = Arc::new(proxy);
        let token = origin.connect(&proxy)?;
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        // The end of the node's previous stream may be noticed later.
        if let Some(before) = self.by_node.insert(proxy.id.clone(), id).and_then(|id| self.streams.get(&id)) {
            self.core.unanswered.note(&self.core.types, before);
        }
        let stream = Stream::new(id, token, proxy, variant, Rate::new(&self.core.limits, now), now);
        self.streams.insert(id, stream);
        self.by_token.insert(token, id);
        Ok(id)
    }

    /// Removes a stream, if it exists.
    pub fn disconnect(&mut self, origin: &mut O, id: StreamId) {
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        self.by_token.remove(&stream.token);
        if self.by_node.get(&stream.proxy.id) == Some(&id) {
            self.by_node.remove(&stream.proxy.id);
            self.core.unanswered.note(&self.core.types, &stream);
        }
        self.woken.remove(&id);
        if let Some(timer) = stream.timer {
            self.timers.remove(&(timer, id));
        }
        for kind in self.core.types.clone().iter() {
            self.core.unwatch(origin, &mut stream, kind);
        }
        if self.streams.is_empty() {
            self.forget_at = None;
        }
        origin.disconnect(stream.token);
    }

    /// Handles a request of a stream's client.
    ///
    /// # Errors
    /// The client violated the protocol or a limit: end the stream with this status, and call [`Hub::disconnect`].
    pub fn request(&mut self, origin: &mut O, id: StreamId, request: Request, now: Moment) -> Result<(), Status> {
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        self.woken.insert(id);
        stream.busy_since.get_or_insert(now);
        let kind = self.core.types.find(&request.type_url);
        let answers = |kind: ResourceType| {
            let inflight = stream.watch(kind).and_then(|watch| watch.inflight.as_ref());
            inflight.is_some_and(|inflight| *inflight.nonce == *request.nonce)
        };
        if !kind.is_some_and(answers) && !stream.rate.take(&self.core.limits, now) {
            return Err(Status::new(Code::ResourceExhausted, "too many requests"));
        }
        match (kind, &request.body, stream.variant) {
            (None, ..) => {
                stream.note_unserved(&request.type_url, self.core.limits.unserved_types);
                Ok(())
            }
            (Some(kind), Body::Sotw { .. }, Variant::Sotw) => self.core.sotw(origin, stream, kind, request, now),
            (Some(kind), Body::Delta { .. }, Variant::Delta) => self.core.delta(origin, stream, kind, request, now),
            _ => Err(Status::new(Code::InvalidArgument, "a request of the other variant of the protocol")),
        }
    }

    /// The streams that were woken since the last call.
    pub fn take_woken(&mut self) -> BTreeSet<StreamId> {
        std::mem::take(&mut self.woken)
    }

    /// The time at which [`Hub::tick`] must be called.
    pub fn deadline(&self) -> Option<Moment> {
        let timers = self.timers.first().map(|(at, _)| *at);
        timers.into_iter().chain(self.forget_at).min()
    }

    /// Wakes streams whose waits have expired, and drops unused cached responses.
    pub fn tick(&mut self, now: Moment) {
        if self.forget_at.is_some_and(|at| at <= now) {
            let again = now + self.core.limits.idle_responses;
            self.forget_at = self.core.forget_idle().then_some(again);
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
            ("names", ledgers().map(Ledger::len).sum()),
            ("tombs", ledgers().map(|ledger| ledger.tombs.len()).sum()),
            ("cells", self.core.cells.len()),
            ("responses", responses.sum()),
        ]
    }

    /// All streams, by id.
    pub fn statuses(&self) -> Vec<StreamStatus> {
        let mut ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter_map(|id| self.status(id)).collect()
    }

    /// One stream.
    pub fn status(&self, id: StreamId) -> Option<StreamStatus> {
        let stream = self.streams.get(&id)?;
        Some(StreamStatus {
            id,
            proxy: stream.proxy.clone(),
            variant: stream.variant,
            connected: stream.connected,
            watches: stream.watches.iter().map(|watch| self.core.watch_status(watch)).collect(),
            unserved: stream.unserved.clone(),
        })
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
