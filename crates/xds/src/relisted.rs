//! Compares changed catalogues on a thread of the caller's choice: one may have thousands of rows.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::ledger::{Row, differences};
use crate::{Changes, Hub, Origin};

/// The changed catalogues of a commit, each with what it was before.
pub struct Relisted<O: Origin>(Vec<(O::Cell, O::Catalogue, O::Catalogue)>);

/// The differences of changed catalogues. The resources of their new rows are open.
pub struct Compared<O: Origin> {
    comparisons: FxHashMap<O::Cell, Comparison<O>>,
    opened: Vec<O::Cell>,
}

/// The differences of a catalogue.
pub(crate) struct Comparison<O: Origin> {
    before: O::Catalogue,
    rows: Arc<[Row<O::Key>]>,
}

impl<O: Origin> Relisted<O> {
    /// Compares them, and opens the resources of new rows. Pass the result to [`Hub::application`].
    pub fn compare(self, origin: &mut O) -> Compared<O> {
        let compare = |(cell, before, after): (O::Cell, O::Catalogue, O::Catalogue)| {
            let rows = differences::<O>(O::rows(&before), O::rows(&after));
            (cell, Comparison { before, rows })
        };
        let comparisons: FxHashMap<O::Cell, Comparison<O>> = self.0.into_iter().map(compare).collect();
        let rows = comparisons.values().flat_map(|one| &*one.rows);
        let new: Vec<&O::Key> = rows.filter_map(|(.., key)| key.as_ref()).filter(|key| !O::hides(key)).collect();
        let opened = origin.open_all(&new).into_iter().map(|(cell, _)| cell).collect();
        Compared { comparisons, opened }
    }
}

impl<O: Origin> Default for Compared<O> {
    fn default() -> Compared<O> {
        Compared { comparisons: FxHashMap::default(), opened: Vec::new() }
    }
}

impl<O: Origin> Compared<O> {
    pub(crate) fn of(&self, cell: O::Cell) -> Option<&Comparison<O>> {
        self.comparisons.get(&cell)
    }
}

impl<O: Origin> Comparison<O> {
    /// The differences, if these are the rows with which the new ones were compared.
    pub(crate) fn rows_since(&self, before: &O::Catalogue) -> Option<Arc<[Row<O::Key>]>> {
        std::ptr::eq(O::rows(&self.before), O::rows(before)).then(|| self.rows.clone())
    }
}

impl<O: Origin> Hub<O> {
    /// The open catalogues that a commit changes; `None` if it changes none.
    pub fn relisted(&self, changes: &Changes<O>) -> Option<Relisted<O>> {
        let relisted = changes.catalogues.iter().filter_map(|(cell, after)| {
            let ledger = self.core.catalogues.get(cell)?.first()?;
            Some((*cell, self.core.ledgers[*ledger].whole_catalogue(*cell)?.clone(), after.clone()))
        });
        let relisted: Vec<_> = relisted.collect();
        (!relisted.is_empty()).then_some(Relisted(relisted))
    }

    /// Closes what the comparison opened. What it compared is dropped later, since that takes time.
    pub(crate) fn dismiss(&mut self, compared: Compared<O>) {
        self.core.cells.close_all(compared.opened);
        self.core.outdated.extend(compared.comparisons.into_values().map(|one| one.before));
    }
}
