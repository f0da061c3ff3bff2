//! What events have told and no look at the directory has answered yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Notes of events, shared by the thread that hears them and the one that acts on them. Bounded: it remembers files that
/// are open for writing, not events.
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    poked: bool,
    stopped: bool,
    writing: BTreeMap<PathBuf, Instant>,
}

impl Pending {
    /// Something happened.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.changed.notify_all();
    }

    /// Somebody is writing these files.
    pub(crate) fn written(&self, paths: &[PathBuf], now: Instant) {
        let mut state = self.lock();
        state.writing.extend(paths.iter().map(|path| (path.clone(), now)));
        self.changed.notify_all();
    }

    /// These files are complete.
    pub(crate) fn closed(&self, paths: &[PathBuf]) {
        let mut state = self.lock();
        state.writing.retain(|path, _| !paths.contains(path));
        state.poked = true;
        self.changed.notify_all();
    }

    /// No more waiting.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Files that were written less than `grace` ago and not closed since. Older ones are forgotten.
    pub(crate) fn being_written(&self, now: Instant, grace: Duration) -> BTreeSet<PathBuf> {
        let mut state = self.lock();
        state
            .writing
            .retain(|_, since| now.saturating_duration_since(*since) < grace);
        state.writing.keys().cloned().collect()
    }

    /// Waits until something happened, `rescan` has passed, or a file that nobody closed has been left alone for `grace`.
    /// False: it was stopped.
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is half done when a holder panics: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
