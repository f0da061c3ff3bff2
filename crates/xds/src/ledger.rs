//! What one audience gets of one type: names, what is open for each, and when each changed last.
//!
//! A stream's place in a ledger is an epoch: it has been sent what changed up to then. What it must be sent next follows
//! from the ledger alone, so streams at the same place get the same response. Names that went stay as tombs, with their
//! last content, until every stream has been told.

use std::collections::{BTreeMap, VecDeque};

use model::xds::{Resource, ResourceType};
use slab::Slab;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cells::{Cells, LedgerId};
use crate::ledger::log::Log;
use crate::selection::{Selection, SelectionId};
use crate::{Epoch, Name, Origin};

mod lists;
mod log;
mod select;

pub(crate) use lists::List;

pub(crate) struct Ledger<O: Origin> {
    pub(crate) id: LedgerId,
    pub(crate) kind: ResourceType,
    pub(crate) audience: O::Audience,
    /// What says which names there are, of listed types: of a wildcard type one list, under an empty name; else one for
    /// each collection that somebody subscribes to.
    pub(crate) lists: BTreeMap<Name, List<O>>,
    entries: BTreeMap<Name, Entry<O::Cell>>,
    pub(crate) tombs: BTreeMap<Name, Tomb>,
    log: Log,
    /// Depends on all names and versions and not on how they came about; listed types only.
    digest: u64,
    pub(crate) selections: Slab<Selection>,
    /// Selections of this epoch's changes, each once.
    marked: Vec<SelectionId>,
    /// With this many tombs it is time to see which are still needed.
    pub(crate) prune_at: usize,
}

struct Entry<C> {
    /// `None`: the name means nothing.
    cell: Option<C>,
    /// When it came or changed last; for types without lists also when it went.
    epoch: Epoch,
    /// Selections that hold it; only where names are looked up.
    users: u32,
}

/// What is left of a name that went.
pub(crate) struct Tomb {
    pub(crate) epoch: Epoch,
    pub(crate) last: Resource,
}

impl<O: Origin> Ledger<O> {
    pub(crate) fn new(id: LedgerId, kind: ResourceType, audience: O::Audience, epoch: Epoch) -> Ledger<O> {
        Ledger {
            id,
            kind,
            audience,
            lists: BTreeMap::new(),
            entries: BTreeMap::new(),
            tombs: BTreeMap::new(),
            log: Log {
                floor: epoch,
                changes: VecDeque::new(),
            },
            digest: 0,
            selections: Slab::new(),
            marked: Vec::new(),
            prune_at: 0,
        }
    }

    /// Whether names are looked up one by one: those of named types, and those of wildcard types for an audience that has no
    /// list of all (gRPC clients ask for listeners and clusters by name).
    pub(crate) fn by_name(&self) -> bool {
        match self.kind.is_wildcard() {
            true => self.lists.is_empty(),
            false => !self.kind.is_collected(),
        }
    }

    /// Closes everything. Nobody may be subscribed any more.
    pub(crate) fn close(mut self, origin: &mut O, cells: &mut Cells<O::Cell>) {
        for (name, entry) in std::mem::take(&mut self.entries) {
            self.close_cell(origin, cells, &name, entry.cell);
        }
        for list in self.lists.into_values() {
            origin.close(list.cell);
        }
    }

