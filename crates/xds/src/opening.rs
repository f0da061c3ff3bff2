//! Opens what a large request needs, a few cells at a time.
//!
//! The most expensive part of a request is to derive resources that no client has asked for yet. Before a request that needs
//! many is handled, they are opened in steps in the ledgers that will serve it, between which the caller does other work. They
//! stay open until the request has been handled ([`crate::holds`]). That happens in one step, so that the state of a stream does
//! not depend on the steps.
//!
//! A shared catalogue, or a route table, is derived at once, and grows with the mesh. It is a step of its own, which the
//! caller may take on another thread ([`crate::Hub::wanted`]).

use std::collections::BTreeSet;

use model::xds::{Parent, ResourceType};

use crate::cells::LedgerId;
use crate::core::{Core, LedgerKey};
use crate::decode::{Body, Texts};
use crate::holds::Kept;
use crate::ledger::{LOOKUPS, Ledger};
use crate::name_set::{Identity, NameSet};
use crate::stream::Stream;
use crate::wanted::{List, OpenedList};
use crate::watch::Watch;
use crate::{Code, Moment, Name, Origin, Request, Status};

/// A resource with parts (a route table) is derived from so many times as much as another one.
const PARTS: usize = 128;
/// A SotW request with other names than before counts as one name for each so many, because it repeats those that stay.
const REPEATED: usize = 8;

/// The resources that a request waits for.
pub(crate) struct Opening<O: Origin> {
    pub(crate) kind: ResourceType,
    /// To be opened, the last one first.
    pub(crate) sources: Vec<Source<O>>,
    /// Opened so far.
    pub(crate) kept: Kept<O::Cell>,
    /// The set of the names, if they are many.
    pub(crate) set: Option<NameSet>,
    /// The caller has done the next step ([`crate::Hub::opened`]).
    pub(crate) is_served: bool,
}

/// The names that are looked up.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// The subscription of a request.
    Request(&'a Request),
    /// The subscription of a stream.
    Set(&'a NameSet),
}

impl<'a> Asked<'a> {
    fn len(self) -> usize {
        match self {
            Asked::Request(request) => requested(request).map(Texts::len).sum(),
            Asked::Set(names) => names.len(),
        }
    }

    /// The names from this index on.
    fn from(self, at: usize) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match self {
            Asked::Request(request) => Box::new(requested(request).flat_map(Texts::iter).skip(at)),
            Asked::Set(names) => Box::new(names.iter().skip(at).map(|name| &**name)),
        }
    }

    /// Whether a ledger has them as a selection.
    fn is_selected<O: Origin>(self, ledger: &Ledger<O>) -> bool {
        match self {
            Asked::Request(request) => requested(request).all(|names| ledger.selected(names.identity()).is_some()),
            Asked::Set(names) => ledger.selected(names.identity()).is_some(),
        }
    }
}

/// Resources to be opened.
pub(crate) enum Source<O: Origin> {
    /// The names from this index on, for an audience.
    Names(Names<O>),
    /// The rows of a catalogue that is held, as far as they are not open.
    Rows(LedgerId, Name),
    /// A catalogue that was not open.
    List(List<O>),
}

/// Names that are resolved one by one.
pub(crate) struct Names<O: Origin> {
    ledger: LedgerKey<O>,
    /// The number of those that are open.
    opened: usize,
}

