//! The state that streams share: ledgers, and how streams enter and leave them.

use model::xds::{ResourceType, ResourceTypes};
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::cells::{Cells, LedgerId};
use crate::ledger::Ledger;
use crate::name_set::NameSet;
use crate::stream::Stream;
use crate::subscription::{Latest, Part, Place, Subscription};
use crate::tally::News;
use crate::unanswered::Unanswered;
use crate::watch::Watch;
use crate::{Epoch, Limits, Name, Origin, Stats, StreamId, WatchStatus};

/// The state of a hub without its streams.
pub(crate) struct Core<O: Origin> {
    pub(crate) limits: Limits,
    pub(crate) types: ResourceTypes,
    pub(crate) ledgers: Slab<Ledger<O>>,
    pub(crate) by_audience: FxHashMap<(ResourceType, O::Audience), LedgerId>,
    pub(crate) catalogues: FxHashMap<O::Cell, LedgerId>,
    pub(crate) cells: Cells<O::Cell>,
    pub(crate) epoch: Epoch,
    pub(crate) serial: u64,
    pub(crate) stats: Stats,
    pub(crate) news: News,
    pub(crate) unanswered: Unanswered,
}

impl<O: Origin> Core<O> {
    /// The resources that a watch subscribes to.
    pub(crate) fn subscription(&self, watch: &Watch) -> Subscription<'_, O> {
        Subscription::new(self.part(watch.shared), watch.own.map(|place| self.part(place)))
    }

    pub(crate) fn latest(&self, watch: &Watch) -> Latest {
        self.subscription(watch).latest()
    }

    /// The names that a watch subscribes to; `None` for all.
    pub(crate) fn names(&self, watch: &Watch) -> Option<NameSet> {
        let shared = self.part(watch.shared).selection.names.as_ref()?;
        let own = watch.own.and_then(|place| self.part(place).selection.names.as_ref());
        Some(own.map_or_else(|| shared.clone(), |own| shared.union(own)))
    }

    pub(crate) fn part(&self, place: Place) -> Part<'_, O> {
        let ledger = &self.ledgers[place.ledger];
        Part { ledger, selection: &ledger.selections[place.selection] }
    }

    /// The ledger of a type and audience. Opens it if there is none.
    pub(crate) fn ledger(&mut self, origin: &mut O, kind: ResourceType, audience: O::Audience) -> LedgerId {
        let key = (kind, audience);
        if let Some(id) = self.by_audience.get(&key) {
            return *id;
        }
        let entry = self.ledgers.vacant_entry();
        let id = entry.key();
        let ledger = entry.insert(Ledger::new(id, kind, key.1.clone(), self.epoch));
        if kind.is_wildcard() {
            ledger.open(origin, &mut self.cells, &Name::default(), self.epoch);
            self.catalogues.extend(ledger.lists.values().map(|list| (list.cell, id)));
        }
        self.by_audience.insert(key, id);
        id
    }

    /// Adds a stream to a watch's selections.
    pub(crate) fn enter(&mut self, watch: &Watch, stream: StreamId) {
        self.news.members = true;
        for Place { ledger, selection } in watch.places() {
            self.ledgers[ledger].selections[selection].streams.insert(stream);
        }
    }

    /// Removes a stream from a selection, and closes selections and ledgers without streams.
    pub(crate) fn leave(&mut self, place: Place, stream: StreamId) {
        self.news.members = true;
        let Place { ledger: ledger_id, selection } = place;
        let ledger = &mut self.ledgers[ledger_id];
        ledger.selections[selection].streams.remove(&stream);
        let before: Vec<O::Cell> = ledger.lists.values().map(|list| list.cell).collect();
        ledger.drop_if_unused(&mut self.cells, selection);
        let is_open = |cell: &O::Cell| ledger.lists.values().any(|list| list.cell == *cell);
        for cell in before.iter().filter(|cell| !is_open(cell)) {
            self.catalogues.remove(cell);
        }
        if ledger.selections.is_empty() {
            let ledger = self.ledgers.remove(ledger_id);
            for list in ledger.lists.values() {
                self.catalogues.remove(&list.cell);
            }
            self.by_audience.remove(&(ledger.kind, ledger.audience.clone()));
            ledger.close(&mut self.cells);
        }
    }

    /// Ends a stream's watch of a type.
    pub(crate) fn unwatch(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType) {
        if let Some(watch) = stream.watches.remove(kind) {
            watch.places().for_each(|place| self.leave(place, stream.id));
        }
    }

    /// Drops cached responses that were not used since the last call. Returns whether others remain.
    pub(crate) fn forget_idle(&mut self) -> bool {
        let ledgers = self.ledgers.iter_mut();
        let selections = ledgers.flat_map(|(_, ledger)| ledger.selections.iter_mut());
        selections.fold(false, |left, (_, selection)| selection.forget_idle() || left)
    }

    pub(crate) fn watch_status(&self, watch: &Watch) -> WatchStatus {
        WatchStatus {
            kind: watch.kind,
            names: self.names(watch).as_ref().map(NameSet::len),
            sent: watch.sent_at.clone(),
            acked: watch.acked_at.clone(),
            error: watch.error.clone(),
            synced: watch.inflight.is_none() && !watch.has_updates(self.latest(watch)) && watch.error.is_none(),
        }
    }
}