    /// What the name holds, if it holds anything.
    pub(crate) fn resource<'c>(&self, cells: &'c Cells<O::Cell>, name: &str) -> Option<&'c Resource> {
        cells.get(self.entries.get(name)?.cell?)
    }

    /// When the name came or changed last; for a name that is not in the ledger, the beginning of time.
    pub(crate) fn epoch_of(&self, name: &str) -> Epoch {
        self.entries.get(name).map_or(0, |entry| entry.epoch)
    }

    /// Names that came, changed or went in this epoch, as far as is remembered.
    pub(crate) fn changed_in(&self, epoch: Epoch) -> impl Iterator<Item = &Name> {
        let changes = &self.log.changes;
        let first = changes.partition_point(|(at, _)| *at < epoch);
        changes
            .range(first..)
            .take_while(move |(at, _)| *at == epoch)
            .map(|(_, name)| name)
    }

    /// The name as the ledger has it, to share it.
    pub(crate) fn name(&self, name: &str) -> Option<&Name> {
        self.entries.get_key_value(name).map(|(name, _)| name)
    }

    /// The version of all that a selection holds: the same wherever and however it came about.
    pub(crate) fn version(&self, selection: &Selection) -> String {
        let digest = if selection.names.is_some() || self.by_name() {
            selection.digest
        } else {
            self.digest
        };
        format!("{digest:016x}")
    }

    /// All names and resources that a selection holds now, ascending.
    pub(crate) fn live<'a>(
        &'a self,
        cells: &'a Cells<O::Cell>,
        selection: &'a Selection,
    ) -> Box<dyn Iterator<Item = (&'a Name, &'a Resource)> + 'a> {
        match &selection.names {
            // What others ask for by name is no list of all.
            None if self.by_name() => Box::new(std::iter::empty()),
            None => Box::new(
                self.entries
                    .iter()
                    .filter_map(|(name, entry)| Some((name, cells.get(entry.cell?)?))),
            ),
            Some(names) if self.kind.is_collected() => Box::new(
                names
                    .iter()
                    .flat_map(|collection| self.members(collection))
                    .filter_map(|(name, entry)| Some((name, cells.get(entry.cell?)?))),
            ),
            Some(names) => Box::new(
                names
                    .iter()
                    .filter_map(|name| Some((name, self.resource(cells, name)?))),
            ),
        }
    }

    /// Names of a selection that came, changed or (named types) went after `from` and, last, not after `upto`; ascending.
    pub(crate) fn changed(&self, selection: &Selection, from: Epoch, upto: Epoch) -> Vec<Name> {
        let within = |name: &Name| {
            let epoch = self.epoch_of(name);
            epoch > from && epoch <= upto
        };
        if let Some(logged) = self.log.since(from) {
            let mut names: Vec<Name> = logged
                .filter(|name| selection.covers(name) && within(name))
                .cloned()
                .collect();
            names.sort_unstable();
            names.dedup();
            return names;
        }
        match &selection.names {
            None if self.by_name() => Vec::new(),
            None => self
                .entries
                .iter()
                .filter(|(_, entry)| entry.epoch > from && entry.epoch <= upto)
                .map(|(name, _)| name.clone())
                .collect(),
            Some(names) if self.kind.is_collected() => names
                .iter()
                .flat_map(|collection| self.members(collection))
                .filter(|(_, entry)| entry.epoch > from && entry.epoch <= upto)
                .map(|(name, _)| name.clone())
                .collect(),
            Some(names) => names.iter().filter(|name| within(name)).cloned().collect(),
        }
    }

    /// Names of a selection that went after `from` and not after `upto`; listed types only.
    pub(crate) fn removed<'a>(
        &'a self,
        selection: &'a Selection,
        from: Epoch,
        upto: Epoch,
    ) -> impl Iterator<Item = (&'a Name, &'a Tomb)> {
        let within = move |tomb: &Tomb| tomb.epoch > from && tomb.epoch <= upto;
        self.tombs
            .iter()
            .filter(move |(name, tomb)| within(tomb) && selection.covers(name))
    }

    /// A cell changed. Notes it under `name`.
    pub(crate) fn on_resource(&mut self, name: &Name, old: Option<&Resource>, new: Option<&Resource>, epoch: Epoch) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if !self.kind.is_listed() {
            entry.epoch = epoch;
            self.mark(
                name,
                epoch,
                false,
                presence(name, new).wrapping_sub(presence(name, old)),
            );
            return;
        }
        let shift = contribution(name, new).wrapping_sub(contribution(name, old));
        self.digest = self.digest.wrapping_add(shift);
        // Who named single resources of a wildcard type counts those that are not there, too.
        let shift = match self.kind.is_collected() {
            true => shift,
            false => presence(name, new).wrapping_sub(presence(name, old)),
        };
        match (old, new) {
            (_, Some(_)) => {
                entry.epoch = epoch;
                self.tombs.remove(name);
                self.mark(name, epoch, false, shift);
            }
            (Some(old), None) => {
                self.tombs.insert(
                    name.clone(),
                    Tomb {
                        epoch,
                        last: old.clone(),
                    },
                );
                self.mark(name, epoch, true, shift);
            }
            (None, None) => {}
        }
    }

    /// Selections with changes since this was asked last.
    pub(crate) fn take_marked(&mut self) -> Vec<SelectionId> {
        std::mem::take(&mut self.marked)
    }

    fn close_cell(&self, origin: &mut O, cells: &mut Cells<O::Cell>, name: &str, cell: Option<O::Cell>) {
        if let Some(cell) = cell {
            cells.remove(cell, self.id, name);
            origin.close(cell);
        }
    }

    /// Notes a change for those who see it. `shift` is by how much it moves their digests.
    fn mark(&mut self, name: &Name, epoch: Epoch, removed: bool, shift: u64) {
        self.log.push(epoch, name.clone());
        for (id, selection) in &mut self.selections {
            if !selection.covers(name) {
                continue;
            }
            if selection.changed.max(selection.removed) < epoch {
                selection.outdate();
                self.marked.push(id);
            }
            selection.digest = selection.digest.wrapping_add(shift);
            if removed {
                selection.removed = epoch
            } else if selection.changed < epoch {
                selection.changed_before = selection.changed;
                selection.changed = epoch;
            }
        }
    }
}

/// What one name adds to the digest of a selection: the name itself, even if it holds nothing.
fn presence(name: &str, resource: Option<&Resource>) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), resource.map_or(0, |resource| resource.version().0))
}

/// What one name adds to the digest of a ledger.
fn contribution(name: &str, resource: Option<&Resource>) -> u64 {
    resource.map_or(0, |resource| xxh3_64_with_seed(name.as_bytes(), resource.version().0))
}
