//! Limits how often changes are committed under a stream of changes.
//!
//! A change on an idle system is committed at once. After a commit, the next one waits until the processor time that was
//! used since then is only a share of the elapsed time. A cheap change thus delays the next one by little, and a change
//! that reaches every proxy by up to [`LONGEST`]; changes that arrive meanwhile join one commit.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The maximum time for which a commit waits, unless [`Pace::interval`] is longer.
const LONGEST: Duration = Duration::from_millis(100);

/// The pace of commits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// The minimum time between the starts of two commits.
    pub interval: Duration,
    /// The share of one processor that changes may use, in percent. 100 does not limit it.
    pub share: u32,
}

impl Pace {
    /// Commits each change at once.
    pub const UNLIMITED: Pace = Pace { interval: Duration::ZERO, share: 100 };

    /// The time between a commit and the next one, after `used` processor time since then.
    fn wait(&self, used: Duration) -> Duration {
        let share = self.share.clamp(1, 100);
        let paced = if share == 100 { Duration::ZERO } else { used * 100 / share };
        paced.min(LONGEST).max(self.interval)
    }
}

/// A commit in the past: its start, and the processor time that the process had used by then.
#[derive(Clone, Copy)]
pub(crate) struct LastCommit {
    at: Instant,
    used: Duration,
}

impl LastCommit {
    pub(crate) fn now() -> LastCommit {
        LastCommit { at: Instant::now(), used: used() }
    }

    /// The time at which the next commit may start, as far as is known now.
    pub(crate) fn next(&self, pace: &Pace) -> Instant {
        self.at + pace.wait(used().saturating_sub(self.used))
    }
}

/// The processor time of the process, all threads together: most of the cost of a change is in the threads that send it.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_cost() {
        let ms = Duration::from_millis;
        let pace = Pace { interval: ms(0), share: 10 };
        let cases = [(ms(0), ms(0)), (ms(1), ms(10)), (ms(8), ms(80)), (ms(10), ms(100)), (ms(3000), ms(100))];
        for (used, wait) in cases {
            assert_eq!(pace.wait(used), wait, "{used:?}");
        }
        assert_eq!(Pace { interval: ms(250), share: 10 }.wait(ms(3)), ms(250));
        assert_eq!(Pace { interval: ms(20), share: 50 }.wait(ms(30)), ms(60));
        assert_eq!(Pace::UNLIMITED.wait(ms(3000)), ms(0));
    }

    #[test]
    fn processor_time_advances() {
        let commit = LastCommit::now();
        let before = used();
        while used() == before {
            std::hint::spin_loop();
        }
        let pace = Pace { interval: Duration::ZERO, share: 1 };
        assert!(commit.next(&pace) > commit.at);
    }
}
