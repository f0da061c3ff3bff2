//! A small hash table with open addressing, used by the key map and by large sets of readers. Unlike the standard
//! tables, it takes four or eight bytes per entry, uses hashes that entries already have, and shrinks.

/// An entry: a plain value with its own hash, and one value that means "empty".
pub(crate) trait Entry: Copy {
    /// The value of an empty slot.
    const EMPTY: Self;
    /// Whether this is [`Entry::EMPTY`].
    fn is_empty(self) -> bool;
    /// The hash; it need not be mixed.
    fn hash(self) -> u32;
}

/// The table. Linear probing, deletion by back-shifting, and any capacity, so that growth can be gradual.
#[derive(Clone)]
pub(crate) struct Slots<E> {
    slots: Box<[E]>,
    len: usize,
}

impl<E: Entry> Default for Slots<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Entry> Slots<E> {
    /// Creates an empty table, which allocates nothing.
    pub(crate) fn new() -> Self {
        Self { slots: Box::new([]), len: 0 }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The memory size, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// All entries, in unspecified order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = E> + '_ {
        self.slots.iter().copied().filter(|e| !e.is_empty())
    }

    /// Returns the first entry with this hash for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is: impl FnMut(E) -> bool) -> Option<E> {
        self.place(hash, is).map(|at| self.slots[at])
    }

    /// Adds an entry that is not in the table.
    pub(crate) fn insert(&mut self, entry: E) {
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.resize((self.slots.len() * 3 / 2).max(4) + 1);
        }
        self.put(entry);
        self.len += 1;
    }

    /// Removes the first entry with this hash for which `is` holds. Returns whether there was one.
    pub(crate) fn remove(&mut self, hash: u32, is: impl FnMut(E) -> bool) -> bool {
        let Some(at) = self.place(hash, is) else { return false };
        self.close_gap(at);
        self.len -= 1;
        if self.slots.len() > 16 && self.len * 3 < self.slots.len() {
            self.resize(self.len * 3 / 2 + 1);
        }
        true
    }

    fn place(&self, hash: u32, mut is: impl FnMut(E) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let entry = self.slots[at];
            if entry.is_empty() {
                return None;
            }
            if entry.hash() == hash && is(entry) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    fn put(&mut self, entry: E) {
        let mut at = self.home(entry.hash());
        while !self.slots[at].is_empty() {
            at = self.after(at);
        }
        self.slots[at] = entry;
    }

    /// Empties `gap` and shifts the entries that follow to where a lookup finds them.
    fn close_gap(&mut self, mut gap: usize) {
        let mut at = self.after(gap);
        while !self.slots[at].is_empty() {
            let home = self.home(self.slots[at].hash());
            if self.distance(home, at) >= self.distance(gap, at) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.slots[gap] = E::EMPTY;
    }

    fn resize(&mut self, capacity: usize) {
        let old = std::mem::replace(&mut self.slots, vec![E::EMPTY; capacity].into());
        for entry in old.iter().filter(|e| !e.is_empty()) {
            self.put(*entry);
        }
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        // The upper bits of the product depend on all bits of the hash (Knuth's multiplier).
        let mixed = hash.wrapping_mul(0x9E37_79B1);
        ((u64::from(mixed) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A poor hash: many values share a home slot, so that deletion must shift across entries and the end.
    #[derive(Clone, Copy)]
    struct Poor(u32);

    impl Entry for Poor {
        const EMPTY: Self = Self(u32::MAX);
        fn is_empty(self) -> bool {
            self.0 == u32::MAX
        }
        fn hash(self) -> u32 {
            self.0 % 7
        }
    }

    #[test]
    fn behaves_like_a_set_under_random_edits() {
        let mut slots = Slots::new();
        let mut model = BTreeSet::new();
        let mut seed = 1u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = (seed >> 40) as u32 % 60;
            let entry = Poor(value);
            if seed >> 63 == 0 {
                if model.insert(value) {
                    slots.insert(entry);
                }
            } else {
                assert_eq!(slots.remove(entry.hash(), |e| e.0 == value), model.remove(&value));
            }
            assert_eq!(slots.len(), model.len());
            assert_eq!(slots.find(entry.hash(), |e| e.0 == value).is_some(), model.contains(&value));
        }
        let mut all: Vec<u32> = slots.iter().map(|e| e.0).collect();
        all.sort_unstable();
        assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn shrinks_when_emptied() {
        let mut slots = Slots::new();
        (0..1000).for_each(|v| slots.insert(Poor(v)));
        (0..1000).for_each(|v| assert!(slots.remove(Poor(v).hash(), |e| e.0 == v)));
        assert!(slots.bytes() <= 17 * 4, "{} bytes are left", slots.bytes());
    }
}
