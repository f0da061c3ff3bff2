//! Limits how often changes are committed under a stream of changes.
//!
//! A change on an idle system is committed at once. After a commit, the next one waits until the processor time that was
//! used since then is only a share of the elapsed time. A cheap change thus delays the next one by little, and a change
//! that reaches every proxy by more, but by no more than [`Pace::delay`]; changes that arrive meanwhile join one commit. Endpoints
//! and other changes have a pace each ([`crate::gathered`]).

use std::time::{Duration, Instant};

// All threads count: most of the cost of a change is in the threads that send it.
use crate::processor::of_process as used;

/// The pace of commits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// The minimum time between the starts of two commits.
    pub interval: Duration,
    /// The maximum time between the starts of two commits, if changes wait. A longer `interval` takes precedence.
    pub delay: Duration,
    /// The share of one processor that changes may use, in percent, as far as `delay` allows it. 100 does not limit it.
    pub share: u32,
}

impl Pace {
    /// Commits each change at once.
    pub const UNLIMITED: Pace = Pace { interval: Duration::ZERO, delay: Duration::ZERO, share: 100 };

    /// The time between a commit and the next one, after `used` processor time since then.
    fn wait(&self, used: Duration) -> Duration {
        let share = self.share.clamp(1, 100);
        let by_share = if share == 100 { Duration::ZERO } else { used * 100 / share };
        by_share.min(self.delay).max(self.interval)
    }
}

/// A commit in the past: its start, and the processor time that the process had used by then.
#[derive(Clone, Copy)]
pub(crate) struct LastCommit {
    at: Instant,
    used: Duration,
    /// The processor time that the process had used when another commit started.
    until: Option<Duration>,
}

impl LastCommit {
    /// A commit that starts now.
    pub(crate) fn start() -> LastCommit {
        LastCommit { at: Instant::now(), used: used(), until: None }
    }

    /// Ends the time whose cost is that of this commit.
    pub(crate) fn end(&mut self) {
        self.until.get_or_insert_with(used);
    }

    /// The time at which the next commit may start, as far as is known now.
    pub(crate) fn next(&self, pace: &Pace) -> Instant {
        let until = self.until.unwrap_or_else(used);
        self.at + pace.wait(until.saturating_sub(self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_cost() {
        let ms = Duration::from_millis;
        let pace = Pace { interval: ms(0), delay: ms(100), share: 10 };
        let cases = [(ms(0), ms(0)), (ms(1), ms(10)), (ms(8), ms(80)), (ms(10), ms(100)), (ms(3000), ms(100))];
        for (used, wait) in cases {
            assert_eq!(pace.wait(used), wait, "{used:?}");
        }
        assert_eq!(Pace { delay: ms(1000), ..pace }.wait(ms(30)), ms(300));
        assert_eq!(Pace { interval: ms(250), ..pace }.wait(ms(3)), ms(250));
        assert_eq!(Pace { interval: ms(20), share: 50, ..pace }.wait(ms(30)), ms(60));
        assert_eq!(Pace::UNLIMITED.wait(ms(3000)), ms(0));
    }

    #[test]
    fn processor_time_advances() {
        let commit = LastCommit::start();
        let before = used();
        while used() == before {
            std::hint::spin_loop();
        }
        let pace = Pace { interval: Duration::ZERO, delay: Duration::MAX, share: 1 };
        assert!(commit.next(&pace) > commit.at);
    }
}
