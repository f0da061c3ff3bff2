//! Opens what a large request needs, a few cells at a time.
//!
//! The most expensive part of a request is to derive resources that no client has asked for yet. Before a request that needs
//! many is handled, their cells are opened in steps, between which the caller does other work. They stay open until the
//! request has been handled. That happens in one step, so that the state of a stream does not depend on the steps.
//!
//! A shared catalogue, or a route table, is derived at once, and grows with the mesh. It is a step of its own, which the
//! caller may take on another thread ([`crate::Hub::wanted`]).

use std::collections::BTreeSet;

use model::xds::{Parent, ResourceType};

use crate::core::Core;
use crate::decode::{Body, Texts};
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::wanted::{List, OpenedList};
use crate::watch::Watch;
use crate::{Code, Moment, Name, Origin, Request, Status};

/// The number of names that are looked up for each cell that a step may open.
const LOOKUPS: usize = 8;
/// A resource with parts (a route table) is derived from so many times as much as another one.
const PARTS: usize = 128;
/// A SotW request with other names than before counts as one name for each so many, because it repeats those that stay.
const REPEATED: usize = 8;

/// The cells that a request waits for.
pub(crate) struct Opening<O: Origin> {
    pub(crate) kind: ResourceType,
    pub(crate) sources: Vec<Source<O>>,
    /// Opened so far. Each must be closed once.
    pub(crate) cells: Vec<O::Cell>,
}

/// Cells to be opened.
pub(crate) enum Source<O: Origin> {
    /// The names of the request from this index on, for an audience.
    Names(O::Audience, usize),
    /// The rows of a catalogue, from this index on.
    Rows(List<O>, O::Catalogue, usize),
    /// A catalogue that was not open.
    List(List<O>),
}

impl<O: Origin> Opening<O> {
    /// Opens the catalogues among the sources from this index on.
    fn open_lists(&mut self, origin: &mut O, from: usize) {
        for source in self.sources.split_off(from) {
            match source {
                Source::List(list) => {
                    let opened = list.open(origin);
                    self.add_opened(list, opened);
                }
                other => self.sources.push(other),
            }
        }
    }

    /// Adds the rows of a catalogue, or the names of the request if there is none.
    pub(crate) fn add_opened(&mut self, list: List<O>, opened: OpenedList<O>) {
        match opened {
            Some((cell, catalogue)) => {
                self.cells.push(cell);
                self.sources.push(Source::Rows(list, catalogue, 0));
            }
            None if list.kind.is_wildcard() => self.sources.push(Source::Names(list.audience, 0)),
            None => {}
        }
    }
}

impl<O: Origin> Core<O> {
    /// The cells that a request needs, if they are so many that they must be opened in steps.
    pub(crate) fn opening(
        &mut self,
        origin: &mut O,
        stream: &Stream<O::Token>,
        (kind, names): (ResourceType, usize),
        request: &Request,
    ) -> Option<Opening<O>> {
        let mut opening = Opening { kind, sources: Vec::new(), cells: Vec::new() };
        if names > 0 || stream.watch(kind).is_none() {
            let shared = origin.audience(stream.token, kind);
            let own = origin.own_audience(stream.token, kind);
            if !self.is_divided(kind, (&shared, own.as_ref()), request) {
                self.add_sources(stream, (&mut opening, request), shared);
                if let Some(own) = own {
                    let at = opening.sources.len();
                    self.add_sources(stream, (&mut opening, request), own);
                    opening.open_lists(origin, at);
                }
            }
        }
        self.add_followed(origin, stream, &mut opening);
        let large = opening.sources.iter().any(|source| match source {
            Source::List(_) => true,
            _ => source.cost(kind) > 1 && source.len(request) > 0,
        });
        let count = opening.sources.iter().map(|source| source.len(request)).sum::<usize>();
        if large || count > self.limits.opened_at_once {
            return Some(opening);
        }
        self.cells.close_all(opening.cells);
        None
    }

    /// The number of names of a request that count against the limit of a client; 0 if it does not change what the stream
    /// subscribes to.
    pub(crate) fn counted_names(&self, stream: &Stream<O::Token>, kind: ResourceType, body: &Body) -> usize {
        match body {
            Body::Delta { subscribe, unsubscribe, initial } => subscribe.len() + unsubscribe.len() + initial.len(),
            Body::Sotw { names, .. } => match stream.watch(kind).map(|watch| self.identity(watch)) {
                None => names.len(),
                Some(Some(current)) if current == names.identity() => 0,
                Some(None) if names.len() == 1 && names.contains("*") => 0,
                // The request repeats the names that stay.
                Some(_) => names.len().div_ceil(REPEATED),
            },
        }
    }

