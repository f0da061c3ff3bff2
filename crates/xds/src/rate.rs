//! A token bucket whose clock is an argument.

use crate::Moment;

/// Counts something against a rate and a burst.
#[derive(Debug)]
pub struct Rate {
    /// Tokens, in billionths, so that time turns into tokens without rounding.
    tokens: u128,
    last: Moment,
}

const WHOLE: u128 = 1_000_000_000;

impl Rate {
    /// A full bucket.
    pub fn new(burst: u32, now: Moment) -> Rate {
        Rate { tokens: u128::from(burst) * WHOLE, last: now }
    }

    /// Takes so many tokens; false if there are fewer, of which none is taken.
    pub fn take(&mut self, count: usize, (per_second, burst): (u32, u32), now: Moment) -> bool {
        let earned = now.saturating_sub(self.last).as_nanos() * u128::from(per_second);
        self.tokens = (self.tokens + earned).min(u128::from(burst) * WHOLE);
        self.last = self.last.max(now);
        match self.tokens.checked_sub(count as u128 * WHOLE) {
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
        let at = Moment::from_millis;
        let mut rate = Rate::new(3, at(0));
        let mut take = |count, now| rate.take(count, (10, 3), at(now));
        let taken: Vec<bool> = (0..4).map(|_| take(1, 0)).collect();
        assert_eq!(taken, [true, true, true, false]);
        assert!(!take(1, 99));
        assert!(take(1, 100));
        assert!(!take(1, 50), "time that runs backwards earns nothing");
        // A long pause earns a burst and no more.
        let taken = (0..9).filter(|_| take(1, 1_000_000)).count();
        assert_eq!(taken, 3);
        // Many at once are taken as a whole.
        assert!(!take(4, 2_000_000));
        assert!(take(3, 2_000_000));
        assert!(take(0, 2_000_000) && !take(1, 2_000_000));
    }
}
