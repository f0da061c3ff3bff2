//! What an engine holds and what it did.

use crate::engine::Engine;
use crate::schema::Kind;

/// What an engine holds, and what it did since it was built (a fork: since its original was).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// How many commits there were.
    pub epoch: u64,
    /// Each relation, in the order of registration.
    pub relations: Vec<RelationStats>,
}

/// What an engine holds and did for one relation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelationStats {
    /// The relation's name.
    pub name: &'static str,
    /// How its rows come about.
    pub kind: Kind,
    /// Cells: keys that have rows, derived cells that came to nothing, and absent keys that somebody reads.
    pub cells: usize,
    /// Cells that have rows.
    pub rows: usize,
    /// Reads of its cells: edges to what they read.
    pub edges: usize,
    /// Subscriptions.
    pub subscriptions: usize,
    /// Cells whose rule panicked when it ran last.
    pub poisoned: usize,
    /// How often its rule ran; for an index, how often a row was made anew.
    pub runs: usize,
    /// How many of those runs came out equal.
    pub cut_offs: usize,
    /// How many rows changed by commits.
    pub changed: usize,
    /// How many runs panicked.
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

    /// A relation by its name.
    pub fn relation(&self, name: &str) -> Option<&RelationStats> {
        self.relations.iter().find(|relation| relation.name == name)
    }
}

/// The bytes that the engine itself needs. What keys and rows own beyond their own size (the text of a string, say) is
/// not in it, nor is what the allocator adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// How many cells there are.
    pub cells: usize,
    /// How many edges there are; each is stored at both ends.
    pub edges: usize,
    /// Pages with keys and references to rows, and nodes of the graph.
    pub cell_bytes: usize,
    /// The maps from keys to cells.
    pub map_bytes: usize,
    /// Both ends of all edges, where they do not fit beside the cell.
    pub edge_bytes: usize,
    /// The rows' own size, and the counters before them.
    pub row_bytes: usize,
}

impl Footprint {
    /// All of it.
    pub fn bytes(&self) -> usize {
        self.cell_bytes + self.map_bytes + self.edge_bytes + self.row_bytes
    }
}

impl Engine {
    /// What the engine holds and what it did.
    pub fn stats(&self) -> Stats {
        let relations = self.core.schema.relations.iter().enumerate();
        let relations = relations.map(|(at, info)| RelationStats {
            name: info.name,
            kind: info.kind,
            cells: self.core.cells[at],
            rows: self.core.tables[at].present(),
            edges: self.core.edges[at],
            subscriptions: self.subscriptions[at],
            poisoned: self.core.poisoned[at],
            runs: self.totals[at].runs,
            cut_offs: self.totals[at].cut_offs,
            changed: self.totals[at].changed,
            panics: self.totals[at].panics,
        });
        Stats {
            epoch: self.epoch,
            relations: relations.collect(),
        }
    }

    /// The bytes that the engine needs, counted by going through all cells. Forks count what they share.
    pub fn footprint(&self) -> Footprint {
        let graph = &self.core.graph;
        let mut print = Footprint {
            cell_bytes: graph.bytes(),
            ..Footprint::default()
        };
        for (relation, table) in self.core.tables.iter().enumerate() {
            let (pages, map) = table.bytes();
            print.cell_bytes += pages;
            print.map_bytes += map;
            print.row_bytes += table.row_bytes();
            print.cells += self.core.cells[relation];
            print.edges += self.core.edges[relation];
            let cells = graph.cells_of(relation).map(|cell| graph.node(cell));
            print.edge_bytes += graph.node(relation as u32).readers.bytes();
            print.edge_bytes += cells
                .map(|node| node.reads.bytes() + node.readers.bytes())
                .sum::<usize>();
        }
        print
    }
}
