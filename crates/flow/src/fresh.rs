//! Cells that are read for the first time while rules run.
//!
//! Rules run on several threads and see the tables unchanged, so what they read and is not there is gathered here: an
//! absent key, or a view that nobody needed so far, which is derived at once by the first to ask while others wait for
//! it. Between layers, one thread gives these cells their real numbers in the order of their keys.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::Relation;
use crate::graph::FRESH;
use crate::keymap::{Found, tag};
use crate::order;
use crate::run::Derived;
use crate::slots::Slots;

const SHARDS: usize = 16;

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
    /// How many there are, so that it costs nothing to see that there are none.
    count: AtomicU32,
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
            count: AtomicU32::new(0),
            shards: std::array::from_fn(|_| shard()),
        }
    }

    /// The fresh cell of a key; `counter` numbers those that begin here.
    pub(crate) fn demand(&self, key: &R::Key, counter: &AtomicU32) -> Arc<FreshCell<R>> {
        let tag = tag(key);
        // No rule runs under this lock, so if it was poisoned, it holds whole data all the same.
        let mut shard = self.shards[tag as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Shard { places, cells } = &mut *shard;
        if let Some(known) = places.find(tag, |found| cells[found.cell as usize].0 == *key) {
            return cells[known.cell as usize].1.clone();
        }
        let stand_in = FRESH + counter.fetch_add(1, Ordering::Relaxed);
        let cell = Arc::new(FreshCell {
            stand_in,
            derived: OnceLock::new(),
        });
        places.insert(Found {
            tag,
            cell: cells.len() as u32,
        });
        cells.push((key.clone(), cell.clone()));
        self.count.fetch_add(1, Ordering::Relaxed);
        cell
    }

    /// Takes all of them, in the order of their keys. No rule runs meanwhile.
    pub(crate) fn take(&mut self) -> Vec<(R::Key, Arc<FreshCell<R>>)> {
        if std::mem::take(self.count.get_mut()) == 0 {
            return Vec::new();
        }
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
