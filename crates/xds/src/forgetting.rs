//! Drops cached responses that no stream has used for some time. Thousands of proxies have ledgers of their own, so that the
//! ledgers are searched in several steps.

use crate::cells::LedgerId;
use crate::core::Core;
use crate::{Moment, Origin};

/// So many ledgers are searched in one step.
const LEDGERS_TOGETHER: usize = 512;

/// A search of all ledgers for unused responses.
pub(crate) struct Forgetting {
    at: Moment,
    /// The ledgers from this one on were not searched.
    from: LedgerId,
    /// Whether others remain in those that were.
    remain: bool,
}

impl Forgetting {
    /// A search that begins at this time.
    pub(crate) fn begin(at: Moment) -> Forgetting {
        Forgetting { at, from: 0, remain: false }
    }

    /// When the next step is due.
    pub(crate) fn at(&self) -> Moment {
        self.at
    }
}

impl<O: Origin> Core<O> {
    /// Does a step of a search. Responses that were not used since the last search are moved to where they are dropped one by
    /// one. Returns the rest, or the next search if any remain.
    pub(crate) fn forget_some_idle(&mut self, mut search: Forgetting, now: Moment) -> Option<Forgetting> {
        let upto = search.from + LEDGERS_TOGETHER;
        for id in search.from..upto {
            let selections = self.ledgers.get_mut(id).into_iter().flat_map(|ledger| ledger.selections.iter_mut());
            for (_, selection) in selections {
                search.remain |= selection.forget_idle(&mut self.idle);
            }
        }
        if upto < self.ledgers.capacity() {
            return Some(Forgetting { from: upto, ..search });
        }
        search.remain.then(|| Forgetting::begin(now + self.limits.idle_responses))
    }
}
