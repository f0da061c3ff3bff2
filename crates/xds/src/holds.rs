//! Keeps resources open in ledgers for a request, or for the move of a stream, that is prepared in steps.
//!
//! The resources that a step opens become part of the ledger that will serve the stream, so that commits keep it current, and so that streams
//! that need the same share the work.

use std::hash::Hash;

use crate::cells::LedgerId;
use crate::core::Core;
use crate::wanted::List;
use crate::{Name, Origin};

/// A ledger that stays, and what was opened in it.
pub(crate) struct Hold {
    ledger: LedgerId,
    /// A catalogue.
    list: Option<Name>,
    /// Names that are resolved one by one.
    names: Vec<Name>,
}

/// Cells and parts of ledgers that stay open until a request or a move has been handled.
pub(crate) struct Kept<C> {
    /// Each must be closed once.
    pub(crate) cells: Vec<C>,
    holds: Vec<Hold>,
}

impl<C> Default for Kept<C> {
    fn default() -> Kept<C> {
        Kept { cells: Vec::new(), holds: Vec::new() }
    }
}

impl<C: Copy + Eq + Hash> Kept<C> {
    pub(crate) fn append(&mut self, mut other: Kept<C>) {
        self.cells.append(&mut other.cells);
        self.holds.append(&mut other.holds);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty() && self.holds.is_empty()
    }
}

impl<O: Origin> Core<O> {
    /// Adds an open catalogue, of which no rows are open, to its ledger; the last value is whether it could not be derived
    /// completely. If another request has added it meanwhile, that one stays.
    pub(crate) fn begin_list(
        &mut self,
        kept: &mut Kept<O::Cell>,
        list: &List<O>,
        opened: (O::Cell, O::Catalogue, bool),
    ) -> LedgerId {
        let id = self.ledger_for(&list.ledger);
        if self.ledgers[id].lists.contains_key(&list.collection) {
            self.cells.close(opened.0);
        } else {
            self.ledgers[id].begin(&list.collection, opened);
            self.note_catalogues(id);
        }
        self.hold_list(kept, id, &list.collection);
        id
    }

    /// Keeps a catalogue.
    pub(crate) fn hold_list(&mut self, kept: &mut Kept<O::Cell>, id: LedgerId, collection: &Name) {
        let ledger = &mut self.ledgers[id];
        ledger.holds += 1;
        ledger.add_user(collection);
        kept.holds.push(Hold { ledger: id, list: Some(collection.clone()), names: Vec::new() });
    }

    /// Keeps the first of these names, and opens up to `room` new ones. Returns the number of names that it looked
    /// at, and that of new ones.
    pub(crate) fn hold_names<'n>(
        &mut self,
        origin: &mut O,
        kept: &mut Kept<O::Cell>,
        (id, names): (LedgerId, impl Iterator<Item = &'n str>),
        room: usize,
    ) -> (usize, usize) {
        let ledger = &mut self.ledgers[id];
        let before = ledger.len();
        let (seen, mut names) = ledger.reserve(origin, &mut self.cells, (names, room), self.epoch);
        let new = ledger.len() - before;
        match kept.holds.last_mut().filter(|hold| hold.ledger == id && hold.list.is_none()) {
            Some(hold) => hold.names.append(&mut names),
            None => {
                ledger.holds += 1;
                kept.holds.push(Hold { ledger: id, list: None, names });
            }
        }
        (seen, new)
    }

    /// Keeps the names of a selection that has ended, to release them later. For a type with collections, they are those of
    /// collections.
    pub(crate) fn release_names(&mut self, id: LedgerId, names: Vec<Name>) {
        if !self.ledgers[id].kind.is_collected() {
            self.ledgers[id].holds += 1;
            return self.released.push(Hold { ledger: id, list: None, names });
        }
        names.into_iter().for_each(|collection| self.release_list(id, collection));
    }

    /// Keeps a catalogue whose last user has ended, to close it later.
    pub(crate) fn release_list(&mut self, id: LedgerId, collection: Name) {
        self.ledgers[id].holds += 1;
        self.released.push(Hold { ledger: id, list: Some(collection), names: Vec::new() });
    }

    /// Keeps this no longer. It is closed later, a few names at a time.
    pub(crate) fn release(&mut self, kept: Kept<O::Cell>) {
        self.cells.close_all(kept.cells);
        self.released.extend(kept.holds);
    }

    /// Closes up to `count` names or rows that are held no longer.
    pub(crate) fn close_released(&mut self, count: usize) {
        let Some(hold) = self.released.last_mut() else { return };
        let id = hold.ledger;
        let ledger = &mut self.ledgers[id];
        if let Some(collection) = hold.list.as_ref().filter(|collection| ledger.is_last_hold(collection))
            && ledger.close_rows(&mut self.cells, collection, count)
        {
            return;
        }
        let names = hold.names.split_off(hold.names.len().saturating_sub(count));
        let ended = if hold.names.is_empty() { self.released.pop() } else { None };
        self.shrink(id, |ledger, cells| {
            ledger.forget(cells, &names);
            let Hold { list, .. } = ended?;
            ledger.holds -= 1;
            // The catalogue of a wildcard type stays as long as its ledger.
            let collection = list.filter(|_| ledger.kind.is_collected())?;
            ledger.release(cells, &collection)
        });
    }
}
