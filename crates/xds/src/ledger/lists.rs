//! The catalogues of a ledger: that of a wildcard type, or those of collections.

use std::ops::Bound;
use std::sync::Arc;

use model::xds::{Resource, collection_of};

use super::{Entry, Ledger, contribution};
use crate::cells::Cells;
use crate::pairs::pairs;
use crate::relisted::Comparison;
use crate::selection::Selection;
use crate::{Epoch, Name, Origin};

/// An open catalogue.
pub(crate) struct List<O: Origin> {
    pub(crate) cell: O::Cell,
    pub(crate) catalogue: O::Catalogue,
    /// The number of rows whose resources are open, from the first one on. No stream subscribes to it before all are.
    opened: usize,
    /// The number of selections with this collection, and of requests that prepare one.
    users: u32,
    /// Whether it could not be derived completely ([`Origin::failed`]).
    failed: bool,
}

impl<O: Origin> List<O> {
    /// The number of rows that are not open yet.
    pub(crate) fn left(&self) -> usize {
        O::rows(&self.catalogue).len() - self.opened
    }
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

/// A row that differs between two catalogues: its name, and its keys before and after, of which one may be missing.
pub(crate) type Row<K> = (Name, Option<K>, Option<K>);

/// The rows that differ, in the order of their names.
pub(crate) fn differences<O: Origin>(before: &[(Name, O::Key)], after: &[(Name, O::Key)]) -> Arc<[Row<O::Key>]> {
    fn keyed<K>(rows: &[(Name, K)]) -> impl Iterator<Item = (&Name, &K)> {
        rows.iter().map(|(name, key)| (name, key))
    }
    let differing = pairs(keyed(before), keyed(after)).filter(|(_, before, after)| before != after);
    differing.map(|(name, before, after)| (name.clone(), before.cloned(), after.cloned())).collect()
}

impl<O: Origin> Ledger<O> {
    /// Opens a catalogue and its resources, as far as they are not open: of a wildcard type (with an empty name) or of a
    /// collection. Counts a user.
    pub(crate) fn open(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, collection: &Name, epoch: Epoch) {
        if !self.lists.contains_key(collection) {
            let Some((cell, catalogue)) = origin.open_catalogue(self.kind, &self.audience, collection) else {
                return;
            };
            let failed = origin.failed(cell);
            self.begin(collection, (cell, catalogue, failed));
        }
        self.open_rows(origin, cells, (collection, usize::MAX), epoch);
        self.add_user(collection);
    }

    /// Adds an open catalogue of which no rows are open, and whether it could not be derived completely.
    pub(crate) fn begin(&mut self, collection: &Name, (cell, catalogue, failed): (O::Cell, O::Catalogue, bool)) {
        self.lists.insert(collection.clone(), List { cell, catalogue, opened: 0, users: 0, failed });
    }

    /// Counts a user of a collection.
    pub(crate) fn add_user(&mut self, collection: &Name) {
        if let Some(list) = self.lists.get_mut(collection) {
            list.users += 1;
        }
    }

