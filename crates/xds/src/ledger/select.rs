//! Creation and removal of a ledger's selections.

use crate::cells::Cells;
use crate::ledger::{Entry, Ledger, contribution, presence};
use crate::name_set::{Edit, NameSet};
use crate::selection::{Selection, SelectionId};
use crate::{Epoch, Origin};

impl<O: Origin> Ledger<O> {
    /// The selection of all names.
    pub(crate) fn select_all(&mut self, cells: &Cells<O::Cell>, serial: &mut u64, epoch: Epoch) -> SelectionId {
        let found = self.selections.iter().find(|(_, selection)| selection.names.is_none()).map(|(id, _)| id);
        found.unwrap_or_else(|| self.add_selection(cells, None, serial, epoch))
    }

    /// The selection of the names that an edit leaves.
    pub(crate) fn select(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        edit: &Edit<'_>,
        serial: &mut u64,
        epoch: Epoch,
    ) -> SelectionId {
        let digest = edit.digest();
        let found = self.selections.iter().find(|(_, selection)| {
            selection.names.as_ref().is_some_and(|names| names.digest() == digest && edit.yields(names))
        });
        if let Some((id, _)) = found {
            return id;
        }
        let names = edit.build();
        if self.kind.is_collected() {
            names.iter().for_each(|name| self.open(origin, cells, name, epoch));
        } else if self.by_name() {
            self.retain(origin, cells, &names, epoch);
        }
        self.add_selection(cells, Some(names), serial, epoch)
    }

    /// Removes a selection without streams.
    pub(crate) fn drop_if_unused(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, id: SelectionId) {
        if !self.selections[id].streams.is_empty() {
            return;
        }
        let selection = self.selections.remove(id);
        self.marked.retain(|marked| *marked != id);
        if !self.by_name() && !self.kind.is_collected() {
            return;
        }
        for name in selection.names.iter().flat_map(NameSet::iter) {
            if self.kind.is_collected() {
                self.release(origin, cells, name);
                continue;
            }
            let Some(entry) = self.entries.get_mut(name) else {
                continue;
            };
            entry.users -= 1;
            if entry.users == 0 {
                let cell = entry.cell;
                self.entries.remove(name);
                self.close_cell(origin, cells, name, cell);
            }
        }
    }

    /// Removes tombstones that all streams have been sent. `sent` is the epoch up to which all have.
    pub(crate) fn prune(&mut self, sent: Epoch) {
        self.tombs.retain(|_, tomb| tomb.epoch > sent);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn add_selection(
        &mut self,
        cells: &Cells<O::Cell>,
        names: Option<NameSet>,
        serial: &mut u64,
        epoch: Epoch,
    ) -> SelectionId {
        *serial += 1;
        let mut selection = Selection::new(names, self.kind, self.by_name(), epoch, *serial);
        let tombs = self.tombs.iter().filter(|(name, _)| selection.covers(name));
        selection.removed = tombs.map(|(_, tomb)| tomb.epoch).max().unwrap_or_default();
        let digest: u64 = match self.kind.is_collected() {
            true => wrapping(self.live(cells, &selection).map(|(name, held)| contribution(name, Some(held)))),
            false => wrapping(selection.named().map(|name| presence(name, self.resource(cells, name)))),
        };
        selection.digest = digest;
        self.selections.insert(selection)
    }

    /// Counts a user for each of these names. Resolves and opens new names.
    fn retain(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, names: &NameSet, epoch: Epoch) {
        let (mut named, mut keys) = (Vec::new(), Vec::new());
        for name in names.iter() {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.users += 1;
                continue;
            }
            if let Some(key) = origin.resolve(self.kind, &self.audience, name) {
                named.push(name);
                keys.push(key);
            }
            let cell = None;
            self.entries.insert(name.clone(), Entry { cell, epoch, users: 1 });
            // A stream that is behind this epoch may subscribe to it later.
            self.log.push(epoch, name.clone());
        }
        let keys: Vec<&O::Key> = keys.iter().collect();
        for (name, (cell, resource)) in named.into_iter().zip(origin.open_all(&keys)) {
            if resource.is_some() {
                // It was removed while another stream was subscribed, and added again when none was.
                self.tombs.remove(name);
            }
            cells.add(cell, resource, self.id, name.clone());
            if let Some(entry) = self.entries.get_mut(name) {
                entry.cell = Some(cell);
            }
        }
    }
}

fn wrapping(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::wrapping_add)
}
