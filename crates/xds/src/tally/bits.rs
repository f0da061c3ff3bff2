//! Sets of streams.

/// A set of small numbers, all below a bound.
#[derive(Clone, Debug)]
pub(super) struct Bits(Box<[u64]>);

impl Bits {
    /// The empty set of numbers below `bound`.
    pub(super) fn new(bound: usize) -> Bits {
        Bits(vec![0; bound.div_ceil(64)].into())
    }

    pub(super) fn insert(&mut self, number: u32) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }

    pub(super) fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    pub(super) fn subtract(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, less)| *word &= !less);
    }

    pub(super) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The number of words: the cost of a pass over it.
    pub(super) fn words(&self) -> usize {
        self.0.len()
    }
}

/// Numbers that are added to sets repeatedly; a list if that is shorter.
#[derive(Debug)]
pub(super) enum Members {
    Few(Vec<u32>),
    Many(Bits),
}

impl Members {
    pub(super) fn new(numbers: Vec<u32>, bound: usize) -> Members {
        let mut all = Bits::new(bound);
        if numbers.len() <= all.words() {
            return Members::Few(numbers);
        }
        numbers.into_iter().for_each(|number| all.insert(number));
        Members::Many(all)
    }

    pub(super) fn add_to(&self, set: &mut Bits) {
        match self {
            Members::Few(numbers) => numbers.iter().for_each(|number| set.insert(*number)),
            Members::Many(all) => set.add(all),
        }
    }
}
