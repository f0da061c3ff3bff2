//! Cells that are read for the first time while rules run.
//!
//! Rules run on several threads and do not modify the tables. New cells are collected here: an absent key, or a view
//! that has no cell yet. The first reader derives the view; others wait for it. Between layers, one thread assigns
//! numbers to these cells, by relation and in key order.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::erased::AnyKey;
use crate::graph::FRESH;
use crate::keymap::Found;
use crate::run::Derived;
use crate::slots::Slots;

const SHARDS: usize = 16;

/// A cell that has no number yet.
pub(crate) struct FreshCell {
    pub(crate) relation: usize,
    pub(crate) key: Box<dyn AnyKey>,
    /// Its stand-in in lists of reads.
    pub(crate) stand_in: u32,
    /// The result of deriving it; empty for an absent key.
    pub(crate) derived: OnceLock<Derived>,
}

#[derive(Default)]
struct Shard {
    /// From the hash of a key to its index in `cells`.
    places: Slots<Found>,
    cells: Vec<Arc<FreshCell>>,
}

/// The fresh cells of all relations.
#[derive(Default)]
pub(crate) struct Fresh {
    count: AtomicU32,
    shards: [Mutex<Shard>; SHARDS],
}

impl Fresh {
    /// Returns the fresh cell of a key, and creates it if there is none.
    pub(crate) fn demand(&self, relation: usize, key: &dyn AnyKey) -> Arc<FreshCell> {
        let tag = key.tag();
        // No rule runs under this lock, so the data of a poisoned lock is consistent.
        let mut shard = self.shards[tag as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let Shard { places, cells } = &mut *shard;
        let is = |found: Found| {
            let cell = &cells[found.cell as usize];
            cell.relation == relation && cell.key.is(key)
        };
        if let Some(known) = places.find(tag, is) {
            return cells[known.cell as usize].clone();
        }
        let stand_in = FRESH + self.count.fetch_add(1, Ordering::Relaxed);
        let cell = Arc::new(FreshCell { relation, key: key.boxed(), stand_in, derived: OnceLock::new() });
        places.insert(Found { tag, cell: cells.len() as u32 });
        cells.push(cell.clone());
        cell
    }

    /// Takes all cells, by relation and in key order. No rule may run meanwhile.
    pub(crate) fn take(&mut self) -> Vec<Arc<FreshCell>> {
        if std::mem::take(self.count.get_mut()) == 0 {
            return Vec::new();
        }
        let mut all = Vec::new();
        for shard in &mut self.shards {
            let shard = std::mem::take(shard.get_mut().unwrap_or_else(PoisonError::into_inner));
            all.extend(shard.cells);
        }
        all.sort_unstable_by(|a, b| a.relation.cmp(&b.relation).then_with(|| a.key.order(&*b.key)));
        all
    }
}
