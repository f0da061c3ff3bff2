//! An own ledger over a shared one: its rows replace and hide shared resources of the same names.
//!
//! A row of the own ledger counts instead of the shared resource, from the epoch in which it was added until it ends. A row
//! without a resource hides the shared one. So a stream of both ledgers has other changes than the two ledgers together:
//!
//! | event | for the stream |
//! |---|---|
//! | a row is added | a change, or a removal if the row has no resource |
//! | a row ends | a change if there is a shared resource of the name, otherwise a removal |
//! | a shared resource changes or is removed | nothing if there is a row of its name |
//!
//! Of a named type, rows neither begin nor end: the own audience resolves a name, or it never does.
//!
//! What follows for a stream is derived from the epochs of both ledgers when it is needed, since a stream may have a ledger
//! with any other. A stream that is behind may be sent the removal of a name that it never had.

use model::xds::Resource;

use crate::cells::Cells;
use crate::ledger::Tomb;
use crate::name_set::{Identity, hash};
use crate::subscription::Part;
use crate::{Epoch, Name, Origin};

/// So many rows of an own ledger are looked up in the shared one, rather than the changes of that one in the own one.
const FEW_ROWS: usize = 256;

pub(crate) struct Overlay<'a, O: Origin> {
    pub(crate) shared: Part<'a, O>,
    pub(crate) own: Part<'a, O>,
}

impl<O: Origin> Clone for Overlay<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Origin> Copy for Overlay<'_, O> {}

impl<'a, O: Origin> Overlay<'a, O> {
    /// The epoch in which the row of a name ended; 0 if there is one, or if none is known.
    pub(crate) fn uncovered_in(self, name: &str) -> Epoch {
        let tomb = self.own.ledger.tombs.get(name).filter(|_| !self.own.ledger.contains(name));
        tomb.map_or(0, |tomb| tomb.epoch)
    }

