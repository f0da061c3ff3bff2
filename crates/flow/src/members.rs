//! A sorted list of keys that is cheap to share and to edit: the row of an index, and the key set of a relation.

use std::fmt;
use std::iter::FlatMap;
use std::sync::Arc;

/// The number of keys in a block of a new list. A block that grows to twice as many is divided.
const BLOCK: usize = 128;

/// Unique keys in ascending order. Clones share the list. Edited lists share the blocks of keys that did not change, so that an edit
/// of a list with thousands of keys costs little.
pub struct Members<K>(List<K>);

enum List<K> {
    /// One block. It may be empty.
    Few(Arc<[K]>),
    Many(Arc<Blocks<K>>),
}

struct Blocks<K> {
    /// At least two. None is empty.
    blocks: Box<[Arc<[K]>]>,
    len: usize,
}

impl<K> Members<K> {
    /// The number of keys.
    pub fn len(&self) -> usize {
        match &self.0 {
            List::Few(keys) => keys.len(),
            List::Many(many) => many.len,
        }
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lowest key.
    pub fn first(&self) -> Option<&K> {
        self.blocks().first()?.first()
    }

    /// The highest key.
    pub fn last(&self) -> Option<&K> {
        self.blocks().last()?.last()
    }

    /// The keys in ascending order.
    pub fn iter(&self) -> Iter<'_, K> {
        self.blocks().iter().flat_map(|block| block.iter())
    }

    /// The keys from the first one that is not before what is looked for. All keys for which `is_before` is true precede the others.
    pub fn iter_from(&self, is_before: impl Fn(&K) -> bool) -> impl Iterator<Item = &K> {
        let blocks = self.blocks();
        let at = blocks.partition_point(|block| block.last().is_none_or(&is_before));
        let (first, rest) = blocks
            .get(at..)
            .and_then(<[_]>::split_first)
            .map_or((&[][..], &[][..]), |(first, rest)| (&first[first.partition_point(&is_before)..], rest));
        first.iter().chain(rest.iter().flat_map(|block| block.iter()))
    }

    /// Copies of the keys.
    pub fn to_vec(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut keys = Vec::with_capacity(self.len());
        keys.extend(self.iter().cloned());
        keys
    }

    fn blocks(&self) -> &[Arc<[K]>] {
        match &self.0 {
            List::Few(keys) => std::slice::from_ref(keys),
            List::Many(many) => &many.blocks,
        }
    }

    fn of_blocks(mut blocks: Vec<Arc<[K]>>) -> Self {
        if blocks.len() < 2 {
            return blocks.pop().map(List::Few).map(Members).unwrap_or_default();
        }
        let len = blocks.iter().map(|block| block.len()).sum();
        Members(List::Many(Arc::new(Blocks { blocks: blocks.into(), len })))
    }
}

impl<K: Ord> Members<K> {
    /// Sorts `keys` and removes duplicates.
    pub fn new(mut keys: Vec<K>) -> Self {
        keys.sort_unstable();
        keys.dedup();
        if keys.len() < 2 * BLOCK {
            return Members(List::Few(keys.into()));
        }
        let (mut blocks, mut rest) = (Vec::with_capacity(keys.len().div_ceil(BLOCK)), keys.into_iter());
        while rest.len() > 0 {
            blocks.push(rest.by_ref().take(BLOCK).collect());
        }
        Self::of_blocks(blocks)
    }

    /// Whether `key` is in the list, by binary search.
    pub fn contains(&self, key: &K) -> bool {
        let blocks = self.blocks();
        let at = blocks.partition_point(|block| block.last().is_some_and(|last| last < key));
        blocks.get(at).is_some_and(|block| block.binary_search(key).is_ok())
    }
}

impl<K: Ord + Clone> Members<K> {
    /// Applies edits: `(key, true)` adds a key, `(key, false)` removes it. Edits are ascending with at most one per
    /// key. Blocks without edits are shared.
    pub(crate) fn edited<'a>(&self, edits: impl IntoIterator<Item = (&'a K, bool)>) -> Self
    where
        K: 'a,
    {
        let mut edits = edits.into_iter().peekable();
        let before = self.blocks();
        let mut blocks: Vec<Arc<[K]>> = Vec::with_capacity(before.len() + 1);
        for (at, block) in before.iter().enumerate() {
            // The last block also takes what is higher than all keys.
            let is_last = at + 1 == before.len();
            let last = block.last();
            let is_here = |(key, _): &(&K, bool)| is_last || last.is_some_and(|last| *key <= last);
            if edits.peek().is_some_and(is_here) {
                put(&mut blocks, merged(block, std::iter::from_fn(|| edits.next_if(is_here))));
            } else {
                blocks.push(block.clone());
            }
        }
        Self::of_blocks(blocks)
    }
}

