//! Statistics and memory use of an engine.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::schema::Kind;

/// The content of an engine, and its work since it was built. A fork continues the counts of its original.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// The number of commits.
    pub epoch: u64,
    /// Each relation, in the order of registration.
    pub relations: Vec<RelationStats>,
}

/// The content and work of one relation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelationStats {
    /// The relation's name.
    pub name: &'static str,
    /// How its rows are produced.
    pub kind: Kind,
    /// Cells: keys with rows, derived cells without a row, and absent keys that are read.
    pub cells: usize,
    /// Cells that have rows.
    pub rows: usize,
    /// Edges from its cells to the cells that they read.
    pub edges: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Cells whose last run panicked.
    pub poisoned: usize,
    /// The number of rule runs; for an index, of rebuilt rows.
    pub runs: usize,
    /// Runs whose result was equal to the previous row.
    pub cut_offs: usize,
    /// Rows changed by commits.
    pub changed: usize,
    /// Runs that panicked.
    pub panics: usize,
}

impl Stats {
    /// The cells of all relations.
    pub fn cells(&self) -> usize {
        self.relations.iter().map(|relation| relation.cells).sum()
    }

    /// The edges of all relations.
    pub fn edges(&self) -> usize {
        self.relations.iter().map(|relation| relation.edges).sum()
    }

    /// The relation of this name.
    pub fn relation(&self, name: &str) -> Option<&RelationStats> {
        self.relations.iter().find(|relation| relation.name == name)
    }
}

/// The bytes that the engine itself uses, without heap memory owned by keys and rows (such as the text of a string) and
/// without allocator overhead.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// The number of cells.
    pub cells: usize,
    /// The number of edges; each is stored at both ends.
    pub edges: usize,
    /// Pages with keys and row references, and graph nodes.
    pub cell_bytes: usize,
    /// The maps from keys to cells.
    pub map_bytes: usize,
    /// Both ends of all edges that do not fit into the node.
    pub edge_bytes: usize,
    /// The rows and their reference counts.
    pub row_bytes: usize,
}

impl Footprint {
    /// The sum.
    pub fn bytes(&self) -> usize {
        self.cell_bytes + self.map_bytes + self.edge_bytes + self.row_bytes
    }
}

impl Engine {
    /// Returns the statistics of all relations.
    pub fn stats(&self) -> Stats {
        let relations = self.core.schema.relations.iter().enumerate();
        let relations = relations.map(|(at, info)| RelationStats {
            name: info.name,
            kind: info.kind,
            cells: self.core.cells[at],
            rows: self.core.tables[at].present,
            edges: self.core.edges[at],
            subscriptions: self.subscriptions[at],
            poisoned: self.core.poisoned[at],
            runs: self.totals[at].runs,
            cut_offs: self.totals[at].cut_offs,
            changed: self.totals[at].changed,
            panics: self.totals[at].panics,
        });
        Stats { epoch: self.epoch, relations: relations.collect() }
    }

    /// The relations that read each other, as (reader, read), by a pass over all edges. A relation that enumerates the keys
    /// of another one reads it, too.
    pub fn relation_reads(&self) -> BTreeSet<(&'static str, &'static str)> {
        let (graph, relations) = (&self.core.graph, &self.core.schema.relations);
        let mut pairs = BTreeSet::new();
        for (reader, info) in relations.iter().enumerate() {
            let reads = graph.cells_of(reader).flat_map(|cell| graph.node(cell).reads.as_slice());
            let read = reads.map(|cell| graph.as_key_set(*cell).unwrap_or_else(|| graph.relation(*cell)));
            pairs.extend(read.chain(info.base).map(|read| (info.name, relations[read].name)));
        }
        pairs
    }

    /// Counts the bytes that the engine uses, by a pass over all cells. Forks count what they share.
    pub fn footprint(&self) -> Footprint {
        let graph = &self.core.graph;
        let mut print = Footprint { cell_bytes: graph.bytes(), ..Footprint::default() };
        for (relation, table) in self.core.tables.iter().enumerate() {
            let (pages, map) = table.bytes();
            print.cell_bytes += pages;
            print.map_bytes += map;
            let rows = graph.cells_of(relation).filter_map(|cell| table.row(graph, cell));
            print.row_bytes += rows.map(|row| 16 + size_of_val(&**row)).sum::<usize>();
            print.cells += self.core.cells[relation];
            print.edges += self.core.edges[relation];
            let cells = graph.cells_of(relation).map(|cell| graph.node(cell));
            print.edge_bytes += graph.node(relation as u32).readers.bytes();
            print.edge_bytes += cells.map(|node| node.reads.bytes() + node.readers.bytes()).sum::<usize>();
        }
        print
    }
}
