//! What the origin's open cells hold now, and which ledgers list them under which names.

use std::hash::Hash;

use model::xds::Resource;
use rustc_hash::FxHashMap;

use crate::Name;

/// Index of a ledger.
pub(crate) type LedgerId = usize;

/// The open resources; each is here once, however many ledgers list it.
pub(crate) struct Cells<C> {
    cells: FxHashMap<C, Cell>,
}

struct Cell {
    resource: Option<Resource>,
    users: Vec<(LedgerId, Name)>,
}

/// What a cell held before, and who lists it.
pub(crate) struct Replaced {
    pub(crate) old: Option<Resource>,
    pub(crate) users: Vec<(LedgerId, Name)>,
}

impl<C: Copy + Eq + Hash> Cells<C> {
    pub(crate) fn new() -> Cells<C> {
        Cells {
            cells: FxHashMap::default(),
        }
    }

    pub(crate) fn get(&self, cell: C) -> Option<&Resource> {
        self.cells.get(&cell)?.resource.as_ref()
    }

    /// Which ledgers list a cell, and under which names.
    pub(crate) fn users(&self, cell: C) -> &[(LedgerId, Name)] {
        self.cells.get(&cell).map_or(&[], |cell| &cell.users)
    }

    /// Notes that a ledger lists a cell under a name.
    pub(crate) fn add(&mut self, cell: C, resource: Option<Resource>, ledger: LedgerId, name: Name) {
        let cell = self.cells.entry(cell).or_insert_with(|| Cell {
            resource: None,
            users: Vec::new(),
        });
        cell.resource = resource;
        cell.users.push((ledger, name));
    }

    /// Undoes one [`Cells::add`]; forgets a cell that nobody lists.
    pub(crate) fn remove(&mut self, id: C, ledger: LedgerId, name: &str) {
        let Some(cell) = self.cells.get_mut(&id) else { return };
        if let Some(at) = cell
            .users
            .iter()
            .position(|(user, as_name)| *user == ledger && **as_name == *name)
        {
            cell.users.swap_remove(at);
        }
        if cell.users.is_empty() {
            self.cells.remove(&id);
        }
    }

    /// Sets what a cell holds; `None` if it holds that already.
    pub(crate) fn replace(&mut self, id: C, resource: Option<Resource>) -> Option<Replaced> {
        let cell = self.cells.get_mut(&id)?;
        if cell.resource == resource {
            return None;
        }
        let old = std::mem::replace(&mut cell.resource, resource);
        Some(Replaced {
            old,
            users: cell.users.clone(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }
}
