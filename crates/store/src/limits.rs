//! What homes that run in this process hold at most.

use std::time::Duration;

/// Limits of [`memory`](crate::memory) and [`embedded`](crate::embedded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest object, in bytes of compact JSON.
    pub object_bytes: usize,
    /// How many revisions are kept in memory for watches and recent lists. A watch that falls further behind ends with
    /// [`Error::Compacted`](crate::Error::Compacted).
    pub ring_revisions: usize,
    /// How many bytes of objects those revisions may hold, before and after each change counted.
    pub ring_bytes: usize,
    /// A watch that sees nothing for so many revisions gets a bookmark.
    pub bookmark_revisions: u64,
    /// A watch that sees nothing for so long gets a bookmark, if there is a new revision.
    pub bookmark_interval: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            object_bytes: 3 * 512 * 1024,
            ring_revisions: 20_000,
            ring_bytes: 64 * 1024 * 1024,
            bookmark_revisions: 1_000,
            bookmark_interval: Duration::from_secs(10),
        }
    }
}
