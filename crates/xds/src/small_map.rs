//! A map for few entries in many places.

/// A map whose entries are in one allocation without spare room. A B-tree has room for eleven in its first node. Insertion and removal
/// cost by the number of entries, so that it is for maps that almost always have one or a few.
pub(crate) struct SmallMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> SmallMap<K, V> {
        SmallMap(Vec::new())
    }
}

impl<K: Ord, V> SmallMap<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(one, _)| one.cmp(key))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an entry, or replaces that of the key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                if self.0.len() == self.0.capacity() {
                    // Many entries get spare room, a first one none.
                    self.0.reserve_exact(1 + self.0.len() / 2);
                }
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    /// The entries, ascending by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The values, ascending by key.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Like a `BTreeMap`.
        #[test]
        fn entries_are_those_of_a_tree(steps in prop::collection::vec((any::<bool>(), 0..9u8, any::<u8>()), 0..40)) {
            let (mut small, mut tree) = (SmallMap::default(), BTreeMap::new());
            for (adds, key, value) in steps {
                if adds {
                    small.insert(key, value);
                    tree.insert(key, value);
                } else {
                    prop_assert_eq!(small.remove(&key), tree.remove(&key));
                }
                prop_assert!(small.iter().eq(&tree) && small.values().eq(tree.values()));
                prop_assert_eq!((small.get(&key), small.contains_key(&key)), (tree.get(&key), tree.contains_key(&key)));
                prop_assert_eq!(small.get_mut(&key), tree.get_mut(&key));
                prop_assert_eq!(small.is_empty(), tree.is_empty());
            }
            prop_assert!(small.into_values().eq(tree.into_values()));
        }
    }

    #[test]
    fn one_entry_has_no_spare_room() {
        let mut map = SmallMap::default();
        map.insert(1, 'a');
        assert_eq!(map.0.capacity(), 1);
    }
}
