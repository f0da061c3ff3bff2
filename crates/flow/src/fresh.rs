//! Cells that are read for the first time while rules run.
//!
//! Rules run on several threads and see the tables unchanged, so what they read and is not there is gathered here: an
//! absent key, or a view that nobody needed so far, which is derived at once by the first to ask while others wait for
//! it. Between layers, one thread gives these cells their real numbers in the order of their keys.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use crate::Relation;
use crate::graph::FRESH;
use crate::keymap::tag;
use crate::run::Derived;

const SHARDS: usize = 16;

/// A cell that has no number yet.
pub(crate) struct FreshCell<R: Relation> {
    /// What stands for it in lists of reads until it has one.
    pub(crate) stand_in: u32,
    /// What a view came out as; empty for an absent key.
    pub(crate) derived: OnceLock<Derived<R>>,
}

type Shard<R> = FxHashMap<<R as Relation>::Key, Arc<FreshCell<R>>>;

/// The fresh cells of one relation.
pub(crate) struct Fresh<R: Relation> {
    /// How many there are, so that it costs nothing to see that there are none.
    count: AtomicU32,
    shards: [Mutex<Shard<R>>; SHARDS],
}

impl<R: Relation> Fresh<R> {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// The fresh cell of a key; `counter` numbers those that begin here.
    pub(crate) fn demand(&self, key: &R::Key, counter: &AtomicU32) -> Arc<FreshCell<R>> {
        let mut shard = lock(&self.shards[tag(key) as usize % SHARDS]);
        if let Some(known) = shard.get(key) {
            return known.clone();
        }
        let stand_in = FRESH + counter.fetch_add(1, Ordering::Relaxed);
        let cell = Arc::new(FreshCell {
            stand_in,
            derived: OnceLock::new(),
        });
        shard.insert(key.clone(), cell.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        cell
    }

    /// Takes all of them, in the order of their keys. No rule runs meanwhile.
    pub(crate) fn take(&mut self) -> Vec<(R::Key, Arc<FreshCell<R>>)> {
        if std::mem::take(self.count.get_mut()) == 0 {
            return Vec::new();
        }
        let shards = self
            .shards
            .iter_mut()
            .map(|shard| shard.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<_> = shards.flat_map(std::mem::take).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

/// No rule runs under these locks, so one that was poisoned holds whole data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
