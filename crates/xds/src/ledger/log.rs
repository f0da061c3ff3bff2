//! The latest changes of a ledger.

use std::collections::VecDeque;

use crate::{Epoch, Name};

/// The latest changes in order. Finds the changes since a recent epoch without a scan of all names.
pub(crate) struct Log {
    /// The log is complete after this epoch.
    pub(crate) floor: Epoch,
    pub(crate) changes: VecDeque<(Epoch, Name)>,
}

/// The maximum number of changes. A scan of all names is as fast as a longer log.
const LOGGED: usize = 4096;

impl Log {
    pub(crate) fn push(&mut self, epoch: Epoch, name: Name) {
        if self.changes.len() == LOGGED
            && let Some((oldest, _)) = self.changes.pop_front()
        {
            self.floor = oldest;
        }
        self.changes.push_back((epoch, name));
    }

    /// Names that changed after `from`; `None` if the log does not reach back so far.
    pub(crate) fn since(&self, from: Epoch) -> Option<impl Iterator<Item = &Name>> {
        let after = move |(epoch, _): &&(Epoch, Name)| *epoch > from;
        (from >= self.floor).then(|| self.changes.iter().rev().take_while(after).map(|(_, name)| name))
    }
}
