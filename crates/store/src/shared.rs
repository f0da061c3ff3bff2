//! State with many readers and watches and one writer.
//!
//! A watch is a position in the ring, not a queue: changes are kept once for all watches. Writing a type wakes the
//! watches of that type.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ring::Batch;
use crate::state::State;
use crate::{Error, Feed, GroupResource, Limits, Revision, Scope, Watch, WatchEvent};

/// Wakes watches of a type (`None`: of all types). The value is the newest revision of a change to the type.
type Signals = HashMap<Option<GroupResource>, watch::Sender<Revision>>;

/// The state and the signals for watches. The lock is held while a list is copied, but never while waiting.
pub(crate) struct Shared {
    state: RwLock<State>,
    signals: Mutex<Signals>,
    /// Wakes all watches from time to time, for bookmarks.
    progress: watch::Sender<Revision>,
    closed: AtomicBool,
    limits: Limits,
}

impl Shared {
    pub(crate) fn new(state: State, limits: Limits) -> Shared {
        Shared {
            progress: watch::Sender::new(state.revision()),
            state: RwLock::new(state),
            signals: Mutex::default(),
            closed: AtomicBool::new(false),
            limits,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Locks the state for reading. A panic under the lock leaves a consistent state: batches are applied one by one.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for reading.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn open(&self) -> Result<RwLockReadGuard<'_, State>, Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(self.read())
    }

    /// Computes batches from the state and applies them under one lock.
    pub(crate) fn write<T>(&self, make: impl FnOnce(&State) -> (Vec<Batch>, T)) -> T {
        let mut touched = Vec::new();
        let (newest, result) = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let (batches, result) = make(&state);
            for batch in batches {
                touched.extend(batch.changes.iter().map(|change| change.key.resource.clone()));
                state.apply(batch);
            }
            (state.revision(), result)
        };
        touched.sort();
        touched.dedup();
        if !touched.is_empty() {
            self.wake(touched, newest);
        }
        result
    }

    /// Drops the ring up to a revision.
    pub(crate) fn forget(&self, upto: Revision) {
        self.state.write().unwrap_or_else(PoisonError::into_inner).ring.forget(upto);
    }

    /// Closes the store: ends all watches and rejects reads.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Starts a watch.
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::Future`] or [`Error::Closed`].
    pub(crate) fn watch(self: &Arc<Shared>, scope: &Scope, after: Revision) -> Result<Watch, Error> {
        let state = self.open()?;
        let (oldest, newest) = (state.ring.oldest(), state.revision());
        drop(state);
        if after > newest {
            let requested = after;
            return Err(Error::Future { requested, newest });
        }
        if after < oldest {
            let requested = after;
            return Err(Error::Compacted { requested, oldest });
        }
        Ok(Watch::new(RingFeed {
            signal: self.subscribe(scope.resource.clone()),
            progress: self.progress.subscribe(),
            shared: self.clone(),
            scope: scope.clone(),
            place: after,
            reported: None,
            quiet_since: Instant::now(),
        }))
    }

    fn subscribe(&self, resource: Option<GroupResource>) -> watch::Receiver<Revision> {
        /// From this number of signals on, unused ones are removed.
        const MANY: usize = 256;
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if signals.len() >= MANY {
            signals.retain(|_, signal| signal.receiver_count() > 0);
        }
        signals.entry(resource).or_default().subscribe()
    }

    fn wake(&self, touched: Vec<GroupResource>, newest: Revision) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        for resource in touched.into_iter().map(Some).chain([None]) {
            if let Some(signal) = signals.get(&resource) {
                signal.send_replace(newest);
                if signal.receiver_count() == 0 {
                    signals.remove(&resource);
                }
            }
        }
        let step = self.limits.bookmark_revisions.max(1);
        self.progress.send_if_modified(|reported| {
            let due = newest.saturating_sub(*reported) >= step;
            if due {
                *reported = newest;
            }
            due
        });
    }
}

/// A watch: a position in the ring.
struct RingFeed {
    shared: Arc<Shared>,
    scope: Scope,
    signal: watch::Receiver<Revision>,
    progress: watch::Receiver<Revision>,
    /// The revision up to which the ring was searched.
    place: Revision,
    /// The last revision reported to the reader; `None` before it has caught up for the first time.
    reported: Option<Revision>,
    /// The time of the last event.
    quiet_since: Instant,
}

#[async_trait::async_trait]
impl Feed for RingFeed {
    async fn next(&mut self) -> Result<WatchEvent, Error> {
        let interval = self.shared.limits.bookmark_interval;
        loop {
            // Marked as seen before reading, so that a change in between wakes the watch.
            self.signal.borrow_and_update();
            self.progress.borrow_and_update();
            let found = self.shared.open()?.ring.after(&self.scope, self.place)?;
            self.place = found.upto;
            let now = Instant::now();
            if let Some(last) = found.changes.last() {
                self.quiet_since = now;
                self.reported = self.reported.map(|_| last.revision);
                return Ok(WatchEvent::Changes(found.changes));
            }
            let due = match self.reported {
                None => true,
                Some(reported) => {
                    let behind = self.place.saturating_sub(reported);
                    let long = now.duration_since(self.quiet_since) >= interval;
                    behind >= self.shared.limits.bookmark_revisions.max(1) || (long && behind > 0)
                }
            };
            if due || now.duration_since(self.quiet_since) >= interval {
                self.quiet_since = now;
            }
            if due {
                self.reported = Some(self.place);
                return Ok(WatchEvent::Bookmark(self.place));
            }
            // A closed signal means that the store was closed; the next read returns that error.
            tokio::select! {
                _ = self.signal.changed() => {}
                _ = self.progress.changed() => {}
                () = tokio::time::sleep_until(self.quiet_since + interval) => {}
            }
        }
    }
}
