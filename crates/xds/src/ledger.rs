//! The resources of one type for one audience, with the epoch of each one's last change.
//!
//! A stream's place in a ledger is an epoch: it has been sent all changes up to then. The ledger alone determines what it is
//! sent next, so streams at the same place share responses. Removed names stay as tombstones, with their last content, until
//! every stream has been sent the removal.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use model::xds::{Resource, ResourceType};
use slab::Slab;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::cells::{Cells, LedgerId};
use crate::ledger::log::Log;
use crate::quarantine::{Lens, Substituted};
use crate::selection::{Selection, SelectionId};
use crate::small_map::SmallMap;
use crate::{Epoch, Name, Origin};

mod content;
mod lists;
mod log;
mod own;
mod select;
mod substituted;

pub(crate) use content::differing;
pub(crate) use lists::{Failure, List, Row, differences};
pub(crate) use select::LOOKUPS;

pub(crate) struct Ledger<O: Origin> {
    pub(crate) id: LedgerId,
    pub(crate) kind: ResourceType,
    pub(crate) audience: O::Audience,
    /// Resources are shown through it.
    pub(crate) lens: Arc<Lens>,
    /// The resources that the lens changes.
    substituted: BTreeMap<Name, Substituted>,
    /// The latest epoch that any client acknowledged.
    pub(crate) acked: Epoch,
    /// It has resources of few proxies, which are sent together with a shared ledger ([`overlay`](crate::overlay)).
    pub(crate) own: bool,
    /// The open catalogues of a listed type: for a wildcard type one with an empty name, otherwise one for each collection
    /// that a stream subscribes to.
    pub(crate) lists: SmallMap<Name, List<O>>,
    entries: BTreeMap<Name, Entry<O::Cell>>,
    pub(crate) tombs: BTreeMap<Name, Tomb>,
    log: Log,
    /// Depends on all names and versions, and not on their history. Listed types only.
    digest: u64,
    pub(crate) selections: Slab<Selection>,
    /// Selections that changed in this epoch, each once.
    marked: Vec<SelectionId>,
    /// Tombstones are pruned when there are so many.
    pub(crate) prune_at: usize,
    /// The number of requests and moves that are prepared in it ([`crate::holds`]). It stays for them, even without streams.
    pub(crate) holds: usize,
}

struct Entry<C> {
    /// `None`: the name cannot exist. In an own ledger: the shared resource of the name is hidden.
    cell: Option<C>,
    /// The epoch of the last addition or change; for types without catalogues, also of a removal.
    epoch: Epoch,
    /// The epoch in which a row of a catalogue was added.
    added: Epoch,
    /// The epoch in which the name had been removed before that; 0 if it is not known.
    removed_before: Epoch,
    /// The number of selections with this name. Only counted for names that are resolved one by one.
    users: Cell<u32>,
}

impl<C> Entry<C> {
    /// A row that was added at an unknown time.
    fn new(cell: Option<C>, epoch: Epoch) -> Entry<C> {
        Entry { cell, epoch, added: 0, removed_before: 0, users: Cell::new(0) }
    }
}

/// A removed resource, or the end of a row of an own ledger.
pub(crate) struct Tomb {
    pub(crate) epoch: Epoch,
    /// `None`: the row had no resource, and hid a shared one.
    pub(crate) last: Option<Resource>,
    /// The epoch since which the resource was `last`, or since which the row hid a shared one.
    pub(crate) changed: Epoch,
}

impl<O: Origin> Ledger<O> {
    pub(crate) fn new(
        id: LedgerId,
        kind: ResourceType,
        audience: O::Audience,
        lens: Arc<Lens>,
        epoch: Epoch,
    ) -> Ledger<O> {
        Ledger {
            id,
            kind,
            audience,
            lens,
            substituted: BTreeMap::new(),
            acked: 0,
            own: false,
            lists: SmallMap::default(),
            entries: BTreeMap::new(),
            tombs: BTreeMap::new(),
            log: Log { floor: epoch, changes: VecDeque::new() },
            digest: 0,
            // Most ledgers have one.
            selections: Slab::with_capacity(1),
            marked: Vec::new(),
            prune_at: 0,
            holds: 0,
        }
    }

