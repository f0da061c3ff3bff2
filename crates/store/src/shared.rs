//! A state that many read and watch, and one writes.
//!
//! A watch is a place in the ring and no queue: what happened is kept once for all, and who sleeps is woken by the type
//! that is written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::ring::Batch;
use crate::state::State;
use crate::{Error, Feed, GroupResource, Limits, Revision, Scope, Watch, WatchEvent};

/// Wakes who follows a type (none: all types). The value is the newest revision that concerns them.
type Signals = HashMap<Option<GroupResource>, watch::Sender<Revision>>;

/// The state with what wakes watches. Its lock is held for as long as a list takes to copy, and never while waiting.
pub(crate) struct Shared {
    state: RwLock<State>,
    signals: Mutex<Signals>,
    /// Wakes everybody now and then, so that bookmarks follow.
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

    /// The state for reading. A panic under the lock leaves a whole state: batches are applied to it one by one.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state for reading, unless it is closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn open(&self) -> Result<RwLockReadGuard<'_, State>, Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(self.read())
    }

    /// Makes batches out of the state under its lock and lets them happen.
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

    /// Forgets the ring up to a revision.
    pub(crate) fn forget(&self, upto: Revision) {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .ring
            .forget(upto);
    }

    /// Ends all watches; nothing is read any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Follows a scope.
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
            told: None,
            quiet_since: Instant::now(),
        }))
    }

    fn subscribe(&self, who: Option<GroupResource>) -> watch::Receiver<Revision> {
        /// With so many signals those that nobody follows are looked for.
        const MANY: usize = 256;
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if signals.len() >= MANY {
            signals.retain(|_, signal| signal.receiver_count() > 0);
        }
        signals.entry(who).or_default().subscribe()
    }

    fn wake(&self, touched: Vec<GroupResource>, newest: Revision) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        for who in touched.into_iter().map(Some).chain([None]) {
            if let Some(signal) = signals.get(&who) {
                signal.send_replace(newest);
                if signal.receiver_count() == 0 {
                    signals.remove(&who);
                }
            }
        }
        let step = self.limits.bookmark_revisions.max(1);
        self.progress.send_if_modified(|told| {
            let due = newest.saturating_sub(*told) >= step;
            if due {
                *told = newest;
            }
            due
        });
    }
}

/// A place in the ring.
struct RingFeed {
    shared: Arc<Shared>,
    scope: Scope,
    signal: watch::Receiver<Revision>,
    progress: watch::Receiver<Revision>,
    /// Everything up to here was looked through.
    place: Revision,
    /// The reader knows that everything up to here was yielded; none: it has not caught up for the first time.
    told: Option<Revision>,
    /// Since when nothing was yielded.
    quiet_since: Instant,
}

#[async_trait::async_trait]
impl Feed for RingFeed {
    async fn next(&mut self) -> Result<WatchEvent, Error> {
        let interval = self.shared.limits.bookmark_interval;
        loop {
            // Marked as seen before looking, so that what comes in between wakes.
            self.signal.borrow_and_update();
            self.progress.borrow_and_update();
            let found = self.shared.open()?.ring.after(&self.scope, self.place)?;
            self.place = found.upto;
            let now = Instant::now();
            if let Some(last) = found.changes.last() {
                self.quiet_since = now;
                self.told = self.told.map(|_| last.revision);
                return Ok(WatchEvent::Changes(found.changes));
            }
            let due = match self.told {
                None => true,
                Some(told) => {
                    let behind = self.place.saturating_sub(told);
                    let long = now.duration_since(self.quiet_since) >= interval;
                    behind >= self.shared.limits.bookmark_revisions.max(1) || (long && behind > 0)
                }
            };
            if due || now.duration_since(self.quiet_since) >= interval {
                self.quiet_since = now;
            }
            if due {
                self.told = Some(self.place);
                return Ok(WatchEvent::Bookmark(self.place));
            }
            // A signal that is gone: the store was closed, which the next look says.
            tokio::select! {
                _ = self.signal.changed() => {}
                _ = self.progress.changed() => {}
                () = tokio::time::sleep_until(self.quiet_since + interval) => {}
            }
        }
    }
}
