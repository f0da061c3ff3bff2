//! Cells that are read for the first time while rules run.
//!
//! Rules run on several threads and do not modify the tables. New cells are collected here: an absent key, or a view
//! that has no cell yet. The first reader derives the view; others wait for it. Between layers, one thread assigns
//! numbers to these cells in key order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Relation;
use crate::graph::FRESH;
use crate::keymap::{Found, tag};
use crate::order;
use crate::run::Derived;
use crate::slots::Slots;

const SHARDS: usize = 16;

/// Counts the cells that wait for a number, and records their relations, so that adoption skips all others.
pub(crate) struct Waiting {
    cells: AtomicU32,
    /// One bit per relation.
    relations: Box<[AtomicU64]>,
}

impl Waiting {
    pub(crate) fn new(relations: usize) -> Self {
        Self { cells: AtomicU32::new(0), relations: (0..relations.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a cell of a relation. Returns its stand-in until it has a number.
    fn add(&self, relation: usize) -> u32 {
        self.relations[relation / 64].fetch_or(1 << (relation % 64), Ordering::Relaxed);
        FRESH + self.cells.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of waiting cells and their relations, ascending, and resets both.
    pub(crate) fn take(&mut self) -> (u32, Vec<usize>) {
        let count = std::mem::take(self.cells.get_mut());
        let mut relations = Vec::new();
        for (at, bits) in self.relations.iter_mut().enumerate().filter(|_| count > 0) {
            let mut bits = std::mem::take(bits.get_mut());
            while bits != 0 {
                relations.push(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        (count, relations)
    }
}

/// A cell that has no number yet.
pub(crate) struct FreshCell<R: Relation> {
    /// Its stand-in in lists of reads.
    pub(crate) stand_in: u32,
    /// The result of deriving it; empty for an absent key.
    pub(crate) derived: OnceLock<Derived<R>>,
}

struct Shard<R: Relation> {
    /// From the hash of a key to its index in `cells`.
    places: Slots<Found>,
    cells: Vec<(R::Key, Arc<FreshCell<R>>)>,
}

/// The fresh cells of one relation.
pub(crate) struct Fresh<R: Relation> {
    shards: [Mutex<Shard<R>>; SHARDS],
}

impl<R: Relation> Fresh<R> {
    pub(crate) fn new() -> Self {
        let shard = || Mutex::new(Shard { places: Slots::new(), cells: Vec::new() });
        Self { shards: std::array::from_fn(|_| shard()) }
    }

    /// Returns the fresh cell of a key, and creates it if there is none.
    pub(crate) fn demand(&self, relation: usize, key: &R::Key, waiting: &Waiting) -> Arc<FreshCell<R>> {
        let tag = tag(key);
        // No rule runs under this lock, so the data of a poisoned lock is consistent.
        let mut shard = self.shards[tag as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let Shard { places, cells } = &mut *shard;
        if let Some(known) = places.find(tag, |found| cells[found.cell as usize].0 == *key) {
            return cells[known.cell as usize].1.clone();
        }
        let cell = Arc::new(FreshCell { stand_in: waiting.add(relation), derived: OnceLock::new() });
        places.insert(Found { tag, cell: cells.len() as u32 });
        cells.push((key.clone(), cell.clone()));
        cell
    }

    /// Takes all cells, in key order. No rule may run meanwhile.
    pub(crate) fn take(&mut self) -> Vec<(R::Key, Arc<FreshCell<R>>)> {
        let mut all = Vec::new();
        for shard in &mut self.shards {
            let shard = shard.get_mut().unwrap_or_else(PoisonError::into_inner);
            shard.places = Slots::new();
            all.append(&mut shard.cells);
        }
        order::sort(&mut all, |a, b| a.0.cmp(&b.0));
        all
    }
}
