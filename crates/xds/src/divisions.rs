//! Sets of names that were divided between a shared ledger and a proxy's own one.
//!
//! Proxies of one kind subscribe to the same names, so that the division of thousands of names is made once for them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::cells::LedgerId;
use crate::decode::Texts;
use crate::name_set::{Identity, NameSet};
use crate::subscription::Place;

/// The maximum number of known divisions. All are dropped when there would be more.
const DIVISIONS: usize = 4096;
/// The maximum number of known sets; the oldest are dropped first.
const SETS: usize = 32;

/// A place, and the serial number of its selection: another selection may be at this place later.
#[derive(Clone, Copy)]
pub(crate) struct Dated {
    pub(crate) place: Place,
    pub(crate) serial: u64,
}

/// The selections of a set: that of the shared ledger, and that of the own one.
pub(crate) type Division = [Dated; 2];

/// The latest divisions. They keep no selection open.
#[derive(Default)]
pub(crate) struct Divisions {
    known: FxHashMap<((LedgerId, LedgerId), Identity), Division>,
    sets: VecDeque<NameSet>,
}

impl Divisions {
    /// The selections of these names. They may not exist any more.
    pub(crate) fn find(&self, ledgers: (LedgerId, LedgerId), names: Identity) -> Option<Division> {
        self.known.get(&(ledgers, names)).copied()
    }

    pub(crate) fn note(&mut self, ledgers: (LedgerId, LedgerId), names: &NameSet, division: Division) {
        if self.known.len() >= DIVISIONS {
            self.known.clear();
        }
        self.known.insert((ledgers, names.identity()), division);
        if self.sets.iter().any(|known| known.identity() == names.identity()) {
            return;
        }
        if self.sets.len() >= SETS {
            self.sets.pop_front();
        }
        self.sets.push_back(names.clone());
    }

    /// The set of these names, if it was divided before.
    pub(crate) fn names(&self, names: &Texts) -> Option<&NameSet> {
        self.sets.iter().find(|set| set.is_set_of(names))
    }
}
