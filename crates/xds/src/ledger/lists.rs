//! The catalogues of a ledger: that of a wildcard type, or those of collections.

use std::ops::Bound;

use model::xds::{Resource, collection_of};

use super::{Entry, Ledger, contribution};
use crate::cells::Cells;
use crate::selection::Selection;
use crate::{Epoch, Name, Origin};

/// An open catalogue.
pub(crate) struct List<O: Origin> {
    pub(crate) cell: O::Cell,
    catalogue: O::Catalogue,
    /// The number of selections with this collection.
    users: u32,
    /// Whether it could not be derived completely ([`Origin::failed`]).
    failed: bool,
}

/// The share of the lists of a selection that could not be derived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Failure {
    /// Some names may be missing. Those that a client has must not be removed.
    Part,
    /// A list is missing.
    Whole,
}

/// A name that has another cell.
pub(crate) struct Rekeyed<C> {
    pub(crate) before: C,
    pub(crate) now: C,
    /// The resource of the former cell, if a client has acknowledged it.
    pub(crate) acknowledged: Option<Resource>,
}

impl<O: Origin> Ledger<O> {
    /// Opens a catalogue and its resources: of a wildcard type (with an empty name) or of a collection. Counts a user if it is
    /// open already.
    pub(crate) fn open(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, collection: &Name, epoch: Epoch) {
        if let Some(list) = self.lists.get_mut(collection) {
            list.users += 1;
            return;
        }
        let Some((cell, catalogue)) = origin.open_catalogue(self.kind, &self.audience, collection) else {
            return;
        };
        let failed = origin.failed(cell);
        let (hidden, rows): (Vec<_>, Vec<_>) = O::rows(&catalogue).iter().partition(|(_, key)| O::hides(key));
        let keys: Vec<&O::Key> = rows.iter().map(|(_, key)| key).collect();
        // A stream that was at an earlier epoch compares all names, so that a ledger's first names need not be logged.
        let is_logged = !self.log.changes.is_empty();
        if !is_logged {
            self.log.floor = epoch;
        }
        for ((name, _), opened) in rows.iter().zip(origin.open_all(&keys)) {
            self.withhold_failed(origin, name, &opened, None);
            let resource = self.insert(cells, name, opened, epoch);
            let shown = self.first_shown(name, resource);
            self.digest = self.digest.wrapping_add(contribution(name, shown.as_ref()));
            if self.kind.is_collected() {
                // The name may have been removed before. A stream that is behind this epoch may subscribe to it later.
                self.tombs.remove(name);
                if is_logged {
                    self.log.push(epoch, name.clone());
                }
            }
        }
        for (name, _) in hidden {
            // No stream was sent the shared resource for this audience.
            self.entries.insert(name.clone(), Entry::new(None, 0));
        }
        let list = List { cell, catalogue, users: 1, failed };
        self.lists.insert(collection.clone(), list);
    }

    /// Removes a user of a collection. Closes the collection with the last one.
    pub(super) fn release(&mut self, cells: &mut Cells<O::Cell>, collection: &Name) {
        let Some(list) = self.lists.get_mut(collection) else {
            return;
        };
        list.users -= 1;
        if list.users > 0 {
            return;
        }
        let Some(list) = self.lists.remove(collection) else {
            return;
        };
        for (name, _) in O::rows(&list.catalogue) {
            let held = contribution(name, self.resource(cells, name));
            self.digest = self.digest.wrapping_sub(held);
            self.substituted.remove(name);
            if let Some(entry) = self.entries.remove(name) {
                self.close_cell(cells, name, entry.cell);
            }
        }
        cells.close(list.cell);
    }

