//! What says which names a ledger has: the list of a wildcard type, or those of collections.

use std::ops::Bound;

use model::xds::{Resource, collection_of};

use super::{Entry, Ledger, contribution};
use crate::cells::Cells;
use crate::{Epoch, Name, Origin};

/// A list that is open.
pub(crate) struct List<O: Origin> {
    pub(crate) cell: O::Cell,
    catalogue: O::Catalogue,
    /// Selections that hold it; collections only.
    users: u32,
}

impl<O: Origin> Ledger<O> {
    /// Opens a list and everything in it: all there is of a wildcard type (without a name), or a collection. One that is
    /// open already has one user more.
    pub(crate) fn open(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, collection: &Name, epoch: Epoch) {
        if let Some(list) = self.lists.get_mut(collection) {
            list.users += 1;
            return;
        }
        let Some((cell, catalogue)) = origin.open_catalogue(self.kind, &self.audience, collection) else {
            return;
        };
        let rows = O::rows(&catalogue);
        let keys: Vec<&O::Key> = rows.iter().map(|(_, key)| key).collect();
        for ((name, _), opened) in rows.iter().zip(origin.open_all(&keys)) {
            let resource = self.insert(cells, name, opened, epoch);
            self.digest = self.digest.wrapping_add(contribution(name, resource.as_ref()));
            if self.kind.is_collected() {
                // It may have been here, and gone, before. Nobody else sees it yet, but a stream that is behind this
                // epoch may come to.
                self.tombs.remove(name);
                self.log.push(epoch, name.clone());
            }
        }
        let list = List {
            cell,
            catalogue,
            users: 1,
        };
        self.lists.insert(collection.clone(), list);
    }

    /// One user less of a collection; without any it is closed.
    pub(super) fn release(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, collection: &Name) {
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
            if let Some(entry) = self.entries.remove(name) {
                self.close_cell(origin, cells, name, entry.cell);
            }
        }
        origin.close(list.cell);
    }

    /// A list changed: opens what is new and closes what is no longer in it.
    pub(crate) fn on_catalogue(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        (cell, new): (O::Cell, O::Catalogue),
        epoch: Epoch,
    ) {
        let Some(list) = self.lists.values_mut().find(|list| list.cell == cell) else {
            return;
        };
        let old = std::mem::replace(&mut list.catalogue, new.clone());
        let (mut before, mut after) = (O::rows(&old).iter().peekable(), O::rows(&new).iter().peekable());
        loop {
            match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some((name, key)), Some((other, other_key))) if name == other => {
                    if key != other_key {
                        self.rekey(origin, cells, name, other_key, epoch);
                    }
                    before.next();
                    after.next();
                }
                (Some((name, _)), other) if other.is_none_or(|(other, _)| name < other) => {
                    self.remove(origin, cells, name, epoch);
                    before.next();
                }
                (_, Some((name, key))) => {
                    let resource = self.insert(cells, name, origin.open(key), epoch);
                    self.on_resource(name, None, resource.as_ref(), epoch);
                    after.next();
                }
                (Some(_), None) => break,
            }
        }
    }

    /// All names of these collections.
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

    /// Lists what was opened for a name.
    fn insert(
        &mut self,
        cells: &mut Cells<O::Cell>,
        name: &Name,
        (cell, resource): (O::Cell, Option<Resource>),
        epoch: Epoch,
    ) -> Option<Resource> {
        cells.add(cell, resource.clone(), self.id, name.clone());
        self.entries.insert(
            name.clone(),
            Entry {
                cell: Some(cell),
                epoch,
                users: 0,
            },
        );
        resource
    }

    fn remove(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, name: &Name, epoch: Epoch) {
        let old = self.resource(cells, name).cloned();
        self.on_resource(name, old.as_ref(), None, epoch);
        if let Some(entry) = self.entries.remove(name) {
            self.close_cell(origin, cells, name, entry.cell);
        }
    }

    /// The name is derived from something else now; that may make no difference.
    fn rekey(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, name: &Name, key: &O::Key, epoch: Epoch) {
        let old = self.resource(cells, name).cloned();
        // Opened before the old one is closed: what both are derived from need not be derived again.
        let (cell, new) = origin.open(key);
        cells.add(cell, new.clone(), self.id, name.clone());
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let closed = entry.cell.replace(cell);
        self.close_cell(origin, cells, name, closed);
        if old != new {
            self.on_resource(name, old.as_ref(), new.as_ref(), epoch);
        }
    }
}