    /// The selected names of all rows, now or before.
    fn rows(self) -> impl Iterator<Item = &'a Name> {
        let own = self.own;
        own.decided().chain(own.ledger.tombs.keys().filter(move |name| own.selection.covers(name)))
    }

    /// The names that the own ledger decides and that are selected in the shared one.
    fn hidden(self) -> impl Iterator<Item = &'a Name> {
        self.own.decided().filter(move |name| self.shared.selection.covers(name))
    }

    /// The identity of the names that are only selected in the own ledger. Named types only.
    pub(crate) fn own_identity(self) -> Identity {
        let shared = self.shared.selection;
        let names = self.own.selection.named().filter(|name| !shared.covers(name));
        names.fold((0, 0), |(digest, count), name| (digest.wrapping_add(hash(name)), count + 1))
    }

    /// Whether the type has lists.
    fn is_listed(self) -> bool {
        self.own.ledger.kind.is_listed()
    }

    /// The names of added and changed resources, in any order. A name may occur more than once.
    pub(crate) fn changes<'c>(
        self,
        cells: &'c Cells<O::Cell>,
        from: Epoch,
        upto: Epoch,
    ) -> impl Iterator<Item = &'a Name> + 'c
    where
        'a: 'c,
    {
        let Overlay { shared, own } = self;
        let below = shared.ledger.changes(shared.selection, from, upto);
        let own_changes = own.ledger.changes(own.selection, from, upto);
        let uncovered = own.ledger.removed(own.selection, from, upto).filter(move |(name, tomb)| {
            !own.ledger.contains(name)
                // A later change has to wait.
                && shared.ledger.epoch_of(name) <= upto
                && shared.ledger.resource(cells, name).is_some_and(|now| !had_before(tomb, now, from))
        });
        below
            .filter(move |name| !own.decides(name))
            .chain(own_changes.filter(move |name| !self.equals_replaced(cells, name, from)))
            .chain(uncovered.map(|(name, _)| name))
    }

    /// Whether a row replaced an equal shared resource, which the client had at `from`.
    fn equals_replaced(self, cells: &Cells<O::Cell>, name: &Name, from: Epoch) -> bool {
        let (shared, own) = (self.shared.ledger, self.own.ledger);
        let (added, removed_before) = own.added_in(name);
        let is_new = from > 0 && added > from && removed_before <= from && own.epoch_of(name) == added;
        is_new && shared.epoch_of(name) <= from && {
            let (now, before) = (own.resource(cells, name), shared.resource(cells, name));
            before.is_some() && now.map(Resource::version) == before.map(Resource::version)
        }
    }

    /// Removed names, with the last resource of each, if it is known. In any order; a name may occur more than once.
    pub(crate) fn removed<'c>(
        self,
        cells: &'c Cells<O::Cell>,
        from: Epoch,
        upto: Epoch,
    ) -> impl Iterator<Item = (&'a Name, Option<&'c Resource>)> + 'c
    where
        'a: 'c,
    {
        let Overlay { shared, own } = self;
        let ended = own.ledger.removed(own.selection, from, upto).filter(move |(name, tomb)| {
            let is_gone = match own.ledger.contains(name) {
                true => own.ledger.resource(cells, name).is_none(),
                false => shared.ledger.resource(cells, name).is_none(),
            };
            is_gone && tomb.concerns(from)
        });
        let hidden = own
            .ledger
            .hidden_since(cells)
            .filter(move |(name, since)| *since > from && *since <= upto && own.selection.covers(name));
        let hidden =
            hidden.filter_map(move |(name, since)| Some((name, self.seen_before(cells, (name, since), from)?)));
        let below = shared.ledger.removed(shared.selection, from, upto);
        let below = below.filter(move |(name, tomb)| self.shows_removal(cells, name, tomb, from));
        ended
            .map(|(name, tomb)| (name, tomb.last.as_ref()))
            .chain(hidden)
            .chain(below.map(|(name, tomb)| (name, tomb.last.as_ref())))
    }

    /// The shared resource that a row hides since this epoch, as far as it is known. `None` if a client at `from` cannot have
    /// it.
    fn seen_before<'c>(
        self,
        cells: &'c Cells<O::Cell>,
        (name, since): (&str, Epoch),
        from: Epoch,
    ) -> Option<Option<&'c Resource>>
    where
        'a: 'c,
    {
        let shared = self.shared.ledger;
        if let Some(resource) = shared.resource(cells, name) {
            let (added, removed_before) = shared.added_in(name);
            return match added < since {
                true => Some(Some(resource)),
                // It was there before, too.
                false => (removed_before > from).then_some(None),
            };
        }
        shared.tombs.get(name).filter(|tomb| tomb.epoch >= since).map(|tomb| tomb.last.as_ref())
    }

    /// Whether a client at `from` had a shared resource that was removed after it.
    fn shows_removal(self, cells: &Cells<O::Cell>, name: &Name, removed: &Tomb, from: Epoch) -> bool {
        let own = self.own.ledger;
        if own.contains(name) {
            // A row with a resource counts. One without hid the shared resource before it was removed, or hides nothing.
            return own.resource(cells, name).is_none() && own.epoch_of(name) >= removed.epoch;
        }
        let hid = |row: &Tomb| row.last.is_none() && row.epoch >= removed.epoch && row.changed <= from;
        !own.tombs.get(name).is_some_and(hid)
    }

    /// The share of hidden resources in the digest of the shared ledger.
    pub(crate) fn hidden_digest(self, cells: &Cells<O::Cell>) -> u64 {
        let shared = self.shared;
        let share = |name: &Name| {
            let of = |resource| shared.ledger.share_of(shared.selection, name, resource);
            // A name of a named type has a share in both selections, even without a resource.
            let remains = if self.is_listed() { of(None) } else { 0 };
            of(shared.ledger.resource(cells, name)).wrapping_sub(remains)
        };
        self.hidden().map(share).fold(0, u64::wrapping_add)
    }

    /// Whether any row, now or before, has the name of a shared resource, now or before.
    pub(crate) fn meets(self) -> bool {
        let shared = self.shared.ledger;
        // A name of a named type is answered even if it is in no ledger.
        let meets = |name: &Name| match self.is_listed() {
            true => shared.contains(name) || shared.tombs.contains_key(name),
            false => self.shared.selection.covers(name),
        };
        self.rows().any(meets)
    }

    /// Whether the changes of the two ledgers between these epochs are not independent, so that a response is not simply
    /// that of one ledger and then that of the other. `from`: of updates, and of removals.
    pub(crate) fn interferes(self, from: (Epoch, Epoch), upto: (Epoch, Epoch)) -> bool {
        let Overlay { shared, own } = self;
        let within = |epoch: Epoch, from: Epoch, upto: Epoch| epoch > from && epoch <= upto;
        let has_changed = |name: &Name| within(shared.ledger.epoch_of(name), from.0, upto.0);
        if !self.is_listed() {
            return if from.0 == 0 { self.meets() } else { self.hidden().any(has_changed) };
        }
        let is_idle = from.0 > 0 && own.selection.changed <= from.0 && own.selection.removed <= from.1;
        if !is_idle {
            return self.meets();
        }
        let removes = shared.selection.removed > from.1;
        // Both ledgers may be large: looks for the smaller number of names in the other one.
        if let Some(mut changed) = shared.ledger.few_changes(from.0, own.ledger.len()).filter(|_| !removes) {
            return changed.any(|name| own.ledger.contains(name) && has_changed(name));
        }
        if own.ledger.len() <= FEW_ROWS {
            return own.ledger.names().any(|name| {
                let removed = shared.ledger.tombs.get(name).map_or(0, |tomb| tomb.epoch);
                has_changed(name) || within(removed, from.1, upto.1)
            });
        }
        let hides = |name: &Name| own.ledger.contains(name);
        shared.ledger.changes(shared.selection, from.0, upto.0).any(hides)
            || shared.ledger.removed(shared.selection, from.1, upto.1).any(|(name, _)| hides(name))
    }
}

/// Whether a client at `from` had the resource `now` as that of a row that ended since.
fn had_before(ended: &Tomb, now: &Resource, from: Epoch) -> bool {
    from > 0 && ended.changed <= from && ended.last.as_ref().is_some_and(|last| last.version() == now.version())
}
