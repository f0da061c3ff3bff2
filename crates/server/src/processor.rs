//! Processor time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of the process so far, all threads together.
pub(crate) fn of_process() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// The processor time of this thread so far.
pub(crate) fn of_thread() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
