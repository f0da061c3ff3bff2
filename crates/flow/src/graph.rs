//! The cells of all relations as a graph: their edges, and what keeps them alive. It knows neither keys nor rows.
//!
//! Cells live in blocks of 64. A block belongs to one relation, so that a cell's number determines its relation, and is
//! freed with its last cell. The lowest numbers stand for the key sets of relations, which are read like cells.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::edges::{Edges, Readers};

/// Cells in a block.
pub(crate) const BLOCK: usize = 64;
/// Numbers from here on are stand-ins for cells that are being read for the first time.
pub(crate) const FRESH: u32 = 1 << 31;

/// Identifies a cell: a key of a relation that has a row or is read.
///
/// It is stable while the cell lives (a subscribed view, a row of an input) and may be reused later. Engines with the
/// same history of calls number their cells alike, whatever the number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CellId(pub(crate) u32);

/// A cell without its key and row.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) reads: Edges,
    pub(crate) readers: Readers,
    /// The number of subscriptions.
    pub(crate) subscriptions: u32,
    /// Alive regardless of readers: it has a row of its own right, or subscriptions.
    pub(crate) held: bool,
    /// The last run panicked; the row is the last good one.
    pub(crate) poisoned: bool,
}

const EMPTY: Node =
    Node { reads: Edges::EMPTY, readers: Readers::EMPTY, subscriptions: 0, held: false, poisoned: false };

#[derive(Clone)]
struct Block {
    relation: u16,
    /// The page of the relation's table with the keys and rows.
    page: u32,
    /// One bit per existing cell.
    used: u64,
    nodes: Arc<[Node; BLOCK]>,
}

#[derive(Clone)]
pub(crate) struct Graph {
    relations: u32,
    key_sets: Vec<Node>,
    /// The first blocks are reserved for the numbers of key sets and never exist.
    blocks: Vec<Option<Block>>,
    free_blocks: BTreeSet<u32>,
    /// The blocks of each relation.
    owned: Vec<BTreeSet<u32>>,
    /// The blocks of each relation that have room. The lowest is filled first, so that numbers do not depend on the
    /// order in which cells were removed.
    open: Vec<BTreeSet<u32>>,
}

impl Graph {
    pub(crate) fn new(relations: usize) -> Self {
        Self {
            relations: relations as u32,
            key_sets: vec![EMPTY; relations],
            blocks: vec![None; relations.div_ceil(BLOCK)],
            free_blocks: BTreeSet::new(),
            owned: vec![BTreeSet::new(); relations],
            open: vec![BTreeSet::new(); relations],
        }
    }

    /// The cell of a relation's key set.
    pub(crate) fn key_set(relation: usize) -> u32 {
        relation as u32
    }

    /// The relation whose key set this is, if any.
    pub(crate) fn as_key_set(&self, cell: u32) -> Option<usize> {
        (cell < self.relations).then_some(cell as usize)
    }

    /// The relation of a cell and the page of its table; `None` if there is no such cell.
    #[inline]
    pub(crate) fn locate(&self, cell: u32) -> Option<(usize, usize)> {
        let block = self.blocks.get(cell as usize / BLOCK)?.as_ref()?;
        (block.used >> (cell as usize % BLOCK) & 1 == 1).then_some((block.relation as usize, block.page as usize))
    }

    /// The page of an existing cell.
    #[inline]
    pub(crate) fn page(&self, cell: u32) -> usize {
        match &self.blocks[cell as usize / BLOCK] {
            Some(block) => block.page as usize,
            None => missing(cell),
        }
    }

    /// The relation of an existing cell.
    pub(crate) fn relation(&self, cell: u32) -> usize {
        match &self.blocks[cell as usize / BLOCK] {
            Some(block) => block.relation as usize,
            None => missing(cell),
        }
    }

    pub(crate) fn node(&self, cell: u32) -> &Node {
        if let Some(relation) = self.as_key_set(cell) {
            return &self.key_sets[relation];
        }
        match &self.blocks[cell as usize / BLOCK] {
            Some(block) => &block.nodes[cell as usize % BLOCK],
            None => missing(cell),
        }
    }

    pub(crate) fn node_mut(&mut self, cell: u32) -> &mut Node {
        if let Some(relation) = self.as_key_set(cell) {
            return &mut self.key_sets[relation];
        }
        match &mut self.blocks[cell as usize / BLOCK] {
            Some(block) => &mut Arc::make_mut(&mut block.nodes)[cell as usize % BLOCK],
            None => missing(cell),
        }
    }