    /// Applies a changed catalogue: opens new resources and closes those that are no longer listed. Returns the names that have
    /// another cell.
    pub(crate) fn on_catalogue(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        (cell, new): (O::Cell, O::Catalogue),
        epoch: Epoch,
    ) -> Vec<Rekeyed<O::Cell>> {
        let mut rekeyed = Vec::new();
        let Some(list) = self.lists.values_mut().find(|list| list.cell == cell) else {
            return rekeyed;
        };
        if origin.failed(cell) {
            // The last complete list stays.
            return rekeyed;
        }
        list.failed = false;
        let old = std::mem::replace(&mut list.catalogue, new.clone());
        let (mut before, mut after) = (O::rows(&old).iter().peekable(), O::rows(&new).iter().peekable());
        loop {
            match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some((name, key)), Some((other, other_key))) if name == other => {
                    match (O::hides(key), O::hides(other_key)) {
                        _ if key == other_key => {}
                        (_, true) => self.hide(cells, name, epoch),
                        (true, false) => self.add(origin, cells, (name, other_key), epoch),
                        (false, false) => rekeyed.extend(self.rekey(origin, cells, name, other_key, epoch)),
                    }
                    before.next();
                    after.next();
                }
                (Some((name, _)), other) if other.is_none_or(|(other, _)| name < other) => {
                    self.remove(cells, name, epoch);
                    before.next();
                }
                (_, Some((name, key))) => {
                    match O::hides(key) {
                        true => self.hide(cells, name, epoch),
                        false => self.add(origin, cells, (name, key), epoch),
                    }
                    after.next();
                }
                (Some(_), None) => break,
            }
        }
        rekeyed
    }

    /// The worst failure of a list of a selection.
    pub(crate) fn failure(&self, selection: &Selection) -> Option<Failure> {
        let concerns = |of: &Name| of.is_empty() || selection.names.as_ref().is_none_or(|names| names.contains(of));
        let failed = self.lists.iter().filter(|(of, list)| list.failed && concerns(of));
        let worst = failed.map(|(_, list)| match O::rows(&list.catalogue).is_empty() {
            true => Failure::Whole,
            false => Failure::Part,
        });
        worst.max()
    }

    /// The names in these collections.
    pub(crate) fn in_collections(&self, collections: &[Name]) -> Vec<Name> {
        let members = collections.iter().flat_map(|collection| self.members(collection));
        members.map(|(name, _)| name.clone()).collect()
    }

    /// The names of a collection, ascending.
    pub(super) fn members<'a>(
        &'a self,
        collection: &'a Name,
    ) -> impl Iterator<Item = (&'a Name, &'a Entry<O::Cell>)> + 'a {
        let prefix = format!("{collection}/");
        self.entries
            .range::<str, _>((Bound::Included(&*prefix), Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .filter(|(name, _)| collection_of(name) == Some(&**collection))
    }

    /// Adds an opened resource.
    fn insert(
        &mut self,
        cells: &mut Cells<O::Cell>,
        name: &Name,
        (cell, resource): (O::Cell, Option<Resource>),
        epoch: Epoch,
    ) -> Option<Resource> {
        cells.add(cell, resource.clone(), self.id, name.clone());
        self.entries.insert(name.clone(), Entry::new(Some(cell), epoch));
        resource
    }

    /// Adds a row.
    fn add(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, (name, key): (&Name, &O::Key), epoch: Epoch) {
        let removed_before = self.tombs.get(name).map_or(0, |tomb| tomb.epoch);
        let is_new = !self.contains(name);
        let opened = origin.open(key);
        let failed = self.withhold_failed(origin, name, &opened, None);
        let resource = self.insert(cells, name, opened, epoch);
        if let Some(entry) = self.entries.get_mut(name).filter(|_| is_new) {
            (entry.added, entry.removed_before) = (epoch, removed_before);
        }
        if failed {
            return;
        }
        self.on_resource(name, None, resource.as_ref(), epoch);
        if self.own && resource.is_none() {
            self.mark(name, epoch, true, 0);
        }
    }

    fn remove(&mut self, cells: &mut Cells<O::Cell>, name: &Name, epoch: Epoch) {
        let old = self.resource(cells, name).cloned();
        self.on_resource(name, old.as_ref(), None, epoch);
        self.substituted.remove(name);
        let Some(entry) = self.entries.remove(name) else { return };
        self.close_cell(cells, name, entry.cell);
        if self.own && old.is_none() {
            self.uncover(name, entry.epoch, epoch);
        }
    }

    /// Replaces the cell of a name whose key changed. The resource may be equal.
    fn rekey(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        name: &Name,
        key: &O::Key,
        epoch: Epoch,
    ) -> Option<Rekeyed<O::Cell>> {
        let old = self.resource(cells, name).cloned();
        // Opening the new cell first keeps the rows that both are derived from.
        let (cell, new) = origin.open(key);
        let failed = self.withhold_failed(origin, name, &(cell, new.clone()), old.as_ref());
        cells.add(cell, new.clone(), self.id, name.clone());
        let acknowledged = self.acknowledged(name, old.as_ref()).cloned();
        let entry = self.entries.get_mut(name)?;
        let closed = entry.cell.replace(cell);
        self.close_cell(cells, name, closed);
        if !failed && (old != new || self.substituted.contains_key(name)) {
            self.on_resource(name, old.as_ref(), new.as_ref(), epoch);
        }
        Some(Rekeyed { before: closed?, now: cell, acknowledged })
    }
}
