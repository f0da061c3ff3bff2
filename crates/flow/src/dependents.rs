//! Finds the cells that were derived from a row, by following reads backwards.

use std::any::TypeId;

use rustc_hash::FxHashSet;

use crate::Relation;
use crate::engine::Engine;
use crate::graph::CellId;

/// The targets and limits of a walk from a row to the cells derived from it.
///
/// The walk follows reads of rows. Membership in an index or key set is not a read; a cell that lists keys and then
/// reads their rows is found by the latter.
#[derive(Clone, Debug)]
pub struct Walk {
    targets: Vec<TypeId>,
    closed: Vec<TypeId>,
    cells: usize,
}

impl Walk {
    /// Creates a walk that visits at most this many cells. It finds nothing until a target is added with [`Walk::to`].
    pub fn within(cells: usize) -> Walk {
        Walk { targets: Vec::new(), closed: Vec::new(), cells }
    }

    /// Adds cells of this relation to the targets.
    pub fn to<R: Relation>(mut self) -> Walk {
        self.targets.push(TypeId::of::<R>());
        self
    }

    /// Excludes cells of this relation from the walk. Their readers chose among many rows by this one and were not
    /// derived from it.
    pub fn not_through<R: Relation>(mut self) -> Walk {
        self.closed.push(TypeId::of::<R>());
        self
    }
}

/// The result of a [`Walk`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependents {
    /// The target cells found, each with the name of its relation, ordered by number.
    pub cells: Vec<(CellId, &'static str)>,
    /// Whether the walk visited everything. If false, there may be more.
    pub complete: bool,
}

impl Dependents {
    /// Adds the result of another walk. Cells that both found are in it twice.
    pub fn extend(&mut self, other: Dependents) {
        self.cells.extend(other.cells);
        self.complete &= other.complete;
    }
}

impl Engine {
    /// Finds the target cells that were derived from the row of `key`, directly or indirectly, as of the last commit. A
    /// key that is not read has none.
    pub fn dependents<R: Relation>(&self, key: &R::Key, walk: &Walk) -> Dependents {
        let (graph, schema) = (&self.core.graph, &self.core.schema);
        let mut found = Dependents { cells: Vec::new(), complete: true };
        let Some(start) = self.core.find(self.registered::<R>(), key) else {
            return found;
        };
        let (target, closed) = (self.mark(&walk.targets), self.mark(&walk.closed));
        let mut seen = FxHashSet::from_iter([start]);
        let mut open = vec![start];
        while let Some(cell) = open.pop() {
            graph.node(cell).readers.for_each(|reader| {
                let relation = graph.relation(reader);
                if closed[relation] || seen.contains(&reader) {
                    return;
                }
                if seen.len() > walk.cells {
                    found.complete = false;
                    return;
                }
                seen.insert(reader);
                open.push(reader);
                if target[relation] {
                    found.cells.push((CellId(reader), schema.relations[relation].name));
                }
            });
        }
        found.cells.sort_unstable();
        found
    }

    /// Finds the target cells that a cell was derived from: the walk of [`Engine::dependents`] in the other direction.
    pub fn sources(&self, cell: CellId, walk: &Walk) -> Dependents {
        let (graph, schema) = (&self.core.graph, &self.core.schema);
        let mut found = Dependents { cells: Vec::new(), complete: true };
        let (target, closed) = (self.mark(&walk.targets), self.mark(&walk.closed));
        let mut seen = FxHashSet::from_iter([cell.0]);
        let mut open: Vec<u32> = graph.locate(cell.0).map(|_| cell.0).into_iter().collect();
        while let Some(cell) = open.pop() {
            for read in graph.node(cell).reads.as_slice().iter().copied() {
                let Some((relation, _)) = graph.locate(read).filter(|(relation, _)| !closed[*relation]) else {
                    continue;
                };
                if seen.len() > walk.cells {
                    found.complete = false;
                } else if seen.insert(read) {
                    open.push(read);
                    if target[relation] {
                        found.cells.push((CellId(read), schema.relations[relation].name));
                    }
                }
            }
        }
        found.cells.sort_unstable();
        found
    }

    /// Which relations are among these.
    fn mark(&self, ids: &[TypeId]) -> Vec<bool> {
        let schema = &self.core.schema;
        let mut marked = vec![false; schema.relations.len()];
        let known = ids.iter().filter_map(|id| schema.ids.get(id));
        known.for_each(|relation| marked[usize::from(*relation)] = true);
        marked
    }
}
