//! The time for which this replica may write, measured by a clock that also runs while the machine is suspended.

use std::time::Duration;

use tokio::time::Instant;

/// The time since a start, including time in which the machine was suspended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    booted: Duration,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now(), booted: since_boot() }
    }

    /// The time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed().max(since_boot().saturating_sub(self.booted))
    }

    /// Converts a time of this clock for timers.
    pub(crate) fn instant(&self, at: Duration) -> Instant {
        Instant::now() + at.saturating_sub(self.elapsed())
    }
}

/// The monotonic clock of the kernel that includes suspension.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}

/// The limits of a leader's writes, in times of a [`Clock`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    /// No write starts after this time unless the lease is renewed.
    pub(crate) ends: Duration,
    /// No write is in flight after this time: from then on others may lead.
    pub(crate) over: Duration,
}
