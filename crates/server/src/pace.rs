//! Limits how often changes are committed under a stream of changes.
//!
//! A change on an idle system is committed at once. After a commit, the next one waits until the processor time that was
//! used since then is only a share of the elapsed time. A cheap change thus delays the next one by little, and a change
//! that reaches every proxy by up to [`LONGEST`]; changes that arrive meanwhile join one commit. As long as more arrive, that
//! is not enough to bound the share, and each commit that exceeds it may delay the next one by more, up to
//! [`LONGEST_OF_MANY`]. So the second of two changes never waits long. Endpoints and other changes have a pace each
//! ([`crate::gathered`]).

use std::time::{Duration, Instant};

// All threads count: most of the cost of a change is in the threads that send it.
use crate::processor::of_process as used;

/// The maximum time between a commit and the next one, unless [`Pace::interval`] is longer. It doubles with each further commit
/// that comes before the share allows it.
const LONGEST: Duration = Duration::from_millis(100);
/// The maximum time between two commits.
const LONGEST_OF_MANY: Duration = Duration::from_millis(500);

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

    /// The time between a commit and the next one, after `used` processor time since then. So many commits in succession came
    /// too `early`.
    fn wait(&self, used: Duration, early: u32) -> Duration {
        let longest = LONGEST.saturating_mul(2u32.saturating_pow(early)).min(LONGEST_OF_MANY);
        self.by_share(used).min(longest).max(self.interval)
    }

    /// The time of which the share is `used`.
    fn by_share(&self, used: Duration) -> Duration {
        let share = self.share.clamp(1, 100);
        if share == 100 { Duration::ZERO } else { used * 100 / share }
    }
}

/// A commit in the past: its start, and the processor time that the process had used by then.
#[derive(Clone, Copy)]
pub(crate) struct LastCommit {
    at: Instant,
    used: Duration,
    /// The processor time that the process had used when another commit started.
    until: Option<Duration>,
    /// The number of commits in succession, up to this one, whose changes arrived before the share allowed another commit.
    early: u32,
}

impl LastCommit {
    /// A commit that starts now, of changes of which the first arrived at a time.
    pub(crate) fn after(before: Option<LastCommit>, arrived: Option<Instant>, pace: &Pace) -> LastCommit {
        let allowed = |before: &LastCommit| before.at + pace.by_share(before.cost());
        let is_early = |before: &LastCommit| arrived.is_some_and(|arrived| allowed(before) > arrived);
        let early = before.filter(is_early).map_or(0, |before| before.early.saturating_add(1));
        LastCommit { at: Instant::now(), used: used(), until: None, early }
    }

    /// Ends the time whose cost is that of this commit.
    pub(crate) fn end(&mut self) {
        self.until.get_or_insert_with(used);
    }

    /// The processor time that the commit, and what it caused, has used as far as is known now.
    fn cost(&self) -> Duration {
        self.until.unwrap_or_else(used).saturating_sub(self.used)
    }

    /// The time at which the next commit may start, as far as is known now.
    pub(crate) fn next(&self, pace: &Pace) -> Instant {
        self.at + pace.wait(self.cost(), self.early)
    }
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
            assert_eq!(pace.wait(used, 0), wait, "{used:?}");
        }
        let many = [0, 1, 2, 3, u32::MAX].map(|early| pace.wait(ms(3000), early));
        assert_eq!(many, [100, 200, 400, 500, 500].map(ms));
        assert_eq!(pace.wait(ms(29), 9), ms(290), "the share is bounded");
        assert_eq!(Pace { interval: ms(250), share: 10 }.wait(ms(3), 0), ms(250));
        assert_eq!(Pace { interval: ms(20), share: 50 }.wait(ms(30), 0), ms(60));
        assert_eq!(Pace::UNLIMITED.wait(ms(3000), 9), ms(0));
    }

    #[test]
    fn commits_that_exceed_the_share_are_counted() {
        let pace = Pace { interval: Duration::ZERO, share: 10 };
        let (at, second) = (Instant::now(), Duration::from_secs(1));
        let before = |early| Some(LastCommit { at, used: Duration::ZERO, until: None, early });
        let after = |before, arrived| LastCommit::after(before, Some(arrived), &pace).early;
        assert_eq!(after(None, at), 0);
        assert_eq!([after(before(0), at), after(before(1), at)], [1, 2], "the process has used some time");
        assert_eq!(after(before(3), at + 1000 * second), 0, "there was a long pause");
    }

    #[test]
    fn processor_time_advances() {
        let commit = LastCommit::after(None, None, &Pace::UNLIMITED);
        let before = used();
        while used() == before {
            std::hint::spin_loop();
        }
        let pace = Pace { interval: Duration::ZERO, share: 1 };
        assert!(commit.next(&pace) > commit.at);
    }
}
