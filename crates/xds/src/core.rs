//! The state that streams share: ledgers, and how streams enter and leave them.

use std::sync::Arc;

use model::xds::{ResourceType, ResourceTypes};
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::cells::{Cells, LedgerId};
use crate::compose::Composed;
use crate::divisions::Divisions;
use crate::goods::Goods;
use crate::holds::Hold;
use crate::ledger::{Ledger, List};
use crate::moves::Moves;
use crate::name_set::{Identity, NameSet};
use crate::quarantine::{Lens, Quarantine};
use crate::spread_map::SpreadMap;
use crate::status::LastNack;
use crate::stream::Stream;
use crate::subscription::{Latest, Part, Place, Subscription};
use crate::tally::News;
use crate::unanswered::Unanswered;
use crate::watch::Watch;
use crate::{Epoch, Limits, Name, Origin, Stats, StreamId, WatchStatus};

/// Identifies a ledger, which may not exist.
pub(crate) struct LedgerKey<O: Origin> {
    pub(crate) kind: ResourceType,
    pub(crate) audience: O::Audience,
    pub(crate) lens: Arc<Lens>,
    /// The audience is a proxy's own one.
    pub(crate) own: bool,
}

impl<O: Origin> Clone for LedgerKey<O> {
    fn clone(&self) -> LedgerKey<O> {
        LedgerKey { kind: self.kind, audience: self.audience.clone(), lens: self.lens.clone(), own: self.own }
    }
}

/// The state of a hub without its streams.
pub(crate) struct Core<O: Origin> {
    pub(crate) limits: Limits,
    pub(crate) types: ResourceTypes,
    /// In boxes, so that the growth of the table moves little. There are several for each proxy.
    pub(crate) ledgers: Slab<Box<Ledger<O>>>,
    pub(crate) by_audience: SpreadMap<(ResourceType, O::Audience), LedgerId>,
    /// The ledgers with a catalogue: several if they have different lenses.
    pub(crate) catalogues: SpreadMap<O::Cell, Vec<LedgerId>>,
    pub(crate) cells: Cells<O::Cell>,
    pub(crate) epoch: Epoch,
    pub(crate) serial: u64,
    pub(crate) stats: Stats,
    pub(crate) news: News,
    pub(crate) unanswered: Unanswered,
    pub(crate) quarantine: Quarantine,
    pub(crate) goods: Goods<O::Cell>,
    /// Ledgers with a lens, by type, audience and the lens's entries.
    pub(crate) by_lens: FxHashMap<(ResourceType, O::Audience, Vec<u64>), LedgerId>,
    pub(crate) divisions: Divisions,
    pub(crate) moves: Moves,
    /// Holds of requests and moves that have been handled. They are released later, a few names at a time.
    pub(crate) released: Vec<Hold>,
    /// The set of the names of the request that is handled, if an earlier step has built it.
    pub(crate) built: Option<NameSet>,
    /// Streams whose lenses changed and that have long lists: their moves are to be prepared.
    pub(crate) waiting_moves: Vec<StreamId>,
    /// Catalogues that were replaced or closed. They are dropped later, one at a time.
    pub(crate) outdated: Vec<O::Catalogue>,
    /// Responses that are not used any more. They are dropped in the same way.
    pub(crate) idle: Vec<Arc<Composed>>,
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

    /// Identifies the set of these names, and has their number, without making it.
    pub(crate) fn identity(&self, watch: &Watch) -> Option<Identity> {
        let names = |place: Place| self.part(place).selection.names.as_ref();
        let (digest, count) = names(watch.shared)?.identity();
        let subscription = self.subscription(watch);
        let (more, further) = match subscription.overlay() {
            _ if subscription.is_listed() => (0, 0),
            Some(overlay) => overlay.own_identity(),
            // No name is in both parts of a divided set.
            None => watch.own.and_then(names).map(NameSet::identity).unwrap_or_default(),
        };
        Some((digest.wrapping_add(more), count + further))
    }

