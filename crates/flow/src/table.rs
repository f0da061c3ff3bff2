//! The keys and rows of one relation.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use crate::fresh::Fresh;
use crate::graph::{BLOCK, Graph};
use crate::keymap::{KeyMap, tag};
use crate::{Members, Reads, Relation};

/// A function that derives a row.
pub(crate) type Derive<R> = fn(&Reads<'_>, &<R as Relation>::Key) -> Option<<R as Relation>::Row>;

/// A cell's key, and its row if it has one.
pub(crate) struct Slot<R: Relation> {
    pub(crate) key: R::Key,
    pub(crate) row: Option<Arc<R::Row>>,
}

impl<R: Relation> Clone for Slot<R> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), row: self.row.clone() }
    }
}

type Page<R> = Arc<[Option<Slot<R>>; BLOCK]>;

/// The table of a relation. Pages are shared with forks until they change.
pub(crate) struct Table<R: Relation> {
    pages: Vec<Option<Page<R>>>,
    free_pages: Vec<u32>,
    map: KeyMap,
    /// The keys that have rows, collected on demand.
    pub(crate) keys: OnceLock<Members<R::Key>>,
    /// Cells that are being read for the first time.
    pub(crate) fresh: Fresh<R>,
    /// Derives a cell that is read for the first time: views only.
    pub(crate) on_demand: Option<Derive<R>>,
    /// The number of cells with rows.
    pub(crate) present: usize,
}

impl<R: Relation> Table<R> {
    pub(crate) fn new(on_demand: Option<Derive<R>>) -> Self {
        Self {
            pages: Vec::new(),
            free_pages: Vec::new(),
            map: KeyMap::new(),
            keys: OnceLock::new(),
            fresh: Fresh::new(),
            on_demand,
            present: 0,
        }
    }

    /// Finds the cell of a key.
    #[inline]
    pub(crate) fn find(&self, graph: &Graph, key: &R::Key) -> Option<u32> {
        self.map.find(tag(key), |cell| self.slot(graph, cell).is_some_and(|slot| slot.key == *key))
    }

    #[inline]
    pub(crate) fn slot(&self, graph: &Graph, cell: u32) -> Option<&Slot<R>> {
        self.slot_at(graph.page(cell), cell)
    }

    #[inline]
    pub(crate) fn slot_at(&self, page: usize, cell: u32) -> Option<&Slot<R>> {
        self.pages[page].as_ref()?[cell as usize % BLOCK].as_ref()
    }

    pub(crate) fn slot_mut(&mut self, graph: &Graph, cell: u32) -> Option<&mut Slot<R>> {
        let page = self.pages[graph.page(cell)].as_mut()?;
        Arc::make_mut(page)[cell as usize % BLOCK].as_mut()
    }

    /// Adds a cell without a row.
    pub(crate) fn add(&mut self, graph: &mut Graph, relation: usize, key: R::Key) -> u32 {
        let cell = graph.allocate(relation, || self.new_page());
        self.map.insert(tag(&key), cell);
        if let Some(page) = &mut self.pages[graph.page(cell)] {
            Arc::make_mut(page)[cell as usize % BLOCK] = Some(Slot { key, row: None });
        }
        cell
    }

    fn new_page(&mut self) -> usize {
        let page: Page<R> = Arc::new([const { None }; BLOCK]);
        match self.free_pages.pop() {
            Some(free) => {
                self.pages[free as usize] = Some(page);
                free as usize
            }
            None => {
                self.pages.push(Some(page));
                self.pages.len() - 1
            }
        }
    }
}

/// A table of any relation.
pub(crate) trait AnyTable: Any + Send + Sync {
    /// Returns a copy that shares all pages.
    fn fork(&self) -> Box<dyn AnyTable>;
    /// Removes a cell, also from the graph.
    fn release(&mut self, graph: &mut Graph, cell: u32);
    /// A cell's key, for display.
    fn key(&self, graph: &Graph, cell: u32) -> Option<&dyn Debug>;
    /// A cell's row, for display.
    fn row(&self, graph: &Graph, cell: u32) -> Option<&dyn Debug>;
    /// Whether looking up the cell's key finds the cell.
    fn finds(&self, graph: &Graph, cell: u32) -> bool;
    /// Compares the keys of two cells of the same relation; the other cell may belong to another engine.
    fn compare_keys(&self, graph: &Graph, cell: u32, other: (&dyn AnyTable, &Graph), other_cell: u32) -> Ordering;
    /// Whether two cells have equal rows, or both none.
    fn same_rows(&self, graph: &Graph, cell: u32, other: (&dyn AnyTable, &Graph), other_cell: u32) -> bool;
    /// The number of cells with rows.
    fn present(&self) -> usize;
    /// The bytes of the pages and of the map from keys to cells, without heap memory owned by keys and rows.
    fn bytes(&self) -> (usize, usize);
    /// The bytes of the rows and their `Arc` headers, without heap memory owned by rows.
    fn row_bytes(&self) -> usize;
}

impl<R: Relation> AnyTable for Table<R> {
    fn fork(&self) -> Box<dyn AnyTable> {
        Box::new(Self {
            pages: self.pages.clone(),
            free_pages: self.free_pages.clone(),
            map: self.map.clone(),
            keys: self.keys.clone(),
            fresh: Fresh::new(),
            on_demand: self.on_demand,
            present: self.present,
        })
    }

    fn release(&mut self, graph: &mut Graph, cell: u32) {
        let Some(page) = &mut self.pages[graph.page(cell)] else {
            return;
        };
        let Some(slot) = Arc::make_mut(page)[cell as usize % BLOCK].take() else {
            return;
        };
        self.map.remove(tag(&slot.key), cell);
        self.present -= usize::from(slot.row.is_some());
        graph.release(cell, |page| {
            self.pages[page] = None;
            self.free_pages.push(page as u32);
        });
    }

    fn key(&self, graph: &Graph, cell: u32) -> Option<&dyn Debug> {
        self.slot(graph, cell).map(|slot| &slot.key as &dyn Debug)
    }

    fn row(&self, graph: &Graph, cell: u32) -> Option<&dyn Debug> {
        self.slot(graph, cell)?.row.as_deref().map(|row| row as &dyn Debug)
    }

    fn finds(&self, graph: &Graph, cell: u32) -> bool {
        self.slot(graph, cell).is_some_and(|slot| self.find(graph, &slot.key) == Some(cell))
    }

    fn compare_keys(&self, graph: &Graph, cell: u32, other: (&dyn AnyTable, &Graph), other_cell: u32) -> Ordering {
        let other = (other.0 as &dyn Any).downcast_ref::<Self>().and_then(|table| table.slot(other.1, other_cell));
        self.slot(graph, cell).map(|slot| &slot.key).cmp(&other.map(|slot| &slot.key))
    }

    fn same_rows(&self, graph: &Graph, cell: u32, other: (&dyn AnyTable, &Graph), other_cell: u32) -> bool {
        let other = (other.0 as &dyn Any).downcast_ref::<Self>().and_then(|table| table.slot(other.1, other_cell));
        self.slot(graph, cell).map(|slot| &slot.row) == other.map(|slot| &slot.row)
    }

    fn present(&self) -> usize {
        self.present
    }

    fn bytes(&self) -> (usize, usize) {
        let pages = self.pages.iter().flatten().count() * (16 + size_of::<[Option<Slot<R>>; BLOCK]>());
        (pages + self.pages.capacity() * 8, self.map.bytes())
    }

    fn row_bytes(&self) -> usize {
        self.present * (16 + size_of::<R::Row>())
    }
}
