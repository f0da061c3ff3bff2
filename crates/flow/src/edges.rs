//! The two ends of an edge: the cells that a cell reads, and the cells that read it.
//!
//! Most cells have one or two of each, stored inline; wide tables have thousands. Both are cheap to clone, so that
//! forks share them.

use std::sync::Arc;

use crate::slots::{Entry, Slots};

const NONE: u32 = u32::MAX;
const NO_FEW: [u32; 2] = [NONE; 2];

/// The cells that a cell reads, unique, in the order of the first read.
#[derive(Clone)]
pub(crate) enum Edges {
    /// At most two; unused slots are `NONE`.
    Few([u32; 2]),
    /// Three or more.
    Many(Arc<[u32]>),
}

impl Edges {
    pub(crate) const EMPTY: Self = Self::Few(NO_FEW);

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::Few(few) => few_slice(few),
            Self::Many(many) => many,
        }
    }

    /// The bytes outside of the cell.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Few(_) => 0,
            Self::Many(many) => 16 + size_of_val(&**many),
        }
    }
}

impl From<&[u32]> for Edges {
    fn from(cells: &[u32]) -> Self {
        match *cells {
            [] => Self::EMPTY,
            [a] => Self::Few([a, NONE]),
            [a, b] => Self::Few([a, b]),
            _ => Self::Many(cells.into()),
        }
    }
}

/// The cells that read a cell, unique and unordered. Adding or removing a reader takes constant time.
#[derive(Clone)]
pub(crate) enum Readers {
    /// At most two; unused slots are `NONE`.
    Few([u32; 2]),
    /// Three or more.
    Many(Arc<Slots<u32>>),
}

impl Readers {
    pub(crate) const EMPTY: Self = Self::Few(NO_FEW);

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few_slice(few).len(),
            Self::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes outside of the cell.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Few(_) => 0,
            Self::Many(many) => 16 + size_of::<Slots<u32>>() + many.bytes(),
        }
    }

    pub(crate) fn for_each(&self, mut f: impl FnMut(u32)) {
        match self {
            Self::Few(few) => few_slice(few).iter().copied().for_each(f),
            Self::Many(many) => many.iter().for_each(&mut f),
        }
    }

    pub(crate) fn contains(&self, cell: u32) -> bool {
        match self {
            Self::Few(few) => few.contains(&cell),
            Self::Many(many) => many.find(cell.hash(), |e| e == cell).is_some(),
        }
    }

    /// Adds a reader that is not in the set.
    pub(crate) fn insert(&mut self, cell: u32) {
        debug_assert!(!self.contains(cell), "an edge is recorded once");
        match self {
            Self::Few(few) => match few.iter().position(|c| *c == NONE) {
                Some(free) => few[free] = cell,
                None => {
                    let mut many = Slots::new();
                    few.iter().copied().chain([cell]).for_each(|c| many.insert(c));
                    *self = Self::Many(Arc::new(many));
                }
            },
            Self::Many(many) => Arc::make_mut(many).insert(cell),
        }
    }

    /// Removes a reader. Returns whether it was in the set.
    pub(crate) fn remove(&mut self, cell: u32) -> bool {
        match self {
            Self::Few(few) => {
                let Some(at) = few.iter().position(|c| *c == cell) else {
                    return false;
                };
                few[at] = few[1];
                few[1] = NONE;
                true
            }
            Self::Many(many) => {
                let many = Arc::make_mut(many);
                let was = many.remove(cell.hash(), |e| e == cell);
                if many.len() <= 2 {
                    let mut few = NO_FEW;
                    many.iter().zip(&mut few).for_each(|(from, to)| *to = from);
                    *self = Self::Few(few);
                }
                was
            }
        }
    }
}

impl Entry for u32 {
    const EMPTY: Self = NONE;

    fn is_empty(self) -> bool {
        self == NONE
    }

    #[inline]
    fn hash(self) -> u32 {
        self
    }
}

/// Calls `added` and `removed` for the difference between two lists without duplicates.
///
/// Only the middle is sorted; the common prefix and suffix cost one comparison per entry. So one more read among ten
/// thousand is not ten thousand changes.
pub(crate) fn difference(old: &[u32], new: &[u32], mut added: impl FnMut(u32), mut removed: impl FnMut(u32)) {
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (mut old, mut new) = (old[..old.len() - tail].to_vec(), new[..new.len() - tail].to_vec());
    old.sort_unstable();
    new.sort_unstable();
    new.iter().filter(|c| old.binary_search(c).is_err()).for_each(|c| added(*c));
    old.iter().filter(|c| new.binary_search(c).is_err()).for_each(|c| removed(*c));
}

/// Removes duplicates and keeps the first occurrence of each cell.
pub(crate) fn keep_first(cells: &mut Vec<u32>) {
    if cells.len() <= 16 {
        let mut kept = 0;
        for at in 0..cells.len() {
            if !cells[..kept].contains(&cells[at]) {
                cells[kept] = cells[at];
                kept += 1;
            }
        }
        cells.truncate(kept);
        return;
    }
    let mut seen = Slots::new();
    cells.retain(|cell| {
        let fresh = seen.find(cell.hash(), |e: u32| e == *cell).is_none();
        if fresh {
            seen.insert(*cell);
        }
        fresh
    });
}

fn few_slice(few: &[u32; 2]) -> &[u32] {
    let len = few.iter().take_while(|c| **c != NONE).count();
    &few[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_of_an_edge_takes_sixteen_bytes() {
        assert_eq!(size_of::<Edges>(), 16);
        assert_eq!(size_of::<Readers>(), 16);
    }

    #[test]
    fn readers_grow_and_shrink() {
        let mut readers = Readers::EMPTY;
        (0..100).for_each(|c| readers.insert(c));
        assert_eq!(readers.len(), 100);
        for cell in 0..99 {
            assert!(readers.remove(cell));
            assert!(!readers.remove(cell));
        }
        assert!(readers.contains(99));
        assert_eq!(readers.bytes(), 0, "one reader fits beside the cell again");
        assert!(readers.remove(99) && readers.is_empty());
    }

    #[test]
    fn difference_is_exact() {
        let check = |old: &[u32], new: &[u32], more: &[u32], less: &[u32]| {
            let (mut added, mut removed) = (Vec::new(), Vec::new());
            difference(old, new, |c| added.push(c), |c| removed.push(c));
            assert_eq!((added.as_slice(), removed.as_slice()), (more, less), "{old:?} to {new:?}");
        };
        check(&[], &[1, 2], &[1, 2], &[]);
        check(&[1, 2, 3], &[1, 9, 2, 3], &[9], &[]);
        check(&[1, 2, 3], &[3, 2, 1], &[], &[]);
        check(&[1, 2, 3, 4], &[1, 4], &[], &[2, 3]);
        check(&[5, 1], &[1, 6], &[6], &[5]);
    }

    #[test]
    fn keep_first_keeps_the_order_of_first_reads() {
        let mut few = vec![3, 1, 3, 2, 1];
        keep_first(&mut few);
        assert_eq!(few, [3, 1, 2]);
        let mut many: Vec<u32> = (0..50).rev().chain(0..60).collect();
        keep_first(&mut many);
        assert_eq!(many, (0..50).rev().chain(50..60).collect::<Vec<_>>());
    }
}
