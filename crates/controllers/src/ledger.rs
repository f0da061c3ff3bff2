//! What was handed out.

use std::collections::BTreeMap;

use crate::{Target, Write};

/// The writes that were handed out and are not known to have taken effect.
#[derive(Clone, Default, Debug)]
pub struct Ledger(BTreeMap<Target, Write>);

impl Ledger {
    /// What is to be handed out, when this is wanted of the target: nothing if nothing is wanted, or if the same was handed
    /// out already.
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

    /// What was handed out for this target.
    pub fn given(&self, target: &Target) -> Option<&Write> {
        self.0.get(target)
    }

    /// The target was seen in another version: what was handed out may be undone.
    pub fn forget(&mut self, target: &Target) {
        self.0.remove(target);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
