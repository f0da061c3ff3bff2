//! The resources of the origin's open cells, and the ledgers that use them.

use std::hash::Hash;

use model::xds::Resource;

use crate::Name;
use crate::spread_map::SpreadMap;

/// Index of a ledger.
pub(crate) type LedgerId = usize;

/// The open resources, each once, even if several ledgers use it.
pub(crate) struct Cells<C> {
    cells: SpreadMap<C, Cell>,
    /// Cells that are no longer used. The origin is told later, a few at a time: dropping what it derived takes time.
    unused: Vec<C>,
}

struct Cell {
    resource: Option<Resource>,
    /// The ledgers that use it, by name. A cell has few names, and may be in thousands of ledgers.
    users: Vec<(Name, Vec<u32>)>,
}

impl Cell {
    fn users(&self) -> impl Iterator<Item = (LedgerId, &Name)> {
        self.users.iter().flat_map(|(name, ledgers)| ledgers.iter().map(move |ledger| (*ledger as LedgerId, name)))
    }
}

/// The previous resource of a cell, and the ledgers and names that use it.
pub(crate) struct Replaced {
    pub(crate) old: Option<Resource>,
    pub(crate) users: Vec<(LedgerId, Name)>,
}

/// The index of a ledger in half the memory. There are not so many ledgers.
fn compact(ledger: LedgerId) -> u32 {
    u32::try_from(ledger).unwrap_or(u32::MAX)
}

impl<C: Copy + Eq + Hash> Cells<C> {
    pub(crate) fn new() -> Cells<C> {
        Cells { cells: SpreadMap::new(), unused: Vec::new() }
    }

    pub(crate) fn get(&self, cell: C) -> Option<&Resource> {
        self.cells.get(&cell)?.resource.as_ref()
    }

    pub(crate) fn contains(&self, cell: C) -> bool {
        self.cells.contains_key(&cell)
    }

    /// The ledgers and names that use a cell.
    pub(crate) fn users(&self, cell: C) -> impl Iterator<Item = (LedgerId, &Name)> {
        self.cells.get(&cell).into_iter().flat_map(Cell::users)
    }

    /// Records that a ledger uses a cell under a name.
    pub(crate) fn add(&mut self, cell: C, resource: Option<Resource>, ledger: LedgerId, name: Name) {
        let cell = self.cells.get_or_insert_with(cell, || Cell { resource: None, users: Vec::new() });
        cell.resource = resource;
        let ledger = compact(ledger);
        match cell.users.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ledgers)) => ledgers.push(ledger),
            None => cell.users.push((name, vec![ledger])),
        }
    }

    /// Reverts one [`Cells::add`]. Removes a cell without users.
    pub(crate) fn remove(&mut self, id: C, ledger: LedgerId, name: &str) {
        let Some(cell) = self.cells.get_mut(&id) else { return };
        if let Some(at) = cell.users.iter().position(|(known, _)| **known == *name) {
            let (_, ledgers) = &mut cell.users[at];
            if let Some(at) = ledgers.iter().position(|user| *user == compact(ledger)) {
                ledgers.swap_remove(at);
            }
            if ledgers.is_empty() {
                cell.users.swap_remove(at);
            }
        }
        if cell.users.is_empty() {
            self.cells.remove(&id);
        }
    }

    /// Sets the resource of a cell; `None` if it is equal.
    pub(crate) fn replace(&mut self, id: C, resource: Option<Resource>) -> Option<Replaced> {
        let cell = self.cells.get_mut(&id)?;
        if cell.resource == resource {
            return None;
        }
        let old = std::mem::replace(&mut cell.resource, resource);
        Some(Replaced { old, users: cell.users().map(|(ledger, name)| (ledger, name.clone())).collect() })
    }

    /// Records that a cell must be closed once.
    pub(crate) fn close(&mut self, cell: C) {
        self.unused.push(cell);
    }

    /// Records that these cells must be closed once each.
    pub(crate) fn close_all(&mut self, cells: Vec<C>) {
        self.unused.extend(cells);
    }

    /// Takes up to `count` of the cells to be closed.
    pub(crate) fn take_unused(&mut self, count: usize) -> impl Iterator<Item = C> + '_ {
        let keep = self.unused.len().saturating_sub(count);
        self.unused.drain(keep..)
    }

    /// Whether cells are to be closed.
    pub(crate) fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }
}
