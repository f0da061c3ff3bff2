//! The changes made by a commit.

use std::fmt;
use std::sync::Arc;

use crate::Relation;
use crate::erased::{self, AnyKey, SharedRow};
use crate::graph::CellId;
use crate::schema::Schema;

/// A cell whose row changed.
pub struct Change<'a, R: Relation> {
    /// The cell. If it was removed, its number may be reused from the next commit or subscription on.
    pub cell: CellId,
    /// Its key.
    pub key: &'a R::Key,
    /// The row before the commit.
    pub before: Option<Arc<R::Row>>,
    /// The row after the commit.
    pub after: Option<Arc<R::Row>>,
}

impl<R: Relation> fmt::Debug for Change<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut show = f.debug_struct(R::NAME);
        show.field("key", self.key).field("before", &self.before).field("after", &self.after).finish()
    }
}

/// A cell whose row changed, without its types.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) cell: CellId,
    pub(crate) key: Box<dyn AnyKey>,
    pub(crate) before: Option<SharedRow>,
    pub(crate) after: Option<SharedRow>,
}

/// A contained panic. The cell keeps its last good row, and its rule runs again when a row that it read before the
/// panic changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panic {
    /// The relation whose rule panicked.
    pub rule: &'static str,
    /// The key, as `Debug` shows it. For an index: the key of the row that could not be indexed.
    pub key: String,
    /// The panic's text.
    pub message: String,
}

/// The work done for one relation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Runs {
    /// Rule runs; for an index, rebuilt rows.
    pub runs: usize,
    /// Runs whose result was equal to the previous row; for an input, equal rows that were put.
    pub cut_offs: usize,
    /// Cells that changed.
    pub changed: usize,
    /// Runs that panicked.
    pub panics: usize,
}

/// The exact set of cells whose rows a commit changed.
///
/// It contains changed cells of inputs, indexes and world rules, and of views that were live before and after the
/// commit. A view that is read for the first time is only in [`Delta::runs`], since no one can have seen its previous
/// row. Cells are ordered by relation, then by key.
pub struct Delta {
    pub(crate) schema: Arc<Schema>,
    pub(crate) epoch: u64,
    pub(crate) cells: Vec<CellId>,
    pub(crate) changes: Vec<Vec<Changed>>,
    pub(crate) runs: Vec<Runs>,
    pub(crate) panics: Vec<Panic>,
}

impl Delta {
    /// The number of the commit, starting at 1.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// All changed cells.
    pub fn cells(&self) -> &[CellId] {
        &self.cells
    }

    /// The changed cells of a relation: key and current row. Empty if `R` is not registered.
    pub fn changed<R: Relation>(&self) -> impl Iterator<Item = (R::Key, Option<Arc<R::Row>>)> + '_ {
        self.changes::<R>().map(|change| (change.key.clone(), change.after))
    }

    /// The changed cells of a relation, with their rows before and after.
    pub fn changes<R: Relation>(&self) -> impl Iterator<Item = Change<'_, R>> {
        let changes = self.relation::<R>().map(|relation| self.changes[relation].as_slice());
        changes.unwrap_or_default().iter().map(|change| Change {
            cell: change.cell,
            key: erased::key(&*change.key),
            before: change.before.as_ref().map(erased::shared),
            after: change.after.as_ref().map(erased::shared),
        })
    }

    /// The work done for each relation with any, in the order of registration.
    pub fn runs(&self) -> impl Iterator<Item = (&'static str, Runs)> + '_ {
        let names = self.schema.relations.iter().map(|relation| relation.name);
        names.zip(self.runs.iter().copied()).filter(|(_, runs)| *runs != Runs::default())
    }

    /// The work done for one relation.
    pub fn runs_of<R: Relation>(&self) -> Runs {
        self.relation::<R>().map(|relation| self.runs[relation]).unwrap_or_default()
    }

    /// The contained panics, including those of subscriptions since the previous commit.
    pub fn panics(&self) -> &[Panic] {
        &self.panics
    }

    fn relation<R: Relation>(&self) -> Option<usize> {
        self.schema.relation::<R>()
    }
}

impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.schema.relations.iter().map(|relation| relation.name);
        let changes: Vec<_> = names.zip(&self.changes).filter(|(_, changes)| !changes.is_empty()).collect();
        let mut show = f.debug_struct("Delta");
        show.field("epoch", &self.epoch).field("changes", &changes).field("panics", &self.panics).finish()
    }
}