    /// Whether names are resolved one by one: for named types, and for wildcard types if the audience has no catalogue (gRPC
    /// clients subscribe to listeners and clusters by name).
    pub(crate) fn by_name(&self) -> bool {
        match self.kind.is_wildcard() {
            true => self.lists.is_empty(),
            false => !self.kind.is_collected(),
        }
    }

    /// Closes all cells, and returns the lists. No stream may be subscribed any more.
    pub(crate) fn close(mut self, cells: &mut Cells<O::Cell>) -> Vec<List<O>> {
        for (name, entry) in std::mem::take(&mut self.entries) {
            self.close_cell(cells, &name, entry.cell);
        }
        let lists: Vec<List<O>> = self.lists.into_values().collect();
        cells.close_all(lists.iter().map(|list| list.cell).collect());
        lists
    }

    /// The resource of this name.
    pub(crate) fn resource<'c>(&'c self, cells: &'c Cells<O::Cell>, name: &str) -> Option<&'c Resource> {
        self.shown(cells, name, self.entries.get(name)?)
    }

    /// The epoch of the last addition or change of a name; 0 for a name that is not in the ledger.
    pub(crate) fn epoch_of(&self, name: &str) -> Epoch {
        self.entries.get(name).map_or(0, |entry| entry.epoch)
    }

    /// Names that were added, changed or removed in this epoch, as far as the log reaches.
    pub(crate) fn changed_in(&self, epoch: Epoch) -> impl Iterator<Item = &Name> {
        let changes = &self.log.changes;
        let first = changes.partition_point(|(at, _)| *at < epoch);
        changes.range(first..).take_while(move |(at, _)| *at == epoch).map(|(_, name)| name)
    }

    /// The names that changed after an epoch, in any order; a name may occur more than once. `None` if they are more than
    /// `limit`, or not known.
    pub(crate) fn few_changes(&self, from: Epoch, limit: usize) -> Option<impl Iterator<Item = &Name>> {
        let count = self.log.since(from)?.take(limit + 1).count();
        if count > limit { None } else { self.log.since(from) }
    }

    /// The ledger's own copy of a name, to share its memory.
    pub(crate) fn name(&self, name: &str) -> Option<&Name> {
        self.entries.get_key_value(name).map(|(name, _)| name)
    }

    /// The share of a name in the digest of a selection.
    pub(crate) fn share_of(&self, selection: &Selection, name: &str, resource: Option<&Resource>) -> u64 {
        match selection.names.is_some() && !self.kind.is_collected() {
            true => presence(name, resource),
            false => contribution(name, resource),
        }
    }

    /// A digest of a selection's content. Equal content has the same digest on every replica.
    pub(crate) fn digest(&self, selection: &Selection) -> u64 {
        if selection.names.is_some() || self.by_name() { selection.digest } else { self.digest }
    }

    /// Names of a selection whose last addition, change or (named types) removal was after `from` and not after `upto`;
    /// ascending.
    pub(crate) fn changed(&self, selection: &Selection, from: Epoch, upto: Epoch) -> Vec<Name> {
        let mut names: Vec<Name> = self.changes(selection, from, upto).cloned().collect();
        if !names.is_sorted() {
            names.sort_unstable();
        }
        names.dedup();
        names
    }

