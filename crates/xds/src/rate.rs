//! A token bucket whose clock is an argument.

use crate::{Limits, Moment};

/// Counts requests against a rate and a burst.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Tokens, in billionths, so that time turns into tokens without rounding.
    tokens: u128,
    last: Moment,
}

const WHOLE: u128 = 1_000_000_000;

impl Rate {
    pub(crate) fn new(limits: &Limits, now: Moment) -> Rate {
        Rate { tokens: u128::from(limits.request_burst) * WHOLE, last: now }
    }

    /// Takes one token; false if there is none.
    pub(crate) fn take(&mut self, limits: &Limits, now: Moment) -> bool {
        let earned = now.saturating_sub(self.last).as_nanos() * u128::from(limits.requests_per_second);
        self.tokens = (self.tokens + earned).min(u128::from(limits.request_burst) * WHOLE);
        self.last = self.last.max(now);
        match self.tokens.checked_sub(WHOLE) {
            Some(left) => {
                self.tokens = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_rate_applies() {
        let limits = Limits { requests_per_second: 10, request_burst: 3, ..Limits::default() };
        let at = Moment::from_millis;
        let mut rate = Rate::new(&limits, at(0));
        let taken: Vec<bool> = (0..4).map(|_| rate.take(&limits, at(0))).collect();
        assert_eq!(taken, [true, true, true, false]);
        assert!(!rate.take(&limits, at(99)));
        assert!(rate.take(&limits, at(100)));
        assert!(!rate.take(&limits, at(50)), "time that runs backwards earns nothing");
        // A long pause earns a burst and no more.
        let taken = (0..9).filter(|_| rate.take(&limits, at(1_000_000))).count();
        assert_eq!(taken, 3);
    }
}