    /// Opens up to `count` more rows of a catalogue. Returns how many it opened.
    pub(crate) fn open_rows(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        (collection, count): (&Name, usize),
        epoch: Epoch,
    ) -> usize {
        let Some(list) = self.lists.get_mut(collection) else { return 0 };
        let (catalogue, count) = (list.catalogue.clone(), count.min(list.left()));
        let rows = &O::rows(&catalogue)[list.opened..][..count];
        list.opened += count;
        // A stream that was at an earlier epoch compares all names, so that a ledger's first names need not be logged.
        let is_logged = !self.log.changes.is_empty();
        if !is_logged && count > 0 {
            self.log.floor = epoch;
        }
        let shown: Vec<&(Name, O::Key)> = rows.iter().filter(|(_, key)| !O::hides(key)).collect();
        let keys: Vec<&O::Key> = shown.iter().map(|(_, key)| key).collect();
        for ((name, _), opened) in shown.into_iter().zip(origin.open_all(&keys)) {
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
        for (name, _) in rows.iter().filter(|(_, key)| O::hides(key)) {
            // No stream was sent the shared resource for this audience.
            self.entries.insert(name.clone(), Entry::new(None, 0));
        }
        count
    }

    /// Removes a user of a collection. Closes the collection with the last one, and returns its list.
    pub(crate) fn release(&mut self, cells: &mut Cells<O::Cell>, collection: &Name) -> Option<List<O>> {
        let list = self.lists.get_mut(collection)?;
        list.users -= 1;
        if list.users > 0 {
            return None;
        }
        self.close_rows(cells, collection, usize::MAX);
        let list = self.lists.remove(collection)?;
        cells.close(list.cell);
        Some(list)
    }

    /// Closes up to `count` open rows of a catalogue, the last ones first. Returns whether others remain.
    pub(crate) fn close_rows(&mut self, cells: &mut Cells<O::Cell>, collection: &Name, count: usize) -> bool {
        let Some(list) = self.lists.get_mut(collection) else { return false };
        let (catalogue, upto) = (list.catalogue.clone(), list.opened);
        list.opened = upto.saturating_sub(count);
        let from = list.opened;
        for (name, _) in &O::rows(&catalogue)[from..upto] {
            let held = contribution(name, self.resource(cells, name));
            self.digest = self.digest.wrapping_sub(held);
            self.substituted.remove(name);
            if let Some(entry) = self.entries.remove(name) {
                self.close_cell(cells, name, entry.cell);
            }
        }
        from > 0
    }

    /// Whether nothing needs a catalogue but one hold.
    pub(crate) fn is_last_hold(&self, collection: &Name) -> bool {
        match self.kind.is_collected() {
            true => self.lists.get(collection).is_some_and(|list| list.users == 1),
            // The catalogue of a wildcard type stays as long as its ledger.
            false => self.selections.is_empty() && self.holds == 1,
        }
    }

    /// The number of rows of all catalogues that are open.
    pub(crate) fn open_row_count(&self) -> usize {
        self.lists.values().map(|list| list.opened).sum()
    }

    /// Replaces a changed catalogue. Returns the rows to be changed ([`Ledger::relist`]), as far as it is open. `compared` are
    /// its differences, if the caller knows them.
    pub(crate) fn on_catalogue(
        &mut self,
        origin: &mut O,
        (cell, new, compared): (O::Cell, O::Catalogue, Option<&Comparison<O>>),
    ) -> Arc<[Row<O::Key>]> {
        // A list that could not be derived leaves the last complete one.
        let changed = self.lists.values_mut().find(|list| list.cell == cell && !origin.failed(cell));
        let Some(list) = changed else { return Arc::default() };
        list.failed = false;
        let is_whole = list.left() == 0;
        let old = std::mem::replace(&mut list.catalogue, new.clone());
        let (before, after) = (&O::rows(&old)[..list.opened], O::rows(&new));
        // Rows after the last one that is open are opened later.
        list.opened = match before.last() {
            _ if is_whole => after.len(),
            Some((last, _)) => after.partition_point(|(name, _)| name <= last),
            None => 0,
        };
        let known = compared.filter(|_| is_whole).and_then(|compared| compared.rows_since(&old));
        known.unwrap_or_else(|| differences::<O>(before, &after[..list.opened]))
    }

    /// Applies the change of a row: opens a new resource, or closes one that is no longer listed. Returns a name that has another
    /// cell.
    pub(crate) fn relist(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        (name, before, after): &Row<O::Key>,
        epoch: Epoch,
    ) -> Option<Rekeyed<O::Cell>> {
        match (before, after) {
            (_, None) => self.remove(cells, name, epoch),
            (_, Some(key)) if O::hides(key) => self.hide(cells, name, epoch),
            (Some(before), Some(key)) if !O::hides(before) => return self.rekey(origin, cells, name, key, epoch),
            (_, Some(key)) => self.add(origin, cells, (name, key), epoch),
        }
        None
    }

    /// The keys of the next `count` rows of a catalogue that are not open.
    pub(crate) fn next_keys(&self, collection: &Name, count: usize) -> Vec<O::Key> {
        let Some(list) = self.lists.get(collection) else { return Vec::new() };
        let rows = O::rows(&list.catalogue)[list.opened..].iter().take(count);
        rows.map(|(_, key)| key).filter(|key| !O::hides(key)).cloned().collect()
    }

    /// The catalogue of this cell, if all its rows are open.
    pub(crate) fn whole_catalogue(&self, cell: O::Cell) -> Option<&O::Catalogue> {
        self.lists.values().find(|list| list.cell == cell && list.left() == 0).map(|list| &list.catalogue)
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
        collection: &'a str,
    ) -> impl Iterator<Item = (&'a Name, &'a Entry<O::Cell>)> + 'a {
        self.members_from(collection, "")
    }

    /// The names of a collection, ascending, from one on.
    pub(super) fn members_from<'a>(
        &'a self,
        collection: &'a str,
        from: &str,
    ) -> impl Iterator<Item = (&'a Name, &'a Entry<O::Cell>)> + 'a {
        let prefix = format!("{collection}/");
        self.entries
            .range::<str, _>((Bound::Included(prefix.as_str().max(from)), Bound::Unbounded))
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .filter(|(name, _)| collection_of(name) == Some(collection))
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