impl<O: Origin> Opening<O> {
    pub(crate) fn new(kind: ResourceType) -> Opening<O> {
        Opening { kind, sources: Vec::new(), kept: Kept::default(), set: None, is_served: false }
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
        let (mut opening, asked) = (Opening::new(kind), Asked::Request(request));
        if names > 0 || stream.watch(kind).is_none() {
            let (shared, own) = self.keys(origin, stream, kind);
            if !self.is_divided((&shared, own.as_ref()), requested(request).map(Texts::identity)) {
                if let Some(own) = own.filter(|own| !self.has_few_names(origin, own, asked, Some(&shared))) {
                    self.add_sources(stream, (&mut opening, request), own);
                }
                let of_own = opening.sources.len();
                self.add_sources(stream, (&mut opening, request), shared);
                self.open_own_lists(origin, &mut opening, of_own);
            }
        }
        self.add_followed(origin, stream, &mut opening);
        let takes_long = |source: &Source<O>| source.takes_long(kind) && (asked.len() > 0 || !source.is_names());
        let large = opening.sources.iter().any(takes_long);
        let count = opening.sources.iter().map(|source| self.left(source, asked)).sum::<usize>();
        if large || count > self.limits.opened_at_once {
            return Some(opening);
        }
        self.release(opening.kept);
        None
    }

