//! The keys and rows of one relation.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use crate::erased::{self, AnyKey, AnyRow, SharedRow};
use crate::graph::{BLOCK, Graph};
use crate::keymap::{KeyMap, tag};
use crate::{Key, Members};

/// The table of a relation. Pages are shared with forks until they change.
pub(crate) struct Table {
    pages: Box<dyn AnyPages>,
    free_pages: Vec<u32>,
    map: KeyMap,
    /// The keys that have rows, collected on demand: [`Members`], or `None` if there are none.
    pub(crate) keys: OnceLock<Option<SharedRow>>,
    /// The number of cells with rows.
    pub(crate) present: usize,
}

impl Table {
    pub(crate) fn new(pages: Box<dyn AnyPages>) -> Self {
        Self { pages, free_pages: Vec::new(), map: KeyMap::new(), keys: OnceLock::new(), present: 0 }
    }

    /// Returns a copy that shares all pages.
    pub(crate) fn fork(&self) -> Self {
        Self {
            pages: self.pages.fork(),
            free_pages: self.free_pages.clone(),
            map: self.map.clone(),
            keys: self.keys.clone(),
            present: self.present,
        }
    }

    /// The table with the type of its keys.
    #[inline]
    pub(crate) fn typed<K: Key>(&self) -> Typed<'_, K> {
        match (&*self.pages as &dyn Any).downcast_ref() {
            Some(pages) => Typed { map: &self.map, pages },
            None => erased::wrong_type(),
        }
    }

    /// Finds the cell of a key.
    pub(crate) fn find(&self, graph: &Graph, key: &dyn AnyKey) -> Option<u32> {
        self.map.find(key.tag(), |cell| self.key(graph, cell).is_some_and(|other| other.is(key)))
    }

    /// A cell's key.
    pub(crate) fn key(&self, graph: &Graph, cell: u32) -> Option<&dyn AnyKey> {
        Some(self.pages.slot(graph.page(cell), cell)?.0)
    }

    /// A cell's row.
    pub(crate) fn row(&self, graph: &Graph, cell: u32) -> Option<&SharedRow> {
        self.pages.slot(graph.page(cell), cell)?.1
    }

    /// Replaces a cell's row, and returns the row before.
    pub(crate) fn replace(&mut self, graph: &Graph, cell: u32, row: Option<SharedRow>) -> Option<SharedRow> {
        let place = self.pages.row_mut(graph.page(cell), cell)?;
        self.present += usize::from(row.is_some());
        let before = std::mem::replace(place, row);
        self.present -= usize::from(before.is_some());
        before
    }

    /// Adds a cell without a row.
    pub(crate) fn add(&mut self, graph: &mut Graph, relation: usize, key: &dyn AnyKey) -> u32 {
        let cell = graph.allocate(relation, || match self.free_pages.pop() {
            Some(free) => free as usize,
            None => self.pages.len(),
        });
        self.map.insert(key.tag(), cell);
        self.pages.insert(graph.page(cell), cell, key);
        cell
    }

    /// Removes a cell, also from the graph.
    pub(crate) fn release(&mut self, graph: &mut Graph, cell: u32) {
        let page = graph.page(cell);
        let Some((key, row)) = self.pages.slot(page, cell) else { return };
        self.present -= usize::from(row.is_some());
        self.map.remove(key.tag(), cell);
        self.pages.remove(page, cell);
        graph.release(cell, |page| {
            self.pages.drop_page(page);
            self.free_pages.push(page as u32);
        });
    }

    /// Adds keys of this table to [`Members`] and removes others, see [`Members::edited`]. `None` stands for an empty
    /// list.
    pub(crate) fn edited(&self, members: Option<&SharedRow>, edits: &[(&dyn AnyKey, bool)]) -> Option<SharedRow> {
        self.pages.edited(members, edits)
    }

    /// The entries of [`Members`] that are keys of this table.
    pub(crate) fn members<'a>(&self, members: &'a SharedRow) -> Vec<&'a dyn AnyKey> {
        self.pages.members(members)
    }

    /// The bytes of the pages and of the map from keys to cells, without heap memory owned by keys and rows.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.pages.bytes(), self.map.bytes())
    }
}

/// A table with the type of its keys.
pub(crate) struct Typed<'a, K> {
    map: &'a KeyMap,
    pages: &'a Pages<K>,
}

impl<'a, K: Key> Typed<'a, K> {
    /// Finds the cell of a key.
    #[inline]
    pub(crate) fn find(&self, graph: &Graph, key: &K) -> Option<u32> {
        self.map.find(tag(key), |cell| self.pages.at(graph.page(cell), cell).is_some_and(|slot| slot.key == *key))
    }

