//! For how long this replica may write, by a clock that also runs while the machine sleeps.

use std::time::Duration;

use tokio::time::Instant;

/// Time since a start. A machine that was suspended finds that time has passed: others have not slept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    booted: Duration,
}

impl Clock {
    /// It starts now.
    pub(crate) fn start() -> Clock {
        Clock {
            start: Instant::now(),
            booted: since_boot(),
        }
    }

    /// How long ago it started.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed().max(since_boot().saturating_sub(self.booted))
    }

    /// The moment as timers know it.
    pub(crate) fn instant(&self, moment: Duration) -> Instant {
        Instant::now() + moment.saturating_sub(self.elapsed())
    }
}

/// The kernel's clock that counts suspension, and that nobody sets.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}

/// What a leader may do. Moments are those of a [`Clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    /// No write begins after this, unless the lease is renewed before.
    pub(crate) ends: Duration,
    /// No write is under way after this: from here on others may lead.
    pub(crate) over: Duration,
}
