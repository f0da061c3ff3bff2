//! Creation and removal of a ledger's selections.

use std::collections::BTreeMap;
use std::ops::Bound;

use rustc_hash::FxHashSet;

use crate::cells::Cells;
use crate::ledger::{Entry, Ledger, List, contribution, presence};
use crate::name_set::{Edit, Identity, NameSet};
use crate::selection::{Selection, SelectionId};
use crate::{Epoch, Name, Origin};

impl<O: Origin> Ledger<O> {
    /// The selection of all names.
    pub(crate) fn select_all(&mut self, cells: &Cells<O::Cell>, serial: &mut u64, epoch: Epoch) -> SelectionId {
        let found = self.selections.iter().find(|(_, selection)| selection.names.is_none()).map(|(id, _)| id);
        found.unwrap_or_else(|| self.add_selection(cells, (None, 0), serial, epoch))
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
        if let Some((id, _)) = self.selected(edit.identity()) {
            return id;
        }
        let names = edit.build();
        let (absent, digest) = if self.by_name() && self.selected(edit.base.identity()).is_none() {
            self.retain_with_digest(origin, cells, names.as_slice(), epoch)
        } else {
            let mut absent = 0;
            if self.kind.is_collected() {
                names.iter().for_each(|name| self.open(origin, cells, name, epoch));
            } else if self.by_name() {
                absent = self.retain(origin, cells, names.as_slice(), epoch);
            }
            (absent, self.digest_after(cells, edit))
        };
        let id = self.add_selection(cells, (Some(names), digest), serial, epoch);
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
            self.entries.insert(name.clone(), Entry { users: users.into(), ..Entry::new(None, FIRST) });
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

    /// The selection of the set of names with this identity, and the set.
    pub(crate) fn selected(&self, identity: Identity) -> Option<(SelectionId, &NameSet)> {
        let mut sets = self.selections.iter().filter_map(|(id, selection)| Some((id, selection.names.as_ref()?)));
        sets.find(|(_, set)| set.identity() == identity)
    }

    /// Whether any selection has this name.
    pub(crate) fn is_selected(&self, name: &str) -> bool {
        self.selections.iter().any(|(_, selection)| selection.covers(name))
    }

    /// Takes the names of a selection without streams, if that has many resources: release them with
    /// [`Core::release_names`](crate::core::Core::release_names).
    pub(crate) fn take_unused(&mut self, id: SelectionId, at_once: usize) -> Option<Vec<Name>> {
        let selection = &self.selections[id];
        let is_large = || match self.kind.is_collected() {
            true => self.open_row_count() > at_once,
            false => self.by_name() && selection.named().nth(at_once).is_some(),
        };
        if !selection.streams.is_empty() || !is_large() {
            return None;
        }
        let names = self.selections[id].names.replace(NameSet::default())?;
        if self.kind.is_collected() {
            return Some(names.iter().cloned().collect());
        }
        // A name that cannot exist yet has no entry, and counts no user.
        let found = found(&self.entries, names.iter());
        Some(found.filter_map(|(name, entry)| entry.map(|_| name.clone())).collect())
    }

    /// Removes a selection without streams. Returns the lists that this closes.
    pub(crate) fn drop_if_unused(&mut self, cells: &mut Cells<O::Cell>, id: SelectionId) -> Vec<List<O>> {
        if !self.selections[id].streams.is_empty() {
            return Vec::new();
        }
        let selection = self.selections.remove(id);
        self.marked.retain(|marked| *marked != id);
        let Some(names) = selection.names else { return Vec::new() };
        if self.kind.is_collected() {
            return names.iter().filter_map(|name| self.release(cells, name)).collect();
        }
        if self.by_name() {
            self.forget(cells, names.as_slice());
        }
        Vec::new()
    }

    /// Removes a user of each of these names, and names without users.
    pub(crate) fn forget(&mut self, cells: &mut Cells<O::Cell>, names: &[Name]) {
        let mut unused = Vec::new();
        for (name, entry) in found(&self.entries, names.iter()).filter_map(|(name, row)| Some((name, row?.1))) {
            entry.users.update(|users| users - 1);
            if entry.users.get() == 0 {
                unused.push((name, entry.cell));
            }
        }
        for (name, cell) in unused {
            self.entries.remove(name);
            self.substituted.remove(name);
            self.close_cell(cells, name, cell);
        }
    }

    /// Counts a user for each of the first of these names, and opens up to `room` new ones. Returns the number of names that it
    /// looked at, and those that now have a user more: names that cannot exist yet, or (own ledger) do not, have not.
    pub(crate) fn reserve<'n>(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        (names, room): (impl Iterator<Item = &'n str>, usize),
        epoch: Epoch,
    ) -> (usize, Vec<Name>) {
        let (mut seen, mut opened, mut reserved) = (0, 0, Vec::new());
        for (name, row) in found(&self.entries, names.take(room.saturating_mul(LOOKUPS))) {
            seen += 1;
            if let Some((known, _)) = row {
                reserved.push(known.clone());
            } else if origin.may_exist(self.kind, name) {
                let name = Name::from(name);
                if !self.own || origin.resolve(self.kind, &self.audience, &name).is_some() {
                    opened += 1;
                    reserved.push(name);
                }
            }
            if opened == room {
                break;
            }
        }
        self.retain(origin, cells, &reserved, epoch);
        (seen, reserved)
    }

    /// These names, as far as possible the ledger's own copies, to share their memory.
    pub(crate) fn shared_names<'n>(&self, names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = Name> {
        found(&self.entries, names).map(|(name, row)| row.map_or_else(|| name.into(), |(name, _)| name.clone()))
    }

    /// These names, and whether each has an entry.
    pub(crate) fn with_known<'n>(&self, names: impl Iterator<Item = &'n str>) -> impl Iterator<Item = (&'n str, bool)> {
        found(&self.entries, names).map(|(name, row)| (name, row.is_some()))
    }

    /// Removes tombstones that all streams have been sent. `sent` is the epoch up to which all have.
    pub(crate) fn prune(&mut self, sent: Epoch) {
        self.tombs.retain(|_, tomb| tomb.epoch > sent);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a selection with this digest.
    fn add_selection(
        &mut self,
        cells: &Cells<O::Cell>,
        (names, digest): (Option<NameSet>, u64),
        serial: &mut u64,
        epoch: Epoch,
    ) -> SelectionId {
        *serial += 1;
        let mut selection = Selection::new(names, self.kind, self.by_name(), epoch, *serial);
        let tombs = self.tombs.iter().filter(|(name, _)| selection.covers(name));
        let hidden = self.hidden_since(cells).filter(|(name, _)| selection.covers(name)).map(|(_, epoch)| epoch);
        selection.removed = tombs.map(|(_, tomb)| tomb.epoch).chain(hidden).max().unwrap_or_default();
        selection.digest = digest;
        self.selections.insert(selection)
    }

    /// The digest of the selection of the names that an edit leaves. Costs by the names that it changes, if there is a selection
    /// of those before.
    fn digest_after(&self, cells: &Cells<O::Cell>, edit: &Edit<'_>) -> u64 {
        let before = self.selected(edit.base.identity()).map(|(id, _)| self.selections[id].digest);
        let before = before.unwrap_or_else(|| self.digest_of(cells, edit.base));
        let added = wrapping(edit.added.iter().map(|name| self.share(cells, name)));
        let removed = wrapping(edit.removed.iter().map(|name| self.share(cells, name)));
        before.wrapping_add(added).wrapping_sub(removed)
    }

    /// The digest of the selection of these names.
    fn digest_of(&self, cells: &Cells<O::Cell>, names: &NameSet) -> u64 {
        if self.kind.is_collected() {
            return wrapping(names.iter().map(|name| self.share(cells, name)));
        }
        let found = found(&self.entries, names.iter());
        wrapping(found.map(|(name, row)| presence(name, row.and_then(|(_, entry)| self.shown(cells, name, entry)))))
    }

    /// The share of a name that is subscribed to in the digest of a selection.
    fn share(&self, cells: &Cells<O::Cell>, name: &str) -> u64 {
        if !self.kind.is_collected() {
            return presence(name, self.resource(cells, name));
        }
        wrapping(self.members(name).map(|(name, entry)| contribution(name, self.shown(cells, name, entry))))
    }

    /// Counts a user for each of these names. Resolves and opens new names. Returns the number of names that cannot exist yet.
    fn retain(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, names: &[Name], epoch: Epoch) -> usize {
        let new = self.count_users(names, |_, _| {});
        self.open_new(origin, cells, new, epoch)
    }

    /// The same for names of which none occurs twice, with the digest of their selection.
    fn retain_with_digest(
        &mut self,
        origin: &mut O,
        cells: &mut Cells<O::Cell>,
        names: &[Name],
        epoch: Epoch,
    ) -> (usize, u64) {
        // It is determined in passing, because to walk over a long list takes most of the time.
        let mut digest = 0u64;
        let new = self.count_users(names, |name, entry| {
            digest = digest.wrapping_add(presence(name, self.shown(cells, name, entry)));
        });
        let absent = self.open_new(origin, cells, new.clone(), epoch);
        let of_new = wrapping(new.into_iter().map(|name| self.share(cells, name)));
        (absent, digest.wrapping_add(of_new))
    }

    /// Counts a user for each of these names that is known, and calls `each` with it. Returns the others.
    fn count_users<'n>(&self, names: &'n [Name], mut each: impl FnMut(&Name, &Entry<O::Cell>)) -> Vec<&'n Name> {
        let mut new = Vec::new();
        for (name, row) in found(&self.entries, names.iter()) {
            match row {
                Some((_, entry)) => {
                    entry.users.update(|users| users + 1);
                    each(name, entry);
                }
                None => new.push(name),
            }
        }
        new
    }

    /// Resolves and opens names that are not known, and counts a user for each. Returns the number of names that cannot exist yet.
    fn open_new(&mut self, origin: &mut O, cells: &mut Cells<O::Cell>, new: Vec<&Name>, epoch: Epoch) -> usize {
        let (mut named, mut keys, mut absent) = (Vec::new(), Vec::new(), 0);
        for name in new {
            if let Some(entry) = self.entries.get(name) {
                // It occurs twice.
                entry.users.update(|users| users + 1);
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
            self.entries.insert(name.clone(), Entry { users: 1.into(), ..Entry::new(None, epoch) });
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

/// The number of names that are looked up for each one that a step may open.
pub(crate) const LOOKUPS: usize = 8;
/// Not after any place of a stream that has been sent something.
const FIRST: Epoch = 1;

/// So many entries are passed over rather than searching for the next name.
const DENSE: usize = 8;

/// Finds the entries of names. Names are mostly ascending, and most entries between two of them are few: then the second one is
/// found without a search. A name that is the ledger's own copy is not even read, if the one before it was found.
pub(super) fn found<C, N: AsRef<str> + Copy>(
    entries: &BTreeMap<Name, Entry<C>>,
    names: impl Iterator<Item = N>,
) -> impl Iterator<Item = (N, Option<(&Name, &Entry<C>)>)> {
    // The entries after the last one that was found.
    let mut rows = entries.range::<str, _>(..).peekable();
    let mut last: Option<N> = None;
    names.map(move |name| {
        let wanted = name.as_ref();
        let before = last.replace(name);
        if let Some(next) = rows.next_if(|(row, _)| std::ptr::eq::<str>(&***row, wanted)) {
            return (name, Some(next));
        }
        let follows = before.is_some_and(|before| before.as_ref() < wanted);
        let near = (0..DENSE).take_while(|_| follows && rows.next_if(|(row, _)| ***row < *wanted).is_some()).count();
        if !follows || near == DENSE {
            rows = entries.range::<str, _>((Bound::Included(wanted), Bound::Unbounded)).peekable();
        }
        (name, rows.next_if(|(row, _)| ***row == *wanted))
    })
}

fn wrapping(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of the names, and however many entries are between them.
        #[test]
        fn entries_are_found_as_by_a_search(
            entries in prop::collection::btree_set(0..200u32, 0..60),
            names in prop::collection::vec(0..200u32, 0..60),
            is_sorted: bool,
            are_own_copies: bool,
        ) {
            let mut names: Vec<String> = names.iter().map(|name| format!("{name:03}")).collect();
            if is_sorted {
                names.sort();
            }
            let entries: BTreeMap<Name, Entry<u32>> =
                entries.into_iter().map(|cell| (format!("{cell:03}").into(), Entry::new(Some(cell), 1))).collect();
            let own_copy = |name: &str| entries.get_key_value(name).filter(|_| are_own_copies).map(|(name, _)| name.clone());
            let names: Vec<Name> = names.iter().map(|name| own_copy(name).unwrap_or_else(|| name.as_str().into())).collect();
            let all: Vec<_> = found(&entries, names.iter()).collect();
            prop_assert_eq!(all.len(), names.len());
            for (name, row) in all {
                let expected = entries.get_key_value(name);
                prop_assert_eq!(row.map(|(name, entry)| (name, entry.cell)), expected.map(|(name, entry)| (name, entry.cell)));
            }
        }
    }
}
