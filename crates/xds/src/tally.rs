//! Counts the clients that have acknowledged, rejected or not yet answered the resources of an object.
//!
//! A stream's place in a ledger shows what it has acknowledged, so that counting needs no state of its own. The streams
//! of a selection are a bit set, from which those that lag behind or sent a NACK are removed. A query costs one pass
//! over such sets per ledger with its cells, and does not visit each stream.

mod bits;
mod view;

use std::sync::Arc;

use model::xds::ResourceType;
use rustc_hash::FxHashMap;

use crate::cells::LedgerId;
use crate::ledger::Ledger;
use crate::quarantine::Entry;
use crate::watch::Watch;
use crate::{Epoch, Hub, Name, Origin, StreamId};
use bits::Bits;
use view::View;

/// Events that may have changed a [`Tally`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// A client acknowledged a response.
    pub answered: bool,
    /// A client rejected a response.
    pub rejected: bool,
    /// Clients connected, disconnected or changed their subscriptions.
    pub members: bool,
}

/// A query for the clients that use the resources of one object.
#[derive(Clone, Debug)]
pub struct Question<C> {
    /// Resources that are derived from it. A client that is sent any of them counts.
    pub resources: Vec<C>,
    /// Catalogues. Every client that is sent one counts.
    pub catalogues: Vec<Listed<C>>,
    /// Catalogues whose clients count if a listed resource changed in the epoch `since`.
    pub maybe: Vec<C>,
    /// The epoch ([`Hub::epoch`]) of the object's last change. Later changes of its resources have other causes and are not
    /// waited for.
    pub since: Epoch,
    /// The parts of the resources that are derived from it. If a resource has rejected parts, the object is only to blame if
    /// they are among these.
    pub parts: Vec<Arc<str>>,
}

/// A catalogue that lists resources of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<C> {
    /// The catalogue.
    pub cell: C,
    /// The names of the object's resources in it. `None`: not known. A client then counts for all resources of the catalogue
    /// that it has not acknowledged.
    pub names: Option<Vec<Name>>,
}

/// The clients of an object's resources. A client that rejected one resource and has not answered for another counts as
/// rejecting.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Clients that are sent any of the resources.
    pub total: usize,
    /// Clients that have acknowledged all resources that they are sent.
    pub running: usize,
    /// Clients that rejected a resource and have not accepted it since.
    pub rejected: usize,
    /// Clients that have not answered yet.
    pub pending: usize,
    /// One of the NACKs: that of the first client by name.
    pub nack: Option<Nack>,
}

/// A client's NACK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nack {
    /// The client.
    pub proxy: Arc<str>,
    /// The type.
    pub kind: ResourceType,
    /// The resources that its error names, or the one that was queried.
    pub resources: Vec<Arc<str>>,
    /// Its error.
    pub message: Arc<str>,
}

impl<O: Origin> Hub<O> {
    /// The number of commits applied; for [`Question::since`].
    pub fn epoch(&self) -> u64 {
        self.core.epoch
    }

    /// Events since the last call.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.core.news)
    }

    /// Counts clients. Several queries of one of these cost less than several with one query each.
    pub fn tallies(&self) -> Tallies<'_, O> {
        let mut ids: Vec<StreamId> = self.streams.keys().copied().collect();
        ids.sort_unstable();
        let places = ids.iter().zip(0..).map(|(id, place)| (*id, place)).collect();
        Tallies {
            hub: self,
            places,
            views: FxHashMap::default(),
            total: Bits::new(ids.len()),
            pending: Bits::new(ids.len()),
            rejected: Bits::new(ids.len()),
            nack: None,
            ids,
        }
    }
}

/// A part of a query: one name of a ledger, or all.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) name: Option<&'a Name>,
    /// Changes up to this epoch must be acknowledged.
    pub(crate) due: Epoch,
}

/// Answers queries, and keeps what it has found out about ledgers for the next ones.
pub struct Tallies<'h, O: Origin> {
    hub: &'h Hub<O>,
    ids: Vec<StreamId>,
    places: FxHashMap<StreamId, u32>,
    views: FxHashMap<LedgerId, View<'h>>,
    /// For the current query.
    total: Bits,
    pending: Bits,
    rejected: Bits,
    nack: Option<FirstNack>,
}

/// The stream whose NACK is reported.
struct FirstNack {
    proxy: Arc<str>,
    stream: StreamId,
    kind: ResourceType,
    asked: Option<Name>,
    /// The entry in quarantine, if it is not the stream's last NACK.
    entry: Option<u64>,
}

impl<'h, O: Origin> Tallies<'h, O> {
    /// The clients of one object's resources.
    pub fn answer(&mut self, question: &Question<O::Cell>) -> Tally {
        self.total.clear();
        self.pending.clear();
        self.rejected.clear();
        self.nack = None;
        let hub = self.hub;
        for cell in &question.resources {
            for (ledger, name) in hub.core.cells.users(*cell) {
                let due = hub.core.ledgers[ledger].epoch_of(name).min(question.since);
                self.ask(ledger, Ask { name: Some(name), due }, &question.parts);
            }
        }
        for listed in &question.catalogues {
            for id in self.lists_of(&listed.cell) {
                match &listed.names {
                    Some(names) => self.ask_named(*id, question, names),
                    None => self.ask_listed(*id, question, true),
                }
            }
        }
        for cell in &question.maybe {
            self.lists_of(cell).iter().for_each(|id| self.ask_listed(*id, question, false));
        }
        self.pending.subtract(&self.rejected);
        let (total, pending, rejected) = (self.total.count(), self.pending.count(), self.rejected.count());
        Tally {
            total,
            running: total - pending - rejected,
            rejected,
            pending,
            nack: self.nack.take().and_then(|first| self.nack_of(first)),
        }
    }