    /// Counts a request against the limits of its client.
    ///
    /// # Errors
    /// The client exceeds a limit.
    pub(crate) fn check_rates(
        &self,
        stream: &mut Stream<O::Token>,
        kind: ResourceType,
        (request, names): (&Request, usize),
        now: Moment,
    ) -> Result<(), Status> {
        let (limits, watch) = (&self.limits, stream.watch(kind));
        let inflight = watch.and_then(|watch| watch.inflight.as_ref());
        // An ACK that also subscribes is a request like any other.
        let only_answers = names == 0 && inflight.is_some_and(|inflight| *inflight.nonce == *request.nonce);
        let wildcards = usize::from(kind.is_wildcard() && self.asks_for_all(watch, request));
        let too_many = |what: &str| Status::new(Code::ResourceExhausted, format!("too many {what}"));
        let counted = (limits.requests_per_second, limits.request_burst);
        if !only_answers && !stream.requests.take(1, counted, now) {
            return Err(too_many("requests"));
        }
        if !stream.names.take(names, (limits.names_per_second, limits.name_burst), now) {
            return Err(too_many("names in requests"));
        }
        if !stream.wildcards.take(wildcards, (limits.wildcards_per_second, limits.wildcard_burst), now) {
            return Err(too_many("subscriptions to all resources of a type"));
        }
        Ok(())
    }

    /// Whether a request of a wildcard type makes all resources of the type be sent.
    fn asks_for_all(&self, watch: Option<&Watch>, request: &Request) -> bool {
        match (&request.body, watch) {
            (Body::Delta { subscribe, .. }, Some(_)) => subscribe.contains("*"),
            (Body::Delta { subscribe, unsubscribe, .. }, None) => {
                subscribe.contains("*") || subscribe.is_empty() && unsubscribe.is_empty()
            }
            (Body::Sotw { .. }, Some(watch)) if request.nonce.is_empty() => watch.inflight.is_none(),
            (Body::Sotw { names, .. }, Some(watch)) => names.contains("*") && self.identity(watch).is_some(),
            (Body::Sotw { names, .. }, None) => names.is_empty() || names.contains("*"),
        }
    }

    /// Whether another stream has the names of a request in the same two ledgers.
    fn is_divided(
        &self,
        kind: ResourceType,
        (shared, own): (&O::Audience, Option<&O::Audience>),
        request: &Request,
    ) -> bool {
        let ledger = |audience: &O::Audience| self.by_audience.get(&(kind, audience.clone())).copied();
        let (Some(shared), Some(own)) = (ledger(shared), own.and_then(ledger)) else {
            return false;
        };
        let mut names = requested(request).peekable();
        names.peek().is_some() && names.all(|names| self.division((shared, own), names.identity()).is_some())
    }

    fn add_sources(
        &self,
        stream: &Stream<O::Token>,
        (opening, request): (&mut Opening<O>, &Request),
        audience: O::Audience,
    ) {
        let kind = opening.kind;
        if kind.is_collected() {
            let subscribed = subscribed(request);
            // A client reports the virtual hosts that it has, and not the collections that it subscribes to.
            let names: BTreeSet<Name> = match kind.parent {
                Parent::Collections { of } if subscribed.is_empty() => {
                    let parent = stream.watch(of).and_then(|watch| self.names(watch));
                    parent.iter().flat_map(NameSet::iter).cloned().collect()
                }
                _ => subscribed.iter().map(Name::from).collect(),
            };
            for name in &names {
                self.add_list(opening, kind, &audience, name);
            }
            return;
        }
        let ledger = self.by_audience.get(&(kind, audience.clone())).map(|id| &self.ledgers[*id]);
        let is_needed = match ledger {
            // Proxies of one kind subscribe to the same names, which are open then.
            Some(ledger) => ledger.by_name() && !requested(request).all(|names| ledger.selected(names).is_some()),
            None if kind.is_wildcard() => return self.add_list(opening, kind, &audience, &Name::default()),
            None => true,
        };
        if is_needed {
            opening.sources.push(Source::Names(audience, 0));
        }
    }

    /// Adds the collections that a client will follow when it has answered for the parent type.
    fn add_followed(&mut self, origin: &mut O, stream: &Stream<O::Token>, opening: &mut Opening<O>) {
        let Some(child) = self.types.collections_in(opening.kind) else { return };
        let (Some(parent), Some(watch)) = (stream.watch(opening.kind), stream.watch(child)) else { return };
        if !watch.follows || parent.unanswered.is_empty() {
            return;
        }
        for (place, is_own) in watch.places().zip([false, true]) {
            let at = opening.sources.len();
            for name in &parent.unanswered {
                self.add_list(opening, child, &self.ledgers[place.ledger].audience, name);
            }
            if is_own {
                opening.open_lists(origin, at);
            }
        }
    }

    /// Adds a catalogue, if it is not open yet.
    fn add_list(&self, opening: &mut Opening<O>, kind: ResourceType, audience: &O::Audience, collection: &Name) {
        if !self.has_list(kind, (audience, collection)) {
            let list = List { kind, audience: audience.clone(), collection: collection.clone() };
            opening.sources.push(Source::List(list));
        }
    }

