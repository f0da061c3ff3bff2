//! The state of an engine: tables and graph, and the operations that change both.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::edges::{self, Edges};
use crate::fresh::Waiting;
use crate::graph::Graph;
use crate::order;
use crate::reads::ReadsNow;
use crate::schema::Schema;
use crate::table::{AnyTable, Table};
use crate::tx::Tx;
use crate::{Members, Relation};

/// Tables and graph.
pub(crate) struct Core {
    pub(crate) schema: Arc<Schema>,
    pub(crate) tables: Vec<Box<dyn AnyTable>>,
    pub(crate) graph: Graph,
    /// The number of edges from the cells of each relation.
    pub(crate) edges: Vec<usize>,
    /// The number of cells of each relation.
    pub(crate) cells: Vec<usize>,
    /// The number of cells of each relation whose last run panicked.
    pub(crate) poisoned: Vec<usize>,
    /// Fresh cells that wait for a number.
    pub(crate) waiting: Waiting,
}

impl Core {
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        let relations = schema.relations.len();
        Self {
            tables: schema.relations.iter().map(|relation| (relation.new_table)()).collect(),
            graph: Graph::new(relations),
            edges: vec![0; relations],
            cells: vec![0; relations],
            poisoned: vec![0; relations],
            waiting: Waiting::new(relations),
            schema,
        }
    }

    pub(crate) fn fork(&self) -> Self {
        Self {
            schema: self.schema.clone(),
            tables: self.tables.iter().map(|table| table.fork()).collect(),
            graph: self.graph.clone(),
            edges: self.edges.clone(),
            cells: self.cells.clone(),
            poisoned: self.poisoned.clone(),
            waiting: Waiting::new(self.tables.len()),
        }
    }

    /// The number and the table of a relation, if it is registered.
    #[inline]
    pub(crate) fn typed<R: Relation>(&self) -> Option<(usize, &Table<R>)> {
        let relation = usize::from(*self.schema.ids.get(&TypeId::of::<R>())?);
        Some((relation, self.table(relation)))
    }

    /// The table of a relation, by its number.
    #[inline]
    pub(crate) fn table<R: Relation>(&self, relation: usize) -> &Table<R> {
        let table: &dyn Any = &*self.tables[relation];
        match table.downcast_ref() {
            Some(table) => table,
            None => wrong_table::<R>(),
        }
    }

    /// The table of a relation, by its number, and the graph, both mutable.
    pub(crate) fn table_mut<R: Relation>(&mut self, relation: usize) -> (&mut Table<R>, &mut Graph) {
        let table: &mut dyn Any = &mut *self.tables[relation];
        match table.downcast_mut() {
            Some(table) => (table, &mut self.graph),
            None => wrong_table::<R>(),
        }
    }

    /// The cell of a key, added if there is none.
    pub(crate) fn find_or_add<R: Relation>(&mut self, relation: usize, key: &R::Key) -> u32 {
        if let Some(cell) = self.table::<R>(relation).find(&self.graph, key) {
            return cell;
        }
        let (table, graph) = self.table_mut::<R>(relation);
        let cell = table.add(graph, relation, key.clone());
        self.cells[relation] += 1;
        cell
    }

    /// The keys of a relation that have rows.
    pub(crate) fn keys<R: Relation>(&self, table: &Table<R>, relation: usize) -> Members<R::Key> {
        let collect = || {
            let slots = self.graph.cells_of(relation).filter_map(|cell| table.slot(&self.graph, cell));
            slots.filter(|slot| slot.row.is_some()).map(|slot| slot.key.clone()).collect()
        };
        table.keys.get_or_init(collect).clone()
    }

    /// Sorts cells of one relation by key.
    pub(crate) fn sort_cells(&self, relation: usize, cells: &mut [u32]) {
        let (table, graph) = (&*self.tables[relation], &self.graph);
        order::sort(cells, |a, b| table.compare_keys(graph, *a, (table, graph), *b));
    }

    /// Sets the row of a cell, records the change, and marks its readers dirty.
    pub(crate) fn set_row<R: Relation>(&mut self, tx: &mut Tx, relation: usize, cell: u32, row: Option<Arc<R::Row>>) {
        let (table, graph) = self.table_mut::<R>(relation);
        let Some(slot) = table.slot_mut(graph, cell) else {
            return;
        };
        let before = std::mem::replace(&mut slot.row, row.clone());
        let key = slot.key.clone();
        table.present = table.present + usize::from(row.is_some()) - usize::from(before.is_some());
        tx.changed::<R>(relation, cell, key, before, row);
        self.mark_readers(tx, cell);
    }

    /// Marks the readers of a cell dirty.
    pub(crate) fn mark_readers(&self, tx: &mut Tx, cell: u32) {
        self.graph.node(cell).readers.for_each(|reader| tx.dirty[self.graph.relation(reader)].push(reader));
    }

    /// Sets the reads of a cell.
    pub(crate) fn set_reads(&mut self, tx: &mut Tx, relation: usize, cell: u32, reads: ReadsNow) {
        let ReadsNow::New(mut now) = reads else { return };
        tx.resolve_stand_ins(&mut now);
        let before = std::mem::replace(&mut self.graph.node_mut(cell).reads, Edges::from(&*now));
        self.edges[relation] = self.edges[relation] + now.len() - before.as_slice().len();
        let mut removed = Vec::new();
        let graph = &mut self.graph;
        let added = |target| graph.node_mut(target).readers.insert(cell);
        edges::difference(before.as_slice(), &now, added, |target| removed.push(target));
        for target in removed {
            self.remove_reader(tx, target, cell);
        }
    }

    /// Removes the reads of a cell.
    pub(crate) fn clear_reads(&mut self, tx: &mut Tx, relation: usize, cell: u32) {
        self.set_reads(tx, relation, cell, ReadsNow::New(Vec::new()));
    }

    /// Records whether the last run of a cell panicked.
    pub(crate) fn set_poisoned(&mut self, relation: usize, cell: u32, poisoned: bool) {
        if self.graph.node(cell).poisoned != poisoned {
            self.graph.node_mut(cell).poisoned = poisoned;
            self.poisoned[relation] = self.poisoned[relation] + usize::from(poisoned) - usize::from(!poisoned);
        }
    }

    /// Removes the cells in `tx.orphans` that nothing keeps alive, and the cells that only they kept alive.
    pub(crate) fn collect(&mut self, tx: &mut Tx) {
        while let Some(cell) = tx.orphans.pop() {
            let Some((relation, _)) = self.graph.locate(cell) else {
                continue;
            };
            let node = self.graph.node(cell);
            if node.held || !node.readers.is_empty() {
                continue;
            }
            self.clear_reads(tx, relation, cell);
            self.set_poisoned(relation, cell, false);
            self.tables[relation].release(&mut self.graph, cell);
            self.cells[relation] -= 1;
            tx.freed.insert(cell);
        }
    }

    fn remove_reader(&mut self, tx: &mut Tx, target: u32, reader: u32) {
        let node = self.graph.node_mut(target);
        let was = node.readers.remove(reader);
        debug_assert!(was, "an edge has two ends");
        if node.readers.is_empty() && !node.held {
            tx.orphans.push(target);
        }
    }
}

#[cold]
fn wrong_table<R: Relation>() -> ! {
    panic!("flow: the table of {} has an unexpected type, which is a bug in the engine", R::NAME)
}
