//! Consistency checks of the engine's own bookkeeping, for tests and debug endpoints.

use rustc_hash::FxHashSet;

use crate::engine::Engine;
use crate::schema::Kind;

impl Engine {
    /// Checks the engine's bookkeeping and reports the first error: edges with one end, cells that nothing keeps alive
    /// or that their key does not find, wrong counts. Its cost is proportional to the number of cells and edges.
    pub fn audit(&self) -> Result<(), String> {
        let core = &self.core;
        for relation in 0..core.schema.relations.len() {
            self.audit_relation(relation)
                .map_err(|fault| format!("{}: {fault}", core.schema.relations[relation].name))?;
        }
        let ends: usize = (0..core.schema.relations.len())
            .map(|relation| {
                let cells = core.graph.cells_of(relation).map(|cell| core.graph.node(cell).readers.len());
                cells.sum::<usize>() + core.graph.node(relation as u32).readers.len()
            })
            .sum();
        check(ends == core.edges.iter().sum(), || format!("{ends} ends of {} edges", core.edges.iter().sum::<usize>()))
    }

    fn audit_relation(&self, relation: usize) -> Result<(), String> {
        let core = &self.core;
        let [mut cells, mut edges, mut rows, mut poisoned, mut subscriptions] = [0; 5];
        for cell in core.graph.cells_of(relation) {
            let node = core.graph.node(cell);
            cells += 1;
            edges += node.reads.as_slice().len();
            rows += usize::from(core.row(relation, cell).is_some());
            poisoned += usize::from(node.poisoned);
            subscriptions += node.subscriptions as usize;
            self.audit_cell(relation, cell).map_err(|fault| {
                let key = core.key(relation, cell);
                format!("cell {cell} {key:?}: {fault}")
            })?;
        }
        let counted = (cells, edges, rows, poisoned, subscriptions);
        let kept = (
            core.cells[relation],
            core.edges[relation],
            core.tables[relation].present,
            core.poisoned[relation],
            self.subscriptions[relation],
        );
        check(counted == kept, || format!("counted {counted:?}, kept {kept:?}"))
    }

    fn audit_cell(&self, relation: usize, cell: u32) -> Result<(), String> {
        let (core, graph) = (&self.core, &self.core.graph);
        let node = graph.node(cell);
        let found = core.key(relation, cell).and_then(|key| core.find(relation, key));
        check(found == Some(cell), || "its key leads elsewhere".to_owned())?;
        let is_kept = node.held || !node.readers.is_empty();
        check(is_kept || core.orphans.contains(&cell), || "nothing keeps it alive".to_owned())?;
        let row = core.row(relation, cell).is_some();
        let held = match core.schema.relations[relation].kind {
            Kind::Input | Kind::Index => row,
            Kind::World => node.held,
            Kind::View => node.subscriptions > 0,
        };
        check(node.held == held, || "it is held for no reason, or not held for one".to_owned())?;
        let derives = core.schema.relations[relation].kind == Kind::View || node.held;
        check(derives || node.reads.as_slice().is_empty(), || "an absent key reads".to_owned())?;
        let mut seen = FxHashSet::default();
        for read in node.reads.as_slice() {
            let below = graph.as_key_set(*read).or_else(|| graph.locate(*read).map(|(relation, _)| relation));
            check(below.is_some_and(|below| below < relation), || format!("it reads {read}, which is not below"))?;
            check(graph.node(*read).readers.contains(cell), || format!("{read} does not know that it reads it"))?;
            check(seen.insert(*read), || format!("it reads {read} twice"))?;
        }
        Ok(())
    }
}

fn check(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}
