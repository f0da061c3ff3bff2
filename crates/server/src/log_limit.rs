//! Limits log lines that clients without an identity can cause.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use xds::Rate;

/// Lines per second, and their burst.
const LINES: (u32, u32) = (1, 20);

/// Counts lines against a rate.
pub(crate) struct LogLimit {
    started: Instant,
    /// The rate, and the lines left out since the last one.
    state: Mutex<(Rate, u64)>,
}

impl Default for LogLimit {
    fn default() -> LogLimit {
        let rate = Rate::new(LINES.1, std::time::Duration::ZERO);
        LogLimit { started: Instant::now(), state: Mutex::new((rate, 0)) }
    }
}

impl LogLimit {
    /// Writes a line with the number of those that were left out before it, or leaves it out.
    pub(crate) fn note(&self, write: impl FnOnce(u64)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed();
        if state.0.take(1, LINES, now) {
            let more = std::mem::take(&mut state.1);
            drop(state);
            write(more);
        } else {
            state.1 += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_off() {
        let limit = LogLimit::default();
        let mut lines = 0;
        (0..1000).for_each(|_| limit.note(|_| lines += 1));
        assert!((20..30).contains(&lines), "{lines}");
    }
}
