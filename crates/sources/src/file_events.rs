//! File events that no scan has handled yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// File events, shared by the thread that receives them and the one that scans. Bounded: it stores the files that are
/// open for writing, not the events.
#[derive(Default)]
pub(crate) struct FileEvents {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    poked: bool,
    stopped: bool,
    writing: BTreeMap<PathBuf, Instant>,
}

impl FileEvents {
    /// Requests a scan.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.changed.notify_all();
    }

    /// Marks files as being written.
    pub(crate) fn written(&self, paths: &[PathBuf], now: Instant) {
        let mut state = self.lock();
        state.writing.extend(paths.iter().map(|path| (path.clone(), now)));
        self.changed.notify_all();
    }

    /// Marks files as complete and requests a scan.
    pub(crate) fn closed(&self, paths: &[PathBuf]) {
        let mut state = self.lock();
        state.writing.retain(|path, _| !paths.contains(path));
        state.poked = true;
        self.changed.notify_all();
    }

    /// Ends all waits.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The files that were written less than `grace` ago and not closed since. Removes older ones.
    pub(crate) fn being_written(&self, now: Instant, grace: Duration) -> BTreeSet<PathBuf> {
        let mut state = self.lock();
        state.writing.retain(|_, since| now.saturating_duration_since(*since) < grace);
        state.writing.keys().cloned().collect()
    }

    /// Waits until a scan is requested, `rescan` has passed, or a file that was not closed has not been written for
    /// `grace`. Returns false when stopped.
    pub(crate) fn wait(&self, rescan: Duration, grace: Duration) -> bool {
        let deadline = Instant::now() + rescan;
        let mut state = self.lock();
        while !state.poked && !state.stopped {
            let settles = state.writing.values().min().map(|since| *since + grace);
            let until = settles.map_or(deadline, |at| at.min(deadline));
            let now = Instant::now();
            if until <= now {
                break;
            }
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.poked = false;
        !state.stopped
    }

    /// Waits for this time. Events are recorded meanwhile. Returns at once when stopped.
    pub(crate) fn rest(&self, time: Duration) {
        let stopped = |state: &mut State| !state.stopped;
        drop(self.changed.wait_timeout_while(self.lock(), time, stopped));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves a consistent state: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