/// The keys of a block after edits.
fn merged<'a, K: Ord + Clone + 'a>(block: &[K], edits: impl Iterator<Item = (&'a K, bool)>) -> Vec<K> {
    let mut rest = block.iter().peekable();
    let mut merged = Vec::with_capacity(block.len() + 1);
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
    merged
}

/// Adds keys as blocks. Joins few keys with the block before, so that removals leave no chain of small blocks.
fn put<K: Clone>(blocks: &mut Vec<Arc<[K]>>, mut keys: Vec<K>) {
    if keys.is_empty() {
        return;
    }
    if keys.len() < BLOCK / 4
        && let Some(before) = blocks.pop_if(|before| before.len() < BLOCK)
    {
        keys = before.iter().cloned().chain(keys).collect();
    }
    if keys.len() < 2 * BLOCK {
        return blocks.push(keys.into());
    }
    blocks.extend(keys.chunks(BLOCK).map(Arc::from));
}

/// The keys of [`Members`], in ascending order.
pub type Iter<'a, K> =
    FlatMap<std::slice::Iter<'a, Arc<[K]>>, std::slice::Iter<'a, K>, fn(&'a Arc<[K]>) -> std::slice::Iter<'a, K>>;

impl<K> Clone for Members<K> {
    fn clone(&self) -> Self {
        Members(match &self.0 {
            List::Few(keys) => List::Few(keys.clone()),
            List::Many(many) => List::Many(many.clone()),
        })
    }
}

impl<K> Default for Members<K> {
    fn default() -> Self {
        Members(List::Few(Arc::new([])))
    }
}

impl<K: PartialEq> PartialEq for Members<K> {
    fn eq(&self, other: &Self) -> bool {
        let is_shared = |(one, other): (&Arc<[K]>, &Arc<[K]>)| Arc::ptr_eq(one, other);
        let (mine, theirs) = (self.blocks(), other.blocks());
        let all_shared = mine.len() == theirs.len() && mine.iter().zip(theirs).all(is_shared);
        all_shared || self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Eq> Eq for Members<K> {}

impl<K: fmt::Debug> fmt::Debug for Members<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
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
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn edits_keep_the_order_and_count_once() {
        let before = Members::new(vec![5, 1, 3, 3]);
        assert_eq!(before.to_vec(), [1, 3, 5]);
        let after = before.edited([(&0, true), (&1, false), (&3, true), (&4, false), (&9, true)]);
        assert_eq!(after.to_vec(), [0, 3, 5, 9]);
        assert!(after.contains(&9) && !after.contains(&1));
    }

    #[test]
    fn an_edit_shares_the_other_blocks() {
        let before: Members<u32> = (0..10_000).collect();
        let after = before.edited([(&5_000, false), (&20_000, true)]);
        let shared = |block: &&Arc<[u32]>| before.blocks().iter().any(|other| Arc::ptr_eq(block, other));
        assert_eq!(after.blocks().iter().filter(shared).count(), before.blocks().len() - 2);
        assert_eq!((after.len(), after.first(), after.last()), (10_000, Some(&0), Some(&20_000)));
    }

    proptest! {
        #[test]
        fn a_list_behaves_like_a_set(
            first in prop::collection::btree_set(0..2_000_u32, 0..900),
            edits in prop::collection::vec(prop::collection::btree_map(0..2_000_u32, any::<bool>(), 0..400), 0..8),
        ) {
            let (mut members, mut set) = (first.iter().copied().collect::<Members<u32>>(), first);
            for edits in edits {
                members = members.edited(edits.iter().map(|(key, add)| (key, *add)));
                let (added, removed): (BTreeMap<u32, bool>, _) = edits.into_iter().partition(|(_, add)| *add);
                set.extend(added.into_keys());
                let removed: BTreeSet<u32> = removed.into_keys().collect();
                set.retain(|key| !removed.contains(key));
                prop_assert!(members.iter().eq(&set) && members.iter().rev().eq(set.iter().rev()));
                prop_assert_eq!((members.len(), members.is_empty()), (set.len(), set.is_empty()));
                prop_assert_eq!((members.first(), members.last()), (set.first(), set.last()));
                for from in [0, 700, 1_999] {
                    prop_assert!(members.iter_from(|key| *key < from).eq(set.range(from..)));
                }
                prop_assert_eq!(&members, &set.iter().copied().collect());
                prop_assert!((0..2_000).all(|key| members.contains(&key) == set.contains(&key)));
                let blocks = members.blocks();
                prop_assert!(blocks.len() < 2 || blocks.iter().all(|block| (1..2 * BLOCK).contains(&block.len())));
                let (mut both, mut ends) = (members.iter(), Vec::new());
                while let (Some(front), back) = (both.next(), both.next_back()) {
                    ends.extend([Some(front), back]);
                }
                prop_assert_eq!(ends.iter().flatten().count(), set.len());
            }
        }
    }
}
