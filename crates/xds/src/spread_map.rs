//! A hash map that never moves all of its entries at once.

use std::hash::{BuildHasher as _, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// The number of parts.
const PARTS: usize = 64;

/// A hash map in parts. Each part grows by itself, so that an insertion takes time in proportion to a part at the most. The growth of one
/// table with a million open cells held up all clients for 0.1 to 0.2 s.
pub(crate) struct SpreadMap<K, V>(Vec<FxHashMap<K, V>>);

impl<K: Eq + Hash, V> SpreadMap<K, V> {
    pub(crate) fn new() -> SpreadMap<K, V> {
        SpreadMap((0..PARTS).map(|_| FxHashMap::default()).collect())
    }

    /// The part of a key. A table uses the lowest and the highest bits of the hash itself.
    fn part(key: &K) -> usize {
        (FxBuildHasher.hash_one(key) >> 40) as usize % PARTS
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.0[Self::part(key)].get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0[Self::part(key)].get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.0[Self::part(&key)].insert(key, value);
    }

    /// The value of a key, which is added if it is not there.
    pub(crate) fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        self.0[Self::part(&key)].entry(key).or_insert_with(value)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.0[Self::part(key)].remove(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(FxHashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_spread_and_found() {
        let mut map = SpreadMap::new();
        for key in 0..64_000_u64 {
            *map.get_or_insert_with(key, || key) += 1;
        }
        assert!(map.0.iter().all(|part| (800..1_200).contains(&part.len())), "no part grows much more than others");
        assert_eq!(map.len(), 64_000);
        map.get_mut(&7).into_iter().for_each(|value| *value = 70);
        assert_eq!((map.get(&7), map.get(&8)), (Some(&70), Some(&9)));
        assert_eq!(map.remove(&8), Some(9));
        assert!(map.contains_key(&7) && !map.contains_key(&8) && map.len() == 63_999);
    }
}
