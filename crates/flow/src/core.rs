//! The state of an engine: tables and graph, and the operations that change both.

use std::sync::Arc;

use crate::edges::{self, Edges};
use crate::erased::{self, AnyKey, SharedRow};
use crate::fresh::Fresh;
use crate::graph::Graph;
use crate::reads::ReadsNow;
use crate::schema::Schema;
use crate::table::Table;
use crate::tx::Tx;
use crate::{Key, Members};

/// Tables and graph.
pub(crate) struct Core {
    pub(crate) schema: Arc<Schema>,
    /// The maximum number of threads that run rules, including the caller's.
    pub(crate) threads: usize,
    pub(crate) tables: Vec<Table>,
    pub(crate) graph: Graph,
    /// The number of edges from the cells of each relation.
    pub(crate) edges: Vec<usize>,
    /// The number of cells of each relation.
    pub(crate) cells: Vec<usize>,
    /// The number of cells of each relation whose last run panicked.
    pub(crate) poisoned: Vec<usize>,
    /// Cells that wait for a number.
    pub(crate) fresh: Fresh,
    /// Cells that nothing may keep alive any more. They wait to be removed.
    pub(crate) orphans: Vec<u32>,
}

impl Core {
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        let relations = schema.relations.len();
        Self {
            tables: schema.relations.iter().map(|relation| Table::new((relation.pages)())).collect(),
            graph: Graph::new(relations),
            edges: vec![0; relations],
            cells: vec![0; relations],
            poisoned: vec![0; relations],
            fresh: Fresh::default(),
            orphans: Vec::new(),
            threads: schema.threads,
            schema,
        }
    }

    pub(crate) fn fork(&self) -> Self {
        Self {
            schema: self.schema.clone(),
            threads: self.threads,
            tables: self.tables.iter().map(Table::fork).collect(),
            graph: self.graph.clone(),
            edges: self.edges.clone(),
            cells: self.cells.clone(),
            poisoned: self.poisoned.clone(),
            fresh: Fresh::default(),
            orphans: self.orphans.clone(),
        }
    }

    /// The cell of a key of a relation.
    pub(crate) fn find(&self, relation: usize, key: &dyn AnyKey) -> Option<u32> {
        self.tables[relation].find(&self.graph, key)
    }

    /// A cell's key.
    pub(crate) fn key(&self, relation: usize, cell: u32) -> Option<&dyn AnyKey> {
        self.tables[relation].key(&self.graph, cell)
    }

    /// A cell's row.
    pub(crate) fn row(&self, relation: usize, cell: u32) -> Option<&SharedRow> {
        self.tables[relation].row(&self.graph, cell)
    }

    /// The cell of a key, added if there is none.
    pub(crate) fn find_or_add(&mut self, relation: usize, key: &dyn AnyKey) -> u32 {
        if let Some(cell) = self.find(relation, key) {
            return cell;
        }
        self.cells[relation] += 1;
        self.tables[relation].add(&mut self.graph, relation, key)
    }

    /// The keys of a relation that have rows.
    pub(crate) fn keys<K: Key>(&self, relation: usize) -> Members<K> {
        let keys = self.tables[relation].keys.get_or_init(|| self.key_set(relation));
        keys.as_ref().map(|keys| erased::row::<Members<K>>(&**keys).clone()).unwrap_or_default()
    }

    fn key_set(&self, relation: usize) -> Option<SharedRow> {
        let mut cells: Vec<u32> = self.graph.cells_of(relation).collect();
        cells.retain(|cell| self.row(relation, *cell).is_some());
        self.sort_cells(relation, &mut cells);
        let keys: Vec<_> = cells.iter().filter_map(|cell| Some((self.key(relation, *cell)?, true))).collect();
        self.tables[relation].edited(None, &keys)
    }

    /// The cells of the base relation that a cell exists for: those that an index row lists, or the cell of a world
    /// rule's key.
    pub(crate) fn base_cells(&self, relation: usize, cell: u32) -> Vec<u32> {
        let info = &self.schema.relations[relation];
        let Some(base) = info.base else { return Vec::new() };
        let keys = match (info.keys, self.row(relation, cell)) {
            (Some(_), row) => row.map(|row| self.tables[base].members(row)).unwrap_or_default(),
            (None, _) => self.key(relation, cell).into_iter().collect(),
        };
        keys.into_iter().filter_map(|key| self.find(base, key)).collect()
    }

    /// Sorts cells of one relation by key.
    pub(crate) fn sort_cells(&self, relation: usize, cells: &mut [u32]) {
        cells.sort_unstable_by(|a, b| match (self.key(relation, *a), self.key(relation, *b)) {
            (Some(a), Some(b)) => a.order(b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        });
    }

    /// Sets the row of a cell, records the change, and marks its readers dirty.
    pub(crate) fn set_row(&mut self, tx: &mut Tx, relation: usize, cell: u32, row: Option<SharedRow>) {
        let Some(key) = self.key(relation, cell).map(AnyKey::boxed) else { return };
        let before = self.tables[relation].replace(&self.graph, cell, row.clone());
        tx.changed(relation, cell, key, before, row);
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
        self.collect_some(tx, usize::MAX);
    }

    /// Removes waiting cells that nothing keeps alive, and the cells that only they kept alive. Looks at so many.
    pub(crate) fn collect_waiting(&mut self, count: usize) {
        let mut tx = Tx::new(0, Default::default());
        tx.orphans = std::mem::take(&mut self.orphans);
        self.collect_some(&mut tx, count);
        self.orphans = tx.orphans;
    }

    fn collect_some(&mut self, tx: &mut Tx, count: usize) {
        for _ in 0..count {
            let Some(cell) = tx.orphans.pop() else { return };
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
