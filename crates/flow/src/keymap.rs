//! Maps a key's hash to its cell: an extendible hash table of small buckets.
//!
//! It stores no keys: a key is stored once, with its cell, and the caller compares. It grows by splitting one bucket at
//! a time, so that no insertion costs time proportional to the table. Forks share buckets until they change.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use rustc_hash::FxBuildHasher;

use crate::slots::{Entry, Slots};

/// A bucket with this many entries splits.
const FULL: usize = 512;
/// The directory has at most `SPREAD` entries per bucket and `DEEPEST` bits. A bucket that may not split grows instead,
/// so that colliding keys cannot inflate the directory.
const SPREAD: usize = 16;
const DEEPEST: u8 = 22;

/// The hash of a key. Not secret: colliding keys cost time, never correctness.
#[inline]
pub(crate) fn tag<K: Hash>(key: &K) -> u32 {
    let hash = FxBuildHasher.hash_one(key);
    // Both ends of the tag are used, so every bit must depend on the whole hash.
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

/// The map.
#[derive(Clone)]
pub(crate) struct KeyMap {
    /// The bucket for each value of a tag's lowest `depth` bits.
    directory: Vec<u32>,
    depth: u8,
    buckets: Vec<Arc<Bucket>>,
}

#[derive(Clone)]
struct Bucket {
    /// The number of lowest tag bits that its entries share.
    depth: u8,
    entries: Slots<Found>,
}

/// One key's tag and cell.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) tag: u32,
    pub(crate) cell: u32,
}

impl Entry for Found {
    const EMPTY: Self = Self { tag: 0, cell: u32::MAX };

    fn is_empty(self) -> bool {
        self.cell == u32::MAX
    }

    #[inline]
    fn hash(self) -> u32 {
        self.tag
    }
}

impl KeyMap {
    pub(crate) fn new() -> Self {
        Self { directory: vec![0], depth: 0, buckets: vec![Arc::new(Bucket { depth: 0, entries: Slots::new() })] }
    }

    /// Finds the cell with this tag for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, tag: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let entries = &self.buckets[self.bucket(tag)].entries;
        entries.find(tag, |e| is(e.cell)).map(|e| e.cell)
    }

    /// Adds a cell that is not in the map.
    pub(crate) fn insert(&mut self, tag: u32, cell: u32) {
        let mut at = self.bucket(tag);
        while self.buckets[at].entries.len() >= FULL && self.may_split(at) {
            self.split(at);
            at = self.bucket(tag);
        }
        Arc::make_mut(&mut self.buckets[at]).entries.insert(Found { tag, cell });
    }

    /// Removes a cell.
    pub(crate) fn remove(&mut self, tag: u32, cell: u32) {
        let at = self.bucket(tag);
        let removed = Arc::make_mut(&mut self.buckets[at]).entries.remove(tag, |e| e.cell == cell);
        debug_assert!(removed, "a cell is found under its key");
    }

    /// The memory size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let buckets = self.buckets.iter().map(|b| 16 + size_of::<Bucket>() + b.entries.bytes()).sum::<usize>();
        buckets + self.directory.capacity() * 4 + self.buckets.capacity() * 8
    }

    fn bucket(&self, tag: u32) -> usize {
        self.directory[(tag & ((1 << self.depth) - 1)) as usize] as usize
    }

    fn may_split(&self, at: usize) -> bool {
        let room = self.depth < DEEPEST && self.directory.len() <= SPREAD * self.buckets.len();
        room || self.buckets[at].depth < self.depth
    }

    /// Moves the entries whose next bit is set into a bucket of their own.
    fn split(&mut self, at: usize) {
        let depth = self.buckets[at].depth;
        if depth == self.depth {
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        let mut halves = [Slots::new(), Slots::new()];
        for entry in self.buckets[at].entries.iter() {
            halves[(entry.tag >> depth) as usize & 1].insert(entry);
        }
        let next = self.buckets.len() as u32;
        let [low, high] = halves.map(|entries| Arc::new(Bucket { depth: depth + 1, entries }));
        self.buckets[at] = low;
        self.buckets.push(high);
        for (bits, bucket) in self.directory.iter_mut().enumerate() {
            if *bucket as usize == at && (bits >> depth) & 1 == 1 {
                *bucket = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_inserted_entries_and_no_others() {
        let mut map = KeyMap::new();
        let keys: Vec<String> = (0..20_000).map(|n| format!("key-{n}")).collect();
        for (cell, key) in keys.iter().enumerate() {
            map.insert(tag(key), cell as u32);
        }
        let fork = map.clone();
        for (cell, key) in keys.iter().enumerate().filter(|(cell, _)| cell % 2 == 0) {
            map.remove(tag(key), cell as u32);
        }
        for (cell, key) in keys.iter().enumerate() {
            let find = |map: &KeyMap| map.find(tag(key), |c| keys[c as usize] == *key);
            assert_eq!(find(&fork), Some(cell as u32));
            assert_eq!(find(&map), (cell % 2 == 1).then_some(cell as u32));
        }
        assert!(map.buckets.iter().all(|b| b.entries.len() <= FULL));
        assert!(map.bytes() < fork.bytes());
    }

    #[test]
    fn the_caller_distinguishes_equal_tags() {
        let mut map = KeyMap::new();
        (0..2_000).for_each(|cell| map.insert(7, cell));
        assert_eq!(map.find(7, |c| c == 1_234), Some(1_234));
        map.remove(7, 1_234);
        assert_eq!(map.find(7, |c| c == 1_234), None);
        assert!(map.directory.len() <= 2 * SPREAD * map.buckets.len());
    }
}
