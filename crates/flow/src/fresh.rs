//! Cells that are read for the first time while rules run.
//!
//! Rules run on several threads and see the tables unchanged, so what they read and is not there is gathered here: an
//! absent key, or a view that nobody needed so far, which is derived at once by the first to ask while others wait for
//! it. Between layers, one thread gives these cells their real numbers in the order of their keys.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Relation;
use crate::graph::FRESH;
use crate::keymap::{Found, tag};
use crate::order;
use crate::run::Derived;
use crate::slots::Slots;

const SHARDS: usize = 16;

/// How many cells wait for their numbers, and of which relations: there are more than a hundred, and most that is opened
/// makes new cells of a few.
pub(crate) struct Waiting {
    cells: AtomicU32,
    /// A bit for each relation.
    relations: Box<[AtomicU64]>,
}

impl Waiting {
    pub(crate) fn new(relations: usize) -> Self {
        Self {
            cells: AtomicU32::new(0),
            relations: (0..relations.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Counts a cell of a relation; what stands for it until it has a number.
    fn add(&self, relation: usize) -> u32 {
        self.relations[relation / 64].fetch_or(1 << (relation % 64), Ordering::Relaxed);
        FRESH + self.cells.fetch_add(1, Ordering::Relaxed)
    }

    /// How many there were, and of which relations, ascending. None wait any more.
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
    /// What stands for it in lists of reads until it has one.
    pub(crate) stand_in: u32,
    /// What a view came out as; empty for an absent key.
    pub(crate) derived: OnceLock<Derived<R>>,
}

struct Shard<R: Relation> {
    /// From the hash of a key to its place among the cells.
    places: Slots<Found>,
    cells: Vec<(R::Key, Arc<FreshCell<R>>)>,
}

/// The fresh cells of one relation.
pub(crate) struct Fresh<R: Relation> {
    shards: [Mutex<Shard<R>>; SHARDS],
}

impl<R: Relation> Fresh<R> {
    pub(crate) fn new() -> Self {
        let shard = || {
            Mutex::new(Shard {
                places: Slots::new(),
                cells: Vec::new(),
            })
        };
        Self {
            shards: std::array::from_fn(|_| shard()),
        }
    }

    /// The fresh cell of a key of this relation, which waits if it begins here.
    pub(crate) fn demand(&self, relation: usize, key: &R::Key, waiting: &Waiting) -> Arc<FreshCell<R>> {
        let tag = tag(key);
        // No rule runs under this lock, so if it was poisoned, it holds whole data all the same.
        let mut shard = self.shards[tag as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Shard { places, cells } = &mut *shard;
        if let Some(known) = places.find(tag, |found| cells[found.cell as usize].0 == *key) {
            return cells[known.cell as usize].1.clone();
        }
        let cell = Arc::new(FreshCell {
            stand_in: waiting.add(relation),
            derived: OnceLock::new(),
        });
        places.insert(Found {
            tag,
            cell: cells.len() as u32,
        });
        cells.push((key.clone(), cell.clone()));
        cell
    }

    /// Takes all of them, in the order of their keys. No rule runs meanwhile.
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
