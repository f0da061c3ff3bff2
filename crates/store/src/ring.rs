//! The recent past: a bounded ring of batches that lists as of a revision, histories and watches read.
//!
//! Revisions follow one another without gaps, so that a revision is a place in the ring. Each type keeps the list of the
//! revisions that touched it: who follows a quiet type neither reads nor misses what happens to others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use crate::{Change, Error, GroupResource, Key, Limits, Revision, Scope, Version};

/// What happened at one revision.
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

/// The ring. Bounded by [`Limits::ring_revisions`] and [`Limits::ring_bytes`]; the newest batch always stays.
#[derive(Debug)]
pub(crate) struct Ring {
    batches: VecDeque<Batch>,
    bytes: usize,
    max_batches: usize,
    max_bytes: usize,
    types: HashMap<GroupResource, TypeLog>,
    /// Everything after this revision is here.
    oldest: Revision,
}

/// Which revisions touched a type.
#[derive(Debug, Default)]
struct TypeLog {
    revisions: VecDeque<Revision>,
    /// The last one that is not in the ring any more.
    dropped: Revision,
}

/// What a watch is given.
pub(crate) struct Found {
    pub(crate) changes: Vec<Arc<Change>>,
    /// Everything up to this revision was looked through.
    pub(crate) upto: Revision,
}

impl Ring {
    /// A watch is given no more at once than so many changes, or so many bytes, and what completes a batch.
    const MOMENT_CHANGES: usize = 512;
    const MOMENT_BYTES: usize = 4 * 1024 * 1024;

    /// An empty ring after a revision.
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

    /// Everything after this revision is known, and how it was at it.
    pub(crate) fn oldest(&self) -> Revision {
        self.oldest
    }

    /// The newest revision.
    pub(crate) fn newest(&self) -> Revision {
        self.batches.back().map_or(self.oldest, |batch| batch.revision)
    }

    /// Takes the batch of the next revision in, and lets go what is too much.
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

    /// Forgets everything up to a revision.
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

    /// Changes of a scope after a place, the first ones; whole batches.
    ///
    /// # Errors
    /// [`Error::Compacted`]: some of them are not here any more.
    pub(crate) fn after(&self, scope: &Scope, place: Revision) -> Result<Found, Error> {
        let dropped = match &scope.resource {
            None => self.oldest,
            Some(resource) => self.types.get(resource).map_or(0, |log| log.dropped),
        };
        if place < dropped {
            return Err(Error::Compacted {
                requested: place,
                oldest: self.oldest,
            });
        }
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for batch in self.touching(scope.resource.as_ref(), place) {
            let matching = batch.changes.iter().filter(|change| scope.contains(&change.key));
            for change in matching {
                bytes += change.bytes();
                changes.push(change.clone());
            }
            if changes.len() >= Ring::MOMENT_CHANGES || bytes >= Ring::MOMENT_BYTES {
                let upto = batch.revision;
                return Ok(Found { changes, upto });
            }
        }
        Ok(Found {
            changes,
            upto: self.newest().max(place),
        })
    }

    /// Batches after a revision that touched a type (none: all), ascending.
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

    /// The versions of an object that are known, the newest first: `now` is what it is.
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

    /// Where the batch of a revision is.
    fn place(&self, revision: Revision) -> usize {
        let place = revision.saturating_sub(self.oldest + 1);
        usize::try_from(place).unwrap_or(usize::MAX).min(self.batches.len())
    }
}
