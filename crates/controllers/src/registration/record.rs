//! The state of one entry.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Stream;
use super::claim::Claim;
use super::entry::{Nanos, Report};
use crate::Target;

/// The streams of one entry, and what is to be done.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) streams: BTreeMap<Stream, Live>,
    /// The connection time that this replica wrote last.
    pub(super) wrote: Option<Nanos>,
    /// All streams that connected until then have ended.
    pub(super) left: Option<Nanos>,
    pub(super) report: Option<Report>,
    /// When a report was written last.
    pub(super) reported: Nanos,
    /// Whether the entry may have to be cleaned up.
    pub(super) clean: bool,
    pub(super) job: Job,
    /// The WorkloadGroup that was read last.
    pub(super) read: Option<Target>,
    pub(super) failures: u32,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) claim: Arc<Claim>,
    pub(super) at: Nanos,
    /// Whether it waits for a reply.
    pub(super) waiting: bool,
}

/// The operation of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Job {
    #[default]
    None,
    /// It is read at this time.
    Due(Nanos),
    /// It is being read or written; and whether it must be read again then.
    Busy(Effect, bool),
}

/// The effect of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// It is only read.
    Read,
    Created(Nanos),
    Connected(Nanos),
    Reported,
    Disconnected,
    Deleted,
    Forgotten,
}

impl Record {
    /// The stream that connected last.
    pub(super) fn newest(&self) -> Option<&Live> {
        self.streams.values().max_by_key(|live| live.at)
    }

    /// The WorkloadGroup of the stream that connected last.
    pub(super) fn group(&self) -> Option<Target> {
        self.newest()?.claim.group()
    }

    /// Whether nothing is to be done, now or later.
    pub(super) fn is_over(&self) -> bool {
        self.streams.is_empty() && self.left.is_none() && !self.clean
    }
}