    /// [`Ledger::changed`] in any order. A name may occur more than once.
    pub(crate) fn changes<'a>(
        &'a self,
        selection: &'a Selection,
        from: Epoch,
        upto: Epoch,
    ) -> Box<dyn Iterator<Item = &'a Name> + 'a> {
        let is_within = move |entry: &Entry<O::Cell>| entry.epoch > from && entry.epoch <= upto && !self.hides(entry);
        let within = move |name: &&Name| match self.entries.get(*name) {
            Some(entry) => is_within(entry),
            // A name that cannot exist yet is answered once.
            None => from == 0 && self.by_name(),
        };
        if let Some(logged) = self.log.since(from) {
            return Box::new(logged.filter(move |name| selection.covers(name) && within(name)));
        }
        match &selection.names {
            None if self.by_name() => Box::new(std::iter::empty()),
            None => Box::new(self.entries.iter().filter(move |(_, entry)| is_within(entry)).map(|(name, _)| name)),
            Some(names) if self.kind.is_collected() => {
                let members = names.iter().flat_map(|collection| self.members(collection));
                Box::new(members.filter(move |(_, entry)| is_within(entry)).map(|(name, _)| name))
            }
            Some(names) => Box::new(names.iter().filter(within)),
        }
    }

    /// Names of a selection that were removed after `from` and not after `upto`. Listed types only.
    pub(crate) fn removed<'a>(
        &'a self,
        selection: &'a Selection,
        from: Epoch,
        upto: Epoch,
    ) -> impl Iterator<Item = (&'a Name, &'a Tomb)> {
        let within = move |tomb: &Tomb| tomb.epoch > from && tomb.epoch <= upto;
        self.tombs.iter().filter(move |(name, tomb)| within(tomb) && selection.covers(name))
    }

    /// Records the change of a cell.
    pub(crate) fn on_resource(&mut self, name: &Name, old: Option<&Resource>, new: Option<&Resource>, epoch: Epoch) {
        if !self.entries.contains_key(name) {
            return;
        }
        if self.lens.is_empty() && self.substituted.is_empty() {
            return self.on_shown(name, old, new, epoch);
        }
        let before = self.substituted.remove(name);
        let old = before.as_ref().map_or(old, |before| before.resource.as_ref());
        let shown = match self.substitute(name, new, old) {
            None if !self.withholds(name) => new.cloned(),
            shown => shown,
        };
        if old != shown.as_ref() {
            self.on_shown(name, old, shown.as_ref(), epoch);
        }
    }

    /// Records the change of a resource as the lens shows it.
    fn on_shown(&mut self, name: &Name, old: Option<&Resource>, new: Option<&Resource>, epoch: Epoch) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if !self.kind.is_listed() {
            entry.epoch = epoch;
            self.mark(name, epoch, false, presence(name, new).wrapping_sub(presence(name, old)));
            return;
        }
        let shift = contribution(name, new).wrapping_sub(contribution(name, old));
        self.digest = self.digest.wrapping_add(shift);
        // A selection of names of a wildcard type also counts names without a resource.
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
                self.tombs.insert(name.clone(), Tomb { epoch, last: Some(old.clone()), changed: entry.epoch });
                self.mark(name, epoch, true, shift);
                if self.own {
                    // A shared resource of the name may appear instead.
                    self.mark(name, epoch, false, 0);
                }
            }
            (None, None) => {}
        }
    }

    /// Whether selections changed since the last call of [`Ledger::take_marked`].
    pub(crate) fn has_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Selections that changed since the last call.
    pub(crate) fn take_marked(&mut self) -> Vec<SelectionId> {
        std::mem::take(&mut self.marked)
    }

    fn close_cell(&self, cells: &mut Cells<O::Cell>, name: &str, cell: Option<O::Cell>) {
        if let Some(cell) = cell {
            cells.remove(cell, self.id, name);
            cells.close(cell);
        }
    }

    /// Records a change in the selections that cover the name. `shift` is the change of their digests.
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

/// The share of a name in the digest of a selection; it has one even without a resource.
fn presence(name: &str, resource: Option<&Resource>) -> u64 {
    share_of_name(name, resource.map_or(0, |resource| resource.version().0))
}

/// The share of a name in the digest of a ledger.
fn contribution(name: &str, resource: Option<&Resource>) -> u64 {
    resource.map_or(0, |resource| share_of_name(name, resource.version().0))
}

/// The share of a resource with this version in the digest of its ledger.
pub(crate) fn share_of_name(name: &str, version: u64) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), version)
}