    /// Builds the set of the names of a request in a step of its own, if they are many. Returns whether it did.
    pub(crate) fn build_set(
        &self,
        origin: &O,
        stream: &Stream<O::Token>,
        opening: &mut Opening<O>,
        request: &Request,
    ) -> bool {
        let names = requested(request).next().filter(|names| names.len() > self.limits.encoded_together);
        let Some(names) = names.filter(|_| opening.set.is_none() && !opening.kind.is_collected()) else { return false };
        opening.set = Some(self.name_set(origin, stream, opening.kind, names));
        true
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

    /// Whether other streams have these sets of names in the same two ledgers.
    pub(crate) fn is_divided(
        &self,
        (shared, own): (&LedgerKey<O>, Option<&LedgerKey<O>>),
        sets: impl Iterator<Item = Identity>,
    ) -> bool {
        let (Some(shared), Some(own)) = (self.known(shared), own.and_then(|own| self.known(own))) else {
            return false;
        };
        let mut sets = sets.peekable();
        sets.peek().is_some() && sets.all(|identity| self.division((shared, own), identity).is_some())
    }

    fn add_sources(
        &self,
        stream: &Stream<O::Token>,
        (opening, request): (&mut Opening<O>, &Request),
        ledger: LedgerKey<O>,
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
                self.add_list(opening, &ledger, name);
            }
            return;
        }
        self.add_names(opening, Asked::Request(request), ledger);
    }

    /// Whether an own audience of a named type is known to have so few of these names that they are opened when the stream enters its
    /// ledger. `shared` is the other audience, if the names may be selected in its ledger.
    pub(crate) fn has_few_names(
        &self,
        origin: &O,
        own: &LedgerKey<O>,
        asked: Asked<'_>,
        shared: Option<&LedgerKey<O>>,
    ) -> bool {
        let LedgerKey { kind, audience, .. } = own;
        if kind.is_listed() || origin.own_required(*kind, audience).is_none() {
            return false;
        }
        let names = match asked {
            Asked::Set(names) => Some(names),
            Asked::Request(request) => {
                let ledger = shared.and_then(|shared| self.known(shared));
                requested(request).next().and_then(|names| self.known_set(ledger, names))
            }
        };
        names.is_some_and(|names| {
            self.names_of_own(origin, (*kind, audience), names).len() <= self.limits.opened_at_once
        })
    }

    /// Adds names of a type without collections, for a ledger.
    pub(crate) fn add_names(&self, opening: &mut Opening<O>, asked: Asked<'_>, ledger: LedgerKey<O>) {
        let known = self.known(&ledger).map(|id| &self.ledgers[id]);
        let is_needed = match known {
            // Proxies of one kind subscribe to the same names, which are open then.
            Some(known) if known.by_name() => !asked.is_selected(known),
            _ if opening.kind.is_wildcard() => return self.add_list(opening, &ledger, &Name::default()),
            known => known.is_none(),
        };
        if is_needed {
            opening.sources.push(Source::Names(Names { ledger, opened: 0 }));
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
            let Ledger { audience, lens, .. } = &*self.ledgers[place.ledger];
            let ledger = LedgerKey { kind: child, audience: audience.clone(), lens: lens.clone(), own: is_own };
            for name in &parent.unanswered {
                self.add_list(opening, &ledger, name);
            }
            if is_own {
                self.open_lists(origin, opening, at);
            }
        }
    }

    /// Adds a catalogue, if it is not open yet.
    pub(crate) fn add_list(&self, opening: &mut Opening<O>, ledger: &LedgerKey<O>, collection: &Name) {
        let list = List { ledger: ledger.clone(), collection: collection.clone() };
        if self.rows_left(&list).is_none_or(|(_, left)| left > 0) {
            opening.sources.push(Source::List(list));
        }
    }

    /// The ledger of a catalogue, if it is in one, and the number of its rows that are not open.
    fn rows_left(&self, list: &List<O>) -> Option<(LedgerId, usize)> {
        let id = self.known(&list.ledger)?;
        Some((id, self.ledgers[id].lists.get(&list.collection)?.left()))
    }

    /// The number of resources of a source that are not open. An estimate for names.
    fn left(&self, source: &Source<O>, asked: Asked<'_>) -> usize {
        match source {
            Source::Names(_) => asked.len(),
            Source::Rows(id, collection) => self.ledgers[*id].lists.get(collection).map_or(0, |list| list.left()),
            Source::List(_) => 0,
        }
    }

    /// Opens the own catalogues, which are the first `of_own` sources. They are small, but may be derived from a shared one. If that is
    /// not open, they are opened after it.
    pub(crate) fn open_own_lists(&mut self, origin: &mut O, opening: &mut Opening<O>, of_own: usize) {
        if !opening.sources[of_own..].iter().any(|source| matches!(source, Source::List(_))) {
            let shared = opening.sources.split_off(of_own);
            self.open_lists(origin, opening, 0);
            opening.sources.extend(shared);
        }
    }

    /// Opens the catalogues among the sources from this index on.
    pub(crate) fn open_lists(&mut self, origin: &mut O, opening: &mut Opening<O>, from: usize) {
        for source in opening.sources.split_off(from) {
            match source {
                Source::List(list) => {
                    let opened = list.open(origin);
                    self.add_opened(opening, list, opened);
                }
                other => opening.sources.push(other),
            }
        }
    }

    /// Adds the rows of a catalogue, or the names of the request if there is none.
    pub(crate) fn add_opened(&mut self, opening: &mut Opening<O>, list: List<O>, opened: OpenedList<O>) {
        match opened {
            Some(opened) => {
                let id = self.begin_list(&mut opening.kept, &list, opened);
                opening.sources.push(Source::Rows(id, list.collection));
            }
            None if list.ledger.kind.is_wildcard() => {
                opening.sources.push(Source::Names(Names { ledger: list.ledger, opened: 0 }));
            }
            None => {}
        }
    }

    /// Removes sources from the end that other requests have opened, and shares a catalogue that one is opening.
    pub(crate) fn join(&mut self, opening: &mut Opening<O>, asked: Asked<'_>) {
        while let Some(source) = opening.sources.last() {
            let shared = match source {
                Source::Names(Names { ledger, .. }) => {
                    let ledger = self.known(ledger).map(|id| &self.ledgers[id]);
                    if !ledger.is_some_and(|ledger| asked.is_selected(ledger)) {
                        return;
                    }
                    None
                }
                Source::Rows(..) if self.left(source, asked) > 0 => return,
                Source::Rows(..) => None,
                Source::List(list) => match self.rows_left(list) {
                    None => return,
                    Some((_, 0)) => None,
                    Some((id, _)) => Some((id, list.collection.clone())),
                },
            };
            opening.sources.pop();
            if let Some((id, collection)) = shared {
                self.hold_list(&mut opening.kept, id, &collection);
                opening.sources.push(Source::Rows(id, collection));
            }
        }
    }

    /// Opens some resources. Returns whether all are open, or were opened by other requests meanwhile.
    pub(crate) fn open_some(&mut self, origin: &mut O, opening: &mut Opening<O>, asked: Asked<'_>) -> bool {
        let limit = self.limits.opened_together.max(1);
        let (kind, mut left) = (opening.kind, limit);
        let mut is_begun = std::mem::take(&mut opening.is_served);
        loop {
            self.join(opening, asked);
            match opening.sources.last_mut() {
                None => return true,
                Some(_) if left == 0 => return false,
                // It is a step of its own, for which the caller is asked first.
                Some(Source::Rows(..)) if is_begun => return false,
                Some(source) if is_begun && source.takes_long(kind) => return false,
                Some(Source::List(_)) => {
                    self.open_lists(origin, opening, opening.sources.len() - 1);
                    return false;
                }
                Some(Source::Rows(id, collection)) => {
                    let list = (&*collection, left);
                    left -= self.ledgers[*id].open_rows(origin, &mut self.cells, list, self.epoch);
                }
                Some(Source::Names(_)) if cost(kind) > 1 => {
                    let keys = self.take_keys(origin, (opening, asked), &mut left);
                    let keys: Vec<&O::Key> = keys.iter().collect();
                    opening.kept.cells.extend(origin.open_all(&keys).into_iter().map(|(cell, _)| cell));
                }
                Some(Source::Names(Names { ledger, opened })) => {
                    let id = self.ledger_for(ledger);
                    let (seen, new) = self.hold_names(origin, &mut opening.kept, (id, asked.from(*opened)), left);
                    *opened += seen;
                    left = left.saturating_sub(new + seen / LOOKUPS);
                    if seen == 0 {
                        opening.sources.pop();
                    }
                }
            }
            is_begun = true;
        }
    }

    /// Takes the next keys from the names that are the last source, as far as there is room for what is derived from them, and
    /// removes the source if it has no more.
    pub(crate) fn take_keys(
        &self,
        origin: &O,
        (opening, asked): (&mut Opening<O>, Asked<'_>),
        left: &mut usize,
    ) -> Vec<O::Key> {
        let cost = cost(opening.kind);
        let Some(Source::Names(names)) = opening.sources.last_mut() else { return Vec::new() };
        let (seen, keys) = self.next_keys(origin, names, asked, (*left / cost).max(1));
        names.opened += seen;
        if seen == 0 {
            opening.sources.pop();
        }
        *left = left.saturating_sub(seen / LOOKUPS + keys.len().saturating_mul(cost));
        keys
    }

    /// The keys of up to `room` of the next names that are not open, and the number of names that it looked at.
    pub(crate) fn next_keys(
        &self,
        origin: &O,
        Names { ledger, opened }: &Names<O>,
        asked: Asked<'_>,
        room: usize,
    ) -> (usize, Vec<O::Key>) {
        let LedgerKey { kind, audience, .. } = ledger;
        let ledger = self.known(ledger).map(|id| &self.ledgers[id]);
        let (mut keys, mut seen): (Vec<O::Key>, _) = (Vec::new(), 0);
        let names = asked.from(*opened).take(room.saturating_mul(LOOKUPS));
        let names: Box<dyn Iterator<Item = (&str, bool)>> = match ledger {
            Some(ledger) => Box::new(ledger.with_known(names)),
            None => Box::new(names.map(|name| (name, false))),
        };
        for (name, is_known) in names {
            seen += 1;
            if !is_known && origin.may_exist(*kind, name) {
                keys.extend(origin.resolve(*kind, audience, &Name::from(name)));
            }
            if keys.len() == room {
                break;
            }
        }
        (seen, keys)
    }
}

impl<O: Origin> Source<O> {
    fn is_names(&self) -> bool {
        matches!(self, Source::Names(_))
    }

    /// Whether the next part of it, of a type, is derived from the whole mesh.
    pub(crate) fn takes_long(&self, kind: ResourceType) -> bool {
        match self {
            Source::List(_) => true,
            Source::Rows(..) => false,
            Source::Names(_) => cost(kind) > 1,
        }
    }
}

/// The number of resources as which each one of a type counts.
pub(crate) fn cost(kind: ResourceType) -> usize {
    if kind.parts.is_some() { PARTS } else { 1 }
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