    /// Allocates a cell of a relation. Calls `new_page` for a page of its table when a block is added.
    pub(crate) fn allocate(&mut self, relation: usize, new_page: impl FnOnce() -> usize) -> u32 {
        let number = match self.open[relation].first() {
            Some(open) => *open,
            None => self.add_block(relation, new_page()),
        };
        let Some(block) = &mut self.blocks[number as usize] else { missing(number) };
        let at = block.used.trailing_ones();
        block.used |= 1 << at;
        if block.used == u64::MAX {
            self.open[relation].remove(&number);
        }
        let cell = number * BLOCK as u32 + at;
        assert!(cell < FRESH, "flow: too many cells");
        cell
    }

    /// Removes a cell that has neither readers nor reads. If it was the last of its block, the block is removed and
    /// `drop_page` is called with its page.
    pub(crate) fn release(&mut self, cell: u32, drop_page: impl FnOnce(usize)) {
        let number = cell / BLOCK as u32;
        let Some(block) = &mut self.blocks[number as usize] else { missing(cell) };
        Arc::make_mut(&mut block.nodes)[cell as usize % BLOCK] = EMPTY;
        block.used &= !(1 << (cell as usize % BLOCK));
        if block.used == 0 {
            self.open[block.relation as usize].remove(&number);
            self.owned[block.relation as usize].remove(&number);
            drop_page(block.page as usize);
            self.blocks[number as usize] = None;
            self.free_blocks.insert(number);
        } else {
            self.open[block.relation as usize].insert(number);
        }
    }

    /// All cells of a relation, by number.
    pub(crate) fn cells_of(&self, relation: usize) -> impl Iterator<Item = u32> + '_ {
        self.owned[relation].iter().flat_map(|number| {
            let used = self.blocks[*number as usize].as_ref().map_or(0, |block| block.used);
            let cells = (0..BLOCK as u32).filter(move |bit| (used >> bit) & 1 == 1);
            cells.map(move |bit| number * BLOCK as u32 + bit)
        })
    }

    /// The bytes of nodes and of the lists around them, without edges that are stored outside of nodes.
    pub(crate) fn bytes(&self) -> usize {
        let blocks = self.blocks.iter().flatten().count() * (16 + size_of::<[Node; BLOCK]>());
        blocks + self.blocks.capacity() * size_of::<Option<Block>>() + self.key_sets.len() * size_of::<Node>()
    }

    fn add_block(&mut self, relation: usize, page: usize) -> u32 {
        let block =
            Block { relation: relation as u16, page: page as u32, used: 0, nodes: Arc::new([const { EMPTY }; BLOCK]) };
        let number = match self.free_blocks.pop_first() {
            Some(free) => {
                self.blocks[free as usize] = Some(block);
                free
            }
            None => {
                self.blocks.push(Some(block));
                self.blocks.len() as u32 - 1
            }
        };
        self.owned[relation].insert(number);
        self.open[relation].insert(number);
        number
    }
}

#[cold]
fn missing(cell: u32) -> ! {
    panic!("flow: cell {cell} does not exist, which is a bug in the engine")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_forty_bytes() {
        assert_eq!(size_of::<Node>(), 40);
    }

    #[test]
    fn blocks_belong_to_one_relation_and_are_reused() {
        let mut graph = Graph::new(2);
        let mut pages = 0;
        let mut allocate = |graph: &mut Graph, relation| {
            graph.allocate(relation, || {
                pages += 1;
                pages - 1
            })
        };
        let first: Vec<u32> = (0..BLOCK + 1).map(|_| allocate(&mut graph, 0)).collect();
        let second = allocate(&mut graph, 1);
        assert_eq!(graph.locate(first[BLOCK]), Some((0, 1)));
        assert_eq!(graph.locate(second), Some((1, 2)));
        assert_eq!(graph.cells_of(0).collect::<Vec<_>>(), first);

        let mut dropped = Vec::new();
        first.iter().for_each(|cell| graph.release(*cell, |page| dropped.push(page)));
        assert_eq!(dropped, [0, 1]);
        assert_eq!(graph.locate(first[0]), None);
        assert_eq!(allocate(&mut graph, 1), second + 1, "an open block is filled first");
        assert_eq!(graph.cells_of(0).count(), 0);
        assert_eq!(allocate(&mut graph, 0), first[0], "then a free one is taken");
    }
}