    pub(crate) fn part(&self, place: Place) -> Part<'_, O> {
        let ledger = &self.ledgers[place.ledger];
        Part { ledger, selection: &ledger.selections[place.selection] }
    }

    /// The ledger of a type and audience that shows resources as they are, if there is one.
    pub(crate) fn known_ledger(&self, kind: ResourceType, audience: &O::Audience) -> Option<LedgerId> {
        self.by_audience.get(&(kind, audience.clone())).copied()
    }

    /// The ledger with this key, if there is one.
    pub(crate) fn known(&self, key: &LedgerKey<O>) -> Option<LedgerId> {
        match key.lens.ids.is_empty() {
            true => self.known_ledger(key.kind, &key.audience),
            false => self.by_lens.get(&(key.kind, key.audience.clone(), key.lens.ids.clone())).copied(),
        }
    }

    /// The ledgers that a stream has, or is to have, for a type: the shared one and its own one.
    pub(crate) fn keys(
        &self,
        origin: &O,
        stream: &Stream<O::Token>,
        kind: ResourceType,
    ) -> (LedgerKey<O>, Option<LedgerKey<O>>) {
        let lens = Arc::new(self.lens(stream, kind));
        let key = |audience, own| LedgerKey { kind, audience, lens: lens.clone(), own };
        let own = origin.own_audience(stream.token, kind).map(|own| key(own, true));
        (key(origin.audience(stream.token, kind), false), own)
    }

    /// The ledger with this key. Opens it if there is none.
    pub(crate) fn ledger(&mut self, origin: &mut O, key: &LedgerKey<O>) -> LedgerId {
        let known = self.known(key);
        let id = self.ledger_for(key);
        if key.kind.is_wildcard() {
            let (ledger, all) = (&mut self.ledgers[id], Name::default());
            if known.is_none() {
                ledger.open(origin, &mut self.cells, &all, self.epoch);
                self.note_catalogues(id);
            } else {
                // A request may have opened a part of it.
                ledger.open_rows(origin, &mut self.cells, (&all, usize::MAX), self.epoch);
            }
        }
        id
    }

    /// Adds a ledger in which nothing is open.
    fn add_ledger(&mut self, key: &LedgerKey<O>) -> LedgerId {
        let LedgerKey { kind, audience, lens, .. } = key.clone();
        let entry = self.ledgers.vacant_entry();
        let id = entry.key();
        entry.insert(Box::new(Ledger::new(id, kind, audience.clone(), lens.clone(), self.epoch)));
        if lens.ids.is_empty() {
            self.by_audience.insert((kind, audience), id);
        } else {
            self.by_lens.insert((kind, audience, lens.ids.clone()), id);
        }
        id
    }

    /// The ledger with this key, in which nothing may be open yet.
    pub(crate) fn ledger_for(&mut self, key: &LedgerKey<O>) -> LedgerId {
        let id = self.known(key).unwrap_or_else(|| self.add_ledger(key));
        self.ledgers[id].own |= key.own;
        id
    }

    /// Records the open catalogues of a ledger.
    pub(crate) fn note_catalogues(&mut self, id: LedgerId) {
        for list in self.ledgers[id].lists.values() {
            let ledgers = self.catalogues.get_or_insert_with(list.cell, Vec::new);
            if !ledgers.contains(&id) {
                ledgers.push(id);
            }
        }
    }

    /// Forgets that a ledger has a list. A long one is dropped later.
    fn forget_list(&mut self, List { cell, catalogue, .. }: List<O>, id: LedgerId) {
        if O::rows(&catalogue).len() > self.limits.opened_at_once {
            self.outdated.push(catalogue);
        }
        let Some(ledgers) = self.catalogues.get_mut(&cell) else { return };
        ledgers.retain(|ledger| *ledger != id);
        if ledgers.is_empty() {
            self.catalogues.remove(&cell);
        }
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
        let Place { ledger, selection } = place;
        let left = &mut self.ledgers[ledger].selections[selection];
        left.streams.remove(&stream);
        if left.streams.is_empty() {
            self.idle.extend(left.take_responses(self.limits.opened_at_once));
        }
        if let Some(names) = self.ledgers[ledger].take_unused(selection, self.limits.opened_at_once) {
            self.release_names(ledger, names);
        }
        self.shrink(ledger, |ledger, cells| ledger.drop_if_unused(cells, selection));
    }

    /// Closes a part of a ledger, and the ledger if nothing uses it any more, later if it has many rows. `close` returns the
    /// lists that it closed.
    pub(crate) fn shrink<C>(
        &mut self,
        ledger_id: LedgerId,
        close: impl FnOnce(&mut Ledger<O>, &mut Cells<O::Cell>) -> C,
    ) where
        C: IntoIterator<Item = List<O>>,
    {
        let ledger = &mut self.ledgers[ledger_id];
        let closed = close(ledger, &mut self.cells);
        let is_unused = ledger.selections.is_empty() && ledger.holds == 0;
        closed.into_iter().for_each(|list| self.forget_list(list, ledger_id));
        if is_unused && self.ledgers[ledger_id].open_row_count() > self.limits.opened_at_once {
            self.release_list(ledger_id, Name::default());
        } else if is_unused {
            let ledger = self.ledgers.remove(ledger_id);
            if ledger.lens.ids.is_empty() {
                self.by_audience.remove(&(ledger.kind, ledger.audience.clone()));
            } else {
                self.by_lens.remove(&(ledger.kind, ledger.audience.clone(), ledger.lens.ids.clone()));
            }
            let lists = ledger.close(&mut self.cells);
            lists.into_iter().for_each(|list| self.forget_list(list, ledger_id));
        }
    }

    /// Ends a stream's watch of a type.
    pub(crate) fn unwatch(&mut self, stream: &mut Stream<O::Token>, kind: ResourceType) {
        if let Some(watch) = stream.watches.remove(kind) {
            watch.places().for_each(|place| self.leave(place, stream.id));
        }
    }

    /// The NACK of a resource in quarantine that a watch subscribes to.
    fn quarantined(&self, watch: &Watch) -> Option<LastNack> {
        let (version, nonce) = watch.last();
        let entry = watch.places().find_map(|place| {
            let part = self.part(place);
            let mut ids = part.ledger.substituted().filter(|(name, _)| part.selection.covers(name));
            ids.find_map(|(_, one)| one.by.iter().find_map(|id| self.quarantine.entry(*id)))
        })?;
        Some(LastNack { message: entry.culprit.message.clone(), version, nonce, at: entry.since })
    }

    /// The NACK of a watch, or of a resource in quarantine that it subscribes to.
    pub(crate) fn nack(&self, watch: &Watch) -> Option<LastNack> {
        watch.error.as_deref().cloned().or_else(|| self.quarantined(watch))
    }

    pub(crate) fn watch_status(&self, watch: &Watch) -> WatchStatus {
        let error = self.nack(watch);
        WatchStatus {
            kind: watch.kind,
            names: self.identity(watch).map(|(_, count)| count),
            sent: watch.sent_at.clone(),
            acked: watch.acked_at.clone(),
            synced: watch.inflight.is_none() && !watch.has_updates(self.latest(watch)) && error.is_none(),
            error,
        }
    }
}