    /// The key and the row of a cell on a page.
    #[inline]
    pub(crate) fn slot(&self, page: usize, cell: u32) -> Option<(&'a K, Option<&'a SharedRow>)> {
        self.pages.at(page, cell).map(|slot| (&slot.key, slot.row.as_ref()))
    }
}

/// A cell's key, and its row if it has one.
#[derive(Clone)]
struct Slot<K> {
    key: K,
    row: Option<SharedRow>,
}

type Page<K> = Arc<[Option<Slot<K>>; BLOCK]>;

/// The cells of all relations whose keys have this type are stored in such pages.
pub(crate) struct Pages<K>(Vec<Option<Page<K>>>);

impl<K: Key> Pages<K> {
    pub(crate) fn boxed() -> Box<dyn AnyPages> {
        Box::new(Self(Vec::new()))
    }

    #[inline]
    fn at(&self, page: usize, cell: u32) -> Option<&Slot<K>> {
        self.0[page].as_ref()?[cell as usize % BLOCK].as_ref()
    }

    fn place(&mut self, page: usize, cell: u32) -> &mut Option<Slot<K>> {
        let page = self.0[page].get_or_insert_with(|| Arc::new([const { None }; BLOCK]));
        &mut Arc::make_mut(page)[cell as usize % BLOCK]
    }
}

/// The pages of a table with keys of any type.
pub(crate) trait AnyPages: Any + Send + Sync {
    /// Returns a copy that shares all pages.
    fn fork(&self) -> Box<dyn AnyPages>;
    /// The number of pages, with those that were dropped.
    fn len(&self) -> usize;
    /// A cell's key and row.
    fn slot(&self, page: usize, cell: u32) -> Option<(&dyn AnyKey, Option<&SharedRow>)>;
    /// The place of a cell's row.
    fn row_mut(&mut self, page: usize, cell: u32) -> Option<&mut Option<SharedRow>>;
    /// Stores a key. If the page does not exist, it is the next one or one that was dropped.
    fn insert(&mut self, page: usize, cell: u32, key: &dyn AnyKey);
    /// Removes a key and its row.
    fn remove(&mut self, page: usize, cell: u32);
    /// Drops a page.
    fn drop_page(&mut self, page: usize);
    /// See [`Table::edited`].
    fn edited(&self, members: Option<&SharedRow>, edits: &[(&dyn AnyKey, bool)]) -> Option<SharedRow>;
    /// See [`Table::members`].
    fn members<'a>(&self, members: &'a SharedRow) -> Vec<&'a dyn AnyKey>;
    /// The memory size in bytes, without heap memory owned by keys and rows.
    fn bytes(&self) -> usize;
}

impl<K: Key> AnyPages for Pages<K> {
    fn fork(&self) -> Box<dyn AnyPages> {
        Box::new(Self(self.0.clone()))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn slot(&self, page: usize, cell: u32) -> Option<(&dyn AnyKey, Option<&SharedRow>)> {
        self.at(page, cell).map(|slot| (&slot.key as &dyn AnyKey, slot.row.as_ref()))
    }

    fn row_mut(&mut self, page: usize, cell: u32) -> Option<&mut Option<SharedRow>> {
        self.place(page, cell).as_mut().map(|slot| &mut slot.row)
    }

    fn insert(&mut self, page: usize, cell: u32, key: &dyn AnyKey) {
        if page == self.0.len() {
            self.0.push(None);
        }
        *self.place(page, cell) = Some(Slot { key: erased::key::<K>(key).clone(), row: None });
    }

    fn remove(&mut self, page: usize, cell: u32) {
        *self.place(page, cell) = None;
    }

    fn drop_page(&mut self, page: usize) {
        self.0[page] = None;
    }

    fn edited(&self, members: Option<&SharedRow>, edits: &[(&dyn AnyKey, bool)]) -> Option<SharedRow> {
        let none = Members::default();
        let before = members.map_or(&none, |row| erased::row::<Members<K>>(&**row));
        let after = before.edited(edits.iter().map(|(key, add)| (erased::key::<K>(*key), *add)));
        (!after.is_empty()).then(|| Arc::new(after) as SharedRow)
    }

    fn members<'a>(&self, members: &'a SharedRow) -> Vec<&'a dyn AnyKey> {
        let members: &dyn AnyRow = &**members;
        erased::row::<Members<K>>(members).iter().map(|key| key as &dyn AnyKey).collect()
    }

    fn bytes(&self) -> usize {
        let pages = self.0.iter().flatten().count() * (16 + size_of::<[Option<Slot<K>>; BLOCK]>());
        pages + self.0.capacity() * size_of::<Option<Page<K>>>()
    }
}
