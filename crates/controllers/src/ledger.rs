//! The writes that a controller has returned.

use std::collections::BTreeMap;

use crate::{Target, Write};

/// The writes that were returned and are not known to have taken effect.
#[derive(Clone, Default, Debug)]
pub struct Ledger(BTreeMap<Target, Write>);

impl Ledger {
    /// The write to return for a target: `None` if none is needed or an equal one was returned already.
    pub fn settle(&mut self, target: &Target, wanted: Option<Write>) -> Option<Write> {
        match wanted {
            None => {
                self.0.remove(target);
                None
            }
            Some(wanted) if self.0.get(target) == Some(&wanted) => None,
            Some(wanted) => {
                self.0.insert(target.clone(), wanted.clone());
                Some(wanted)
            }
        }
    }

    /// The last write that was returned for a target.
    pub fn given(&self, target: &Target) -> Option<&Write> {
        self.0.get(target)
    }

    /// Drops the entry of a target that was observed in another version, since its write may have been undone.
    pub fn forget(&mut self, target: &Target) {
        self.0.remove(target);
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
