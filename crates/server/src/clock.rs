//! Wall-clock time of points in time that are counted from the start of the world thread.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use config::Timestamp;
use status::Elapsed;

/// Converts [`Elapsed`] to wall-clock time.
pub(crate) struct Clock {
    start: SystemTime,
}

impl Clock {
    pub(crate) fn new(started: Instant) -> Clock {
        Clock { start: SystemTime::now().checked_sub(started.elapsed()).unwrap_or(UNIX_EPOCH) }
    }

    pub(crate) fn at(&self, at: Elapsed) -> Timestamp {
        let since = (self.start + at).duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    }
}
