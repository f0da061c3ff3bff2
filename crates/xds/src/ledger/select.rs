//! Creation and removal of a ledger's selections.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::cells::Cells;
use crate::decode::Texts;
use crate::ledger::{Entry, Ledger, contribution, presence};
use crate::name_set::{Edit, NameSet};
use crate::selection::{Selection, SelectionId};
use crate::{Epoch, Name, Origin};

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
        let identity = Some(edit.identity());
        let is_equal = |selection: &Selection| selection.names.as_ref().map(NameSet::identity) == identity;
        if let Some((id, _)) = self.selections.iter().find(|(_, selection)| is_equal(selection)) {
            return id;
        }
        let names = edit.build();
        let mut absent = 0;
        if self.kind.is_collected() {
            names.iter().for_each(|name| self.open(origin, cells, name, epoch));
        } else if self.by_name() {
            absent = self.retain(origin, cells, &names, epoch);
        }
        let id = self.add_selection(cells, Some(names), serial, epoch);
        self.selections[id].absent = absent;
        id
    }

    /// Opens the names that may exist now, because what they require appeared.
    pub(crate) fn on_appeared(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        appeared: &FxHashSet<Name>,
        epoch: Epoch,
    ) {
        let kind = self.kind;
        let concerns = |name: &Name| origin.requires(kind, name).is_some_and(|required| appeared.contains(required));
        let mut found: BTreeMap<Name, Vec<SelectionId>> = BTreeMap::new();
        for (id, selection) in self.selections.iter().filter(|(_, selection)| selection.absent > 0) {
            for name in selection.named().filter(|name| concerns(name) && !self.entries.contains_key(*name)) {
                found.entry(name.clone()).or_default().push(id);
            }
        }
        for (name, selections) in found {
            for id in &selections {
                self.selections[*id].absent -= 1;
            }
            let users = u32::try_from(selections.len()).unwrap_or(u32::MAX);
            self.entries.insert(name.clone(), Entry { users, ..Entry::new(None, FIRST) });
            let Some(key) = origin.resolve(kind, &self.audience, &name) else { continue };
            let (cell, resource) = origin.open(&key);
            self.withhold_failed(origin, &name, &(cell, resource.clone()), None);
            cells.add(cell, resource.clone(), self.id, name.clone());
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.cell = Some(cell);
            }
            if resource.is_some() {
                self.on_resource(&name, None, resource.as_ref(), epoch);
            }
        }
    }

    /// The names of a selection of exactly these names.
    pub(crate) fn selected(&self, names: &Texts) -> Option<&NameSet> {
        let mut sets = self.selections.iter().filter_map(|(_, selection)| selection.names.as_ref());
        sets.find(|set| set.is_set_of(names))
    }

    /// Removes a selection without streams.
    pub(crate) fn drop_if_unused(&mut self, cells: &mut Cells<O::Cell>, id: SelectionId) {
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
                self.release(cells, name);
                continue;
            }
            let Some(entry) = self.entries.get_mut(name) else {
                continue;
            };
            entry.users -= 1;
            if entry.users == 0 {
                let cell = entry.cell;
                self.entries.remove(name);
                self.substituted.remove(name);
                self.close_cell(cells, name, cell);
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
        let hidden = self.hidden_since(cells).filter(|(name, _)| selection.covers(name)).map(|(_, epoch)| epoch);
        selection.removed = tombs.map(|(_, tomb)| tomb.epoch).chain(hidden).max().unwrap_or_default();
        let digest: u64 = match self.kind.is_collected() {
            true => wrapping(self.live(cells, &selection).map(|(name, held)| contribution(name, Some(held)))),
            false => wrapping(selection.named().map(|name| presence(name, self.resource(cells, name)))),
        };
        selection.digest = digest;
        self.selections.insert(selection)
    }

    /// Counts a user for each of these names. Resolves and opens new names. Returns the number of names that cannot exist yet.
    fn retain(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, names: &NameSet, epoch: Epoch) -> usize {
        let (mut named, mut keys, mut absent) = (Vec::new(), Vec::new(), 0);
        for name in names.iter() {
            if let Some(entry) = self.entries.get_mut(name) {
                entry.users += 1;
                continue;
            }
            if !origin.may_exist(self.kind, name) {
                absent += 1;
                continue;
            }
            if let Some(key) = origin.resolve(self.kind, &self.audience, name) {
                named.push(name);
                keys.push(key);
            }
            self.entries.insert(name.clone(), Entry { users: 1, ..Entry::new(None, epoch) });
            // A stream that is behind this epoch may subscribe to it later.
            self.log.push(epoch, name.clone());
        }
        let keys: Vec<&O::Key> = keys.iter().collect();
        for (name, (cell, resource)) in named.into_iter().zip(origin.open_all(&keys)) {
            self.withhold_failed(origin, name, &(cell, resource.clone()), None);
            if resource.is_some() {
                // It was removed while another stream was subscribed, and added again when none was.
                self.tombs.remove(name);
            }
            cells.add(cell, resource.clone(), self.id, name.clone());
            if let Some(entry) = self.entries.get_mut(name) {
                entry.cell = Some(cell);
            }
            self.first_shown(name, resource);
        }
        absent
    }
}

/// Not after any place of a stream that has been sent something.
const FIRST: Epoch = 1;

fn wrapping(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::wrapping_add)
}
