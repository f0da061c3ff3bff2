//! What was derived from a row: reads, walked from what is read to those who read it.

use std::any::TypeId;

use rustc_hash::FxHashSet;

use crate::Relation;
use crate::engine::Engine;
use crate::graph::CellId;

/// Where a walk from a row to what was derived from it goes.
///
/// Followed are reads of rows. Being a member of an index or of a key set is no read: a cell that lists keys and then
/// reads the rows behind them is found by the latter.
#[derive(Clone, Debug)]
pub struct Walk {
    targets: Vec<TypeId>,
    closed: Vec<TypeId>,
    cells: usize,
}

impl Walk {
    /// A walk that looks at this many cells at most. It finds nothing until it is told what to look for.
    pub fn within(cells: usize) -> Walk {
        Walk {
            targets: Vec::new(),
            closed: Vec::new(),
            cells,
        }
    }

    /// Cells of this relation are looked for.
    pub fn to<R: Relation>(mut self) -> Walk {
        self.targets.push(TypeId::of::<R>());
        self
    }

    /// The walk does not go through cells of this relation: what is on their other side chose among many rows by this
    /// one, and was not made of it.
    pub fn not_through<R: Relation>(mut self) -> Walk {
        self.closed.push(TypeId::of::<R>());
        self
    }
}

/// What a [`Walk`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependents {
    /// The cells that were looked for, each with the name of its relation; by number.
    pub cells: Vec<(CellId, &'static str)>,
    /// False: there may be more, further away than the walk went.
    pub complete: bool,
}

impl Engine {
    /// The cells that were derived from the row of `key`, directly or through others, as of the last commit. A key that
    /// nobody has read has none.
    pub fn dependents<R: Relation>(&self, key: &R::Key, walk: &Walk) -> Dependents {
        let (_, table) = self.table::<R>();
        let (graph, schema) = (&self.core.graph, &self.core.schema);
        let mut found = Dependents {
            cells: Vec::new(),
            complete: true,
        };
        let Some(start) = table.find(graph, key) else {
            return found;
        };
        let mark = |ids: &[TypeId]| {
            let mut marked = vec![false; schema.relations.len()];
            let known = ids.iter().filter_map(|id| schema.ids.get(id));
            known.for_each(|relation| marked[usize::from(*relation)] = true);
            marked
        };
        let (target, closed) = (mark(&walk.targets), mark(&walk.closed));
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
}
