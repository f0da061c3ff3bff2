//! Limits of backends that run in this process.

use std::time::Duration;

/// Limits of [`memory`](crate::memory) and [`embedded`](crate::embedded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum object size, in bytes of compact JSON.
    pub object_bytes: usize,
    /// The number of revisions kept in memory for watches and recent lists. A watch that falls further behind ends with
    /// [`Error::Compacted`](crate::Error::Compacted).
    pub ring_revisions: usize,
    /// The maximum size of these revisions, in bytes, counting each object before and after the change.
    pub ring_bytes: usize,
    /// A watch without matching changes gets a bookmark after this number of revisions.
    pub bookmark_revisions: u64,
    /// A watch without matching changes gets a bookmark after this time, if there is a new revision.
    pub bookmark_interval: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            object_bytes: 3 * 512 * 1024,
            ring_revisions: 10_000,
            ring_bytes: 16 * 1024 * 1024,
            bookmark_revisions: 1_000,
            bookmark_interval: Duration::from_secs(10),
        }
    }
}