    fn lists_of(&self, catalogue: &O::Cell) -> &'h [LedgerId] {
        self.hub.core.catalogues.get(catalogue).map_or(&[], |ids| ids)
    }

    /// Counts the clients of resources in a catalogue, and of those that the object's last change removed from it.
    fn ask_named(&mut self, id: LedgerId, question: &Question<O::Cell>, names: &[Name]) {
        let ledger = &self.hub.core.ledgers[id];
        let listed: Vec<&Name> = names.iter().filter_map(|name| ledger.name(name)).collect();
        let removed: Vec<&Name> = ledger.changed_in(question.since).filter(|name| !ledger.contains(name)).collect();
        if listed.is_empty() && removed.is_empty() {
            // None of its resources is served. The clients count, so that the object is not without any.
            return self.ask(id, Ask { name: None, due: 1 }, &question.parts);
        }
        for name in listed {
            let due = ledger.epoch_of(name).min(question.since).max(1);
            self.ask(id, Ask { name: Some(name), due }, &question.parts);
        }
        for name in removed {
            self.ask(id, Ask { name: Some(name), due: question.since }, &question.parts);
        }
    }

    /// Counts the clients of a catalogue.
    fn ask_listed(&mut self, id: LedgerId, question: &Question<O::Cell>, certain: bool) {
        let mut changed = self.hub.core.ledgers[id].changed_in(question.since).peekable();
        if certain && changed.peek().is_none() {
            // The object's change was long ago or had no effect here: any acknowledgement covers it.
            self.ask(id, Ask { name: None, due: 1 }, &question.parts);
        }
        for name in changed {
            let due = question.since;
            self.ask(id, Ask { name: Some(name), due }, &question.parts);
        }
    }

    fn ask(&mut self, id: LedgerId, ask: Ask<'h>, parts: &[Arc<str>]) {
        if ask.name.is_some_and(|name| self.ask_quarantine(id, name, parts)) {
            return;
        }
        let hub = self.hub;
        let places = &self.places;
        let ledger: &Ledger<O> = &hub.core.ledgers[id];
        let view = self.views.entry(id).or_insert_with(|| {
            View::of(ledger, places, |id| hub.watch(id, ledger.kind), |watch| hub.core.subscription(watch))
        });
        view.add(&ask, &mut self.total, &mut self.pending, |place| {
            self.rejected.insert(place);
            let stream = self.ids[place as usize];
            let Some(proxy) = hub.streams.get(&stream).map(|stream| &stream.proxy.id) else {
                return;
            };
            let first = self.nack.as_ref().is_none_or(|first| {
                // If one proxy has several NACKs, the type that is sent first counts.
                (proxy, ledger.kind) < (&first.proxy, first.kind)
            });
            if first {
                let (proxy, asked) = (proxy.clone(), ask.name.cloned());
                self.nack = Some(FirstNack { proxy, stream, kind: ledger.kind, asked, entry: None });
            }
        });
    }

    /// Counts the clients that are not sent a resource because it, or one of these parts of it, is in quarantine. Returns
    /// whether that is so.
    fn ask_quarantine(&mut self, id: LedgerId, name: &'h Name, parts: &[Arc<str>]) -> bool {
        let ledger = &self.hub.core.ledgers[id];
        let Some(substituted) = ledger.substitution_of(name) else {
            return false;
        };
        let entries = || substituted.by.iter().map(|id| (*id, self.hub.core.quarantine.entry(*id)));
        let is_blamed = |entry: &Entry| entry.culprit.part.as_ref().is_none_or(|part| parts.contains(part));
        let blamed = entries().find(|(_, entry)| entry.is_some_and(is_blamed)).map(|(id, _)| id);
        // The part to blame is not known yet.
        let is_open = entries().any(|(_, entry)| entry.is_none());
        if blamed.is_none() && !is_open {
            return false;
        }
        let selections = ledger.selections.iter().filter(|(_, selection)| selection.covers(name));
        for stream in selections.flat_map(|(_, selection)| selection.streams.iter().copied()) {
            let (Some(place), Some(proxy)) = (self.places.get(&stream), self.hub.proxy(stream)) else {
                continue;
            };
            let proxy = &proxy.id;
            self.total.insert(*place);
            let counted = if blamed.is_some() { &mut self.rejected } else { &mut self.pending };
            counted.insert(*place);
            let first = self.nack.as_ref().is_none_or(|first| (proxy, ledger.kind) < (&first.proxy, first.kind));
            if first && blamed.is_some() {
                let (proxy, asked, kind) = (proxy.clone(), Some(name.clone()), ledger.kind);
                self.nack = Some(FirstNack { proxy, stream, kind, asked, entry: blamed });
            }
        }
        true
    }

    fn nack_of(&self, first: FirstNack) -> Option<Nack> {
        if let Some(entry) = first.entry.and_then(|id| self.hub.core.quarantine.entry(id)) {
            let resources = first.asked.into_iter().collect();
            let message = entry.culprit.message.clone();
            return Some(Nack { proxy: first.proxy, kind: first.kind, resources, message });
        }
        let watch = self.hub.watch(first.stream, first.kind)?;
        let named = watch.rejection.as_ref().map(|rejection| rejection.names.clone());
        let resources = match named {
            Some(named) if !named.is_empty() => named,
            _ => first.asked.into_iter().collect(),
        };
        Some(Nack { proxy: first.proxy, kind: first.kind, resources, message: watch.error.as_ref()?.message.clone() })
    }
}

impl<O: Origin> Hub<O> {
    fn watch(&self, id: StreamId, kind: ResourceType) -> Option<&Watch> {
        self.streams.get(&id)?.watch(kind)
    }
}
