//! A sorted list of keys that is cheap to share: the row of an index, and the key set of a relation.

use std::fmt;
use std::ops::Deref;
use std::slice::Iter;
use std::sync::Arc;

/// Unique keys in ascending order. Clones share the list.
pub struct Members<K>(Arc<[K]>);

impl<K: Ord> Members<K> {
    /// Sorts `keys` and removes duplicates.
    pub fn new(mut keys: Vec<K>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        Self(keys.into())
    }

    /// Whether `key` is in the list, by binary search.
    pub fn contains(&self, key: &K) -> bool {
        self.0.binary_search(key).is_ok()
    }
}

impl<K: Ord + Clone> Members<K> {
    /// Applies edits: `(key, true)` adds a key, `(key, false)` removes it. Edits are ascending with at most one per
    /// key. Takes one pass over both lists.
    pub(crate) fn edited<'a>(&self, edits: impl IntoIterator<Item = (&'a K, bool)>) -> Self
    where
        K: 'a,
    {
        let mut rest = self.0.iter().peekable();
        let mut merged = Vec::with_capacity(self.len() + 1);
        for (key, add) in edits {
            while let Some(kept) = rest.next_if(|old| *old < key) {
                merged.push(kept.clone());
            }
            rest.next_if(|old| *old == key);
            if add {
                merged.push(key.clone());
            }
        }
        merged.extend(rest.cloned());
        Self(merged.into())
    }
}

impl<K> Deref for Members<K> {
    type Target = [K];

    fn deref(&self) -> &[K] {
        &self.0
    }
}

impl<K> Clone for Members<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for Members<K> {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl<K: PartialEq> PartialEq for Members<K> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl<K: Eq> Eq for Members<K> {}

impl<K: fmt::Debug> fmt::Debug for Members<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl<K: Ord> FromIterator<K> for Members<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self::new(keys.into_iter().collect())
    }
}

impl<'a, K> IntoIterator for &'a Members<K> {
    type Item = &'a K;
    type IntoIter = Iter<'a, K>;

    fn into_iter(self) -> Iter<'a, K> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_keep_the_order_and_count_once() {
        let before = Members::new(vec![5, 1, 3, 3]);
        assert_eq!(&*before, &[1, 3, 5]);
        let after = before.edited([(&0, true), (&1, false), (&3, true), (&4, false), (&9, true)]);
        assert_eq!(&*after, &[0, 3, 5, 9]);
        assert!(after.contains(&9) && !after.contains(&1));
    }
}
