//! Rows of an own ledger, which hide the shared resources of their names ([`overlay`](crate::overlay)).

use super::{Entry, Ledger, Tomb};
use crate::cells::Cells;
use crate::{Epoch, Name, Origin};

impl<O: Origin> Ledger<O> {
    /// Whether there is a row of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The names of all rows, ascending.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.keys()
    }

    /// The epoch in which a row was added, and that in which an earlier row of the name was removed; 0 if it is not known.
    pub(crate) fn added_in(&self, name: &str) -> (Epoch, Epoch) {
        self.entries.get(name).map_or((0, 0), |entry| (entry.added, entry.removed_before))
    }

    /// Names that hide a shared resource without replacing it, and the epochs since which they do.
    pub(crate) fn hidden_since(&self, cells: &Cells<O::Cell>) -> impl Iterator<Item = (&Name, Epoch)> {
        let rows = self.entries.iter().filter(|_| self.own && self.kind.is_listed());
        let empty = rows.filter(|(_, row)| row.cell.and_then(|cell| cells.get(cell)).is_none());
        empty.map(|(name, row)| (name, row.epoch))
    }

    /// Whether a row only hides a shared resource.
    pub(super) fn hides(&self, entry: &Entry<O::Cell>) -> bool {
        entry.cell.is_none() && self.kind.is_listed() && !self.by_name()
    }

    /// Makes the row of this name one that hides the shared resource.
    pub(super) fn hide(&mut self, cells: &mut Cells<O::Cell>, name: &Name, epoch: Epoch) {
        let old = self.resource(cells, name).cloned();
        self.on_resource(name, old.as_ref(), None, epoch);
        self.substituted.remove(name);
        if let Some(before) = self.entries.insert(name.clone(), Entry::new(None, epoch)) {
            self.close_cell(cells, name, before.cell);
        }
        if old.is_none() {
            self.mark(name, epoch, true, 0);
        }
    }

    /// Records the end of a row without a resource, which was there since an epoch: a shared resource of the name is
    /// visible again.
    pub(super) fn uncover(&mut self, name: &Name, since: Epoch, epoch: Epoch) {
        let removed = self.tombs.get(name).map_or(0, |tomb| tomb.epoch);
        if removed == epoch {
            // Its resource was removed first.
            return;
        }
        let since = removed.max(since);
        self.tombs.insert(name.clone(), Tomb { epoch, last: None, changed: since });
        self.mark(name, epoch, true, 0);
        self.mark(name, epoch, false, 0);
    }
}

impl Tomb {
    /// Whether a client at `from` may have a resource that ended with this, or before.
    pub(crate) fn concerns(&self, from: Epoch) -> bool {
        self.last.is_some() || from < self.changed
    }
}
