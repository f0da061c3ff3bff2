//! The recent history: a bounded ring of batches, read by lists at older revisions, histories and watches.
//!
//! Revisions have no gaps, so a revision maps to a position in the ring. For each type there is a list of the revisions
//! that changed it: a watch of a quiet type skips the changes of other types.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use crate::{Change, Error, GroupResource, Key, Limits, Revision, Scope, Version};

/// The changes of one revision.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) revision: Revision,
    pub(crate) time: SystemTime,
    pub(crate) changes: Vec<Arc<Change>>,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.bytes()).sum()
    }
}

/// The ring. Bounded by [`Limits::ring_revisions`] and [`Limits::ring_bytes`]; always keeps the newest batch.
#[derive(Debug)]
pub(crate) struct Ring {
    batches: VecDeque<Batch>,
    bytes: usize,
    max_batches: usize,
    max_bytes: usize,
    types: HashMap<GroupResource, TypeLog>,
    /// The ring contains all later revisions.
    oldest: Revision,
}

/// The revisions that changed a type.
#[derive(Debug, Default)]
struct TypeLog {
    revisions: VecDeque<Revision>,
    /// The newest revision that was dropped from the ring.
    dropped: Revision,
}

/// The next changes of a watch.
pub(crate) struct Found {
    pub(crate) changes: Vec<Arc<Change>>,
    /// The revision up to which the ring was searched.
    pub(crate) upto: Revision,
}

impl Ring {
    /// Limits of one watch event; the last batch is completed.
    const EVENT_CHANGES: usize = 512;
    const EVENT_BYTES: usize = 4 * 1024 * 1024;

    /// An empty ring that starts after a revision.
    pub(crate) fn new(limits: &Limits, oldest: Revision) -> Ring {
        Ring {
            batches: VecDeque::new(),
            bytes: 0,
            max_batches: limits.ring_revisions.max(1),
            max_bytes: limits.ring_bytes,
            types: HashMap::new(),
            oldest,
        }
    }

    /// The oldest revision at which the state can be reconstructed.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(crate) fn newest(&self) -> Revision {
        self.batches.back().map_or(self.oldest, |batch| batch.revision)
    }

    /// Appends the batch of the next revision and drops old ones beyond the limits.
    pub(crate) fn push(&mut self, batch: Batch) {
        debug_assert_eq!(batch.revision, self.newest() + 1, "revisions have no gaps");
        self.bytes += batch.bytes();
        for change in &batch.changes {
            let log = match self.types.get_mut(&change.key.resource) {
                Some(log) => log,
                None => self.types.entry(change.key.resource.clone()).or_default(),
            };
            if log.revisions.back() != Some(&batch.revision) {
                log.revisions.push_back(batch.revision);
            }
        }
        self.batches.push_back(batch);
        while self.batches.len() > self.max_batches || (self.bytes > self.max_bytes && self.batches.len() > 1) {
            self.drop_first();
        }
    }

    /// Drops everything up to a revision.
    pub(crate) fn forget(&mut self, upto: Revision) {
        while self.batches.front().is_some_and(|batch| batch.revision <= upto) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(batch) = self.batches.pop_front() else { return };
        self.bytes -= batch.bytes();
        self.oldest = batch.revision;
        for change in &batch.changes {
            let Some(log) = self.types.get_mut(&change.key.resource) else {
                continue;
            };
            if log.revisions.front() == Some(&batch.revision) {
                log.revisions.pop_front();
                log.dropped = batch.revision;
            }
        }
    }

    /// Returns the first changes of a scope after a revision, in whole batches.
    ///
    /// # Errors
    /// [`Error::Compacted`]: some of them were dropped.
    pub(crate) fn after(&self, scope: &Scope, place: Revision) -> Result<Found, Error> {
        let dropped = match &scope.resource {
            None => self.oldest,
            Some(resource) => self.types.get(resource).map_or(0, |log| log.dropped),
        };
        if place < dropped {
            return Err(Error::Compacted { requested: place, oldest: self.oldest });
        }
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for batch in self.touching(scope.resource.as_ref(), place) {
            let matching = batch.changes.iter().filter(|change| scope.contains(&change.key));
            for change in matching {
                bytes += change.bytes();
                changes.push(change.clone());
            }
            if changes.len() >= Ring::EVENT_CHANGES || bytes >= Ring::EVENT_BYTES {
                let upto = batch.revision;
                return Ok(Found { changes, upto });
            }
        }
        Ok(Found { changes, upto: self.newest().max(place) })
    }

    /// Batches after a revision that changed a type (`None` for all), ascending.
    pub(crate) fn touching<'a>(
        &'a self,
        resource: Option<&GroupResource>,
        after: Revision,
    ) -> Box<dyn DoubleEndedIterator<Item = &'a Batch> + 'a> {
        match resource {
            None => Box::new(self.batches.range(self.place(after + 1)..)),
            Some(resource) => match self.types.get(resource) {
                None => Box::new(std::iter::empty()),
                Some(log) => {
                    let first = log.revisions.partition_point(|revision| *revision <= after);
                    let batches = log.revisions.range(first..);
                    Box::new(batches.filter_map(|revision| self.batches.get(self.place(*revision))))
                }
            },
        }
    }

    /// The retained versions of an object, newest first. `now` is its current version.
    pub(crate) fn versions(&self, key: &Key, now: Option<&crate::Stored>, limit: usize) -> Vec<Version> {
        let mut versions = Vec::new();
        let mut first = None;
        for batch in self.touching(Some(&key.resource), self.oldest).rev() {
            for change in batch.changes.iter().filter(|change| change.key == *key) {
                first = Some(change.clone());
                versions.push(Version {
                    revision: batch.revision,
                    time: Some(batch.time),
                    object: change.after.clone(),
                });
            }
            if versions.len() >= limit {
                break;
            }
        }
        let before = match &first {
            None => now,
            Some(change) => change.before.as_ref(),
        };
        versions.extend(before.map(|object| Version {
            revision: object.revision,
            time: None,
            object: Some(object.clone()),
        }));
        versions.truncate(limit);
        versions
    }

    /// The position of a revision's batch.
    fn place(&self, revision: Revision) -> usize {
        let place = revision.saturating_sub(self.oldest + 1);
        usize::try_from(place).unwrap_or(usize::MAX).min(self.batches.len())
    }
}