    /// Whether others have opened what a source has.
    pub(crate) fn is_opened(&self, kind: ResourceType, source: &Source<O>, request: &Request) -> bool {
        match source {
            Source::Rows(list, ..) | Source::List(list) => self.has_list(list.kind, (&list.audience, &list.collection)),
            Source::Names(audience, _) => {
                let ledger = self.by_audience.get(&(kind, audience.clone())).map(|id| &self.ledgers[*id]);
                ledger.is_some_and(|ledger| requested(request).all(|names| ledger.selected(names).is_some()))
            }
        }
    }

    /// Whether a catalogue is open.
    pub(crate) fn has_list(&self, kind: ResourceType, (audience, collection): (&O::Audience, &Name)) -> bool {
        let ledger = self.by_audience.get(&(kind, audience.clone())).map(|id| &self.ledgers[*id]);
        ledger.is_some_and(|ledger| ledger.lists.contains_key(collection))
    }

    /// Opens some cells. Returns whether all are open, or were opened by another stream meanwhile.
    pub(crate) fn open_some(&self, origin: &mut O, opening: &mut Opening<O>, request: &Request) -> bool {
        let limit = self.limits.opened_together.max(1);
        let mut left = limit;
        while left > 0
            && let Some(source) = opening.sources.last()
        {
            if matches!(source, Source::List(_)) && !self.is_opened(opening.kind, source, request) {
                // It is a step of its own.
                if left == limit {
                    opening.open_lists(origin, opening.sources.len() - 1);
                }
                return false;
            }
            let keys = self.take_keys(origin, (opening, request), &mut left);
            let keys: Vec<&O::Key> = keys.iter().collect();
            opening.cells.extend(origin.open_all(&keys).into_iter().map(|(cell, _)| cell));
        }
        opening.sources.is_empty()
    }

    /// Takes the next keys from the last source, as far as there is room for their cells, and removes the source if it has no
    /// more. A catalogue that is not open is removed.
    pub(crate) fn take_keys(
        &self,
        origin: &O,
        (opening, request): (&mut Opening<O>, &Request),
        left: &mut usize,
    ) -> Vec<O::Key> {
        let kind = opening.kind;
        let Some(source) = opening.sources.last_mut() else { return Vec::new() };
        let cost = source.cost(kind);
        let room = (*left / cost).max(1);
        let mut keys: Vec<O::Key> = Vec::new();
        let exhausted = match source {
            _ if self.is_opened(kind, source, request) => true,
            Source::List(_) => true,
            Source::Rows(_, catalogue, at) => {
                let rows = &O::rows(catalogue)[*at..];
                let taken = rows.len().min(room);
                let keys_of = rows[..taken].iter().map(|(_, key)| key);
                keys.extend(keys_of.filter(|key| !O::hides(key)).cloned());
                *at += taken;
                taken == rows.len()
            }
            Source::Names(audience, at) => {
                let ledger = self.by_audience.get(&(kind, audience.clone())).map(|id| &self.ledgers[*id]);
                let names = requested(request).flat_map(Texts::iter).skip(*at).take(room.saturating_mul(LOOKUPS));
                let mut seen = 0;
                for name in names {
                    seen += 1;
                    if ledger.is_none_or(|ledger| ledger.name(name).is_none()) && origin.may_exist(kind, name) {
                        keys.extend(origin.resolve(kind, audience, &Name::from(name)));
                    }
                    if keys.len() == room {
                        break;
                    }
                }
                *at += seen;
                *left = left.saturating_sub(seen / LOOKUPS);
                seen == 0
            }
        };
        if exhausted {
            opening.sources.pop();
        }
        *left = left.saturating_sub(keys.len().saturating_mul(cost));
        keys
    }
}

impl<O: Origin> Source<O> {
    fn len(&self, request: &Request) -> usize {
        match self {
            Source::Names(..) => requested(request).map(Texts::len).sum(),
            Source::Rows(_, catalogue, _) => O::rows(catalogue).len(),
            Source::List(_) => 0,
        }
    }

    /// The number of cells as which each of its cells counts. `kind`: of names.
    pub(crate) fn cost(&self, kind: ResourceType) -> usize {
        let kind = match self {
            Source::Names(..) => kind,
            Source::Rows(list, ..) | Source::List(list) => list.kind,
        };
        if kind.parts.is_some() { PARTS } else { 1 }
    }
}

/// The names that a request lists as its subscription.
fn subscribed(request: &Request) -> &Texts {
    match &request.body {
        Body::Sotw { names, .. } => names,
        Body::Delta { subscribe, .. } => subscribe,
    }
}

/// The names that a request subscribes to, in lists.
fn requested(request: &Request) -> impl Iterator<Item = &Texts> {
    let names = match &request.body {
        // Older clients do not repeat the names that they have as a subscription.
        Body::Delta { subscribe, initial, .. } if subscribe.is_empty() => initial.names(),
        _ => subscribed(request),
    };
    Some(names).into_iter().filter(|names| !names.is_empty())
}
