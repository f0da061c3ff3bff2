//! File events that no scan has handled yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of files that a scan looks at one by one. With more, the directory is listed.
const FEW_FILES: usize = 256;

/// The time before the end of a rest in which the events of the rest are received.
const RECEIVING: Duration = Duration::from_millis(5);
/// The maximum time for which no events are received. The kernel keeps a number of them.
const LONGEST_HOLD: Duration = Duration::from_millis(100);

/// The part of the directory that a scan looks at.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ScanScope {
    /// These files: nothing happened but that they were written, created or removed.
    Files(BTreeSet<PathBuf>),
    /// Everything.
    All,
}

impl Default for ScanScope {
    fn default() -> ScanScope {
        ScanScope::Files(BTreeSet::new())
    }
}

impl ScanScope {
    fn is_empty(&self) -> bool {
        matches!(self, ScanScope::Files(files) if files.is_empty())
    }

    fn add(&mut self, paths: &[PathBuf]) {
        if let ScanScope::Files(files) = self {
            files.extend(paths.iter().cloned());
            if files.len() > FEW_FILES {
                *self = ScanScope::All;
            }
        }
    }
}

/// File events, shared by the thread that receives them and the one that scans. Bounded: it stores the files that are
/// open for writing, not the events.
#[derive(Default)]
pub(crate) struct FileEvents {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends [`FileEvents::rest`] and [`FileEvents::hold`].
    stopping: Condvar,
}

#[derive(Default)]
struct State {
    /// What the next scan looks at; if nothing, no scan is requested.
    scope: ScanScope,
    stopped: bool,
    /// Until then, nobody looks at events.
    resting: Option<Instant>,
    writing: BTreeMap<PathBuf, Instant>,
}

impl FileEvents {
    /// Requests a scan of everything.
    pub(crate) fn poke(&self) {
        self.lock().scope = ScanScope::All;
        self.changed.notify_all();
    }

    /// Marks files as being written.
    pub(crate) fn written(&self, paths: &[PathBuf], now: Instant) {
        // A wait looks at them in time by itself.
        self.lock().writing.extend(paths.iter().map(|path| (path.clone(), now)));
    }

    /// Requests a scan of files that are not being written any more, or not yet, or that are gone.
    pub(crate) fn touched(&self, paths: &[PathBuf]) {
        let mut state = self.lock();
        state.writing.retain(|path, _| !paths.contains(path));
        state.scope.add(paths);
        self.changed.notify_all();
    }

    /// Ends all waits.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
        self.stopping.notify_all();
    }

    /// The files that were written less than `grace` ago and not closed since. Removes older ones.
    pub(crate) fn being_written(&self, now: Instant, grace: Duration) -> BTreeSet<PathBuf> {
        let mut state = self.lock();
        state.writing.retain(|_, since| now.saturating_duration_since(*since) < grace);
        state.writing.keys().cloned().collect()
    }

    /// Waits until a scan is requested, `rescan` has passed, or a file that was not closed has not been written for
    /// `grace`. Returns what to scan, or `None` when stopped.
    pub(crate) fn wait(&self, rescan: Duration, grace: Duration) -> Option<ScanScope> {
        let deadline = Instant::now() + rescan;
        let mut state = self.lock();
        while state.scope.is_empty() && !state.stopped {
            let settles = state.writing.values().min().map(|since| *since + grace);
            let until = settles.map_or(deadline, |at| at.min(deadline));
            let now = Instant::now();
            if until <= now {
                state.scope = ScanScope::All;
                break;
            }
            // A file that is written meanwhile settles no earlier than `grace` from now.
            let waited = self.changed.wait_timeout(state, (until - now).min(grace));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let scope = std::mem::take(&mut state.scope);
        (!state.stopped).then_some(scope)
    }

    /// Waits for this time. Events are recorded meanwhile. Returns at once when stopped.
    pub(crate) fn rest(&self, time: Duration) {
        let mut state = self.lock();
        state.resting = Some(Instant::now() + time.saturating_sub(RECEIVING).min(LONGEST_HOLD));
        self.pause(state, time);
    }

    /// Waits while nobody looks at events. The thread that receives them calls it, so that it wakes once for those of a rest
    /// instead of once for each.
    pub(crate) fn hold(&self) {
        let mut state = self.lock();
        if let Some(until) = state.resting.take() {
            self.pause(state, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for this time, or until stopped.
    fn pause(&self, state: MutexGuard<'_, State>, time: Duration) {
        drop(self.stopping.wait_timeout_while(state, time, |state| !state.stopped));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves a consistent state: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(events: &FileEvents) -> Option<ScanScope> {
        let long = Duration::from_secs(3600);
        events.wait(long, long)
    }

    #[test]
    fn a_scan_looks_only_at_written_files_until_anything_else_happens() {
        let events = FileEvents::default();
        let [a, b] = ["a.yaml", "b.yaml"].map(PathBuf::from);
        events.touched(std::slice::from_ref(&a));
        events.touched(std::slice::from_ref(&b));
        assert_eq!(next(&events), Some(ScanScope::Files(BTreeSet::from([a.clone(), b]))));
        events.touched(std::slice::from_ref(&a));
        events.poke();
        events.touched(&[a]);
        assert_eq!(next(&events), Some(ScanScope::All));
        events.touched(&(0..=FEW_FILES).map(|n| n.to_string().into()).collect::<Vec<_>>());
        assert_eq!(next(&events), Some(ScanScope::All));
        assert_eq!(events.wait(Duration::ZERO, Duration::ZERO), Some(ScanScope::All), "time has passed");
        events.stop();
        assert_eq!(next(&events), None);
    }

    #[test]
    fn events_are_held_back_once_in_a_rest() {
        let events = FileEvents::default();
        let begun = Instant::now();
        events.hold();
        let rest = Duration::from_millis(30);
        events.rest(rest);
        assert!(events.lock().resting.is_some_and(|until| until + RECEIVING >= begun + rest));
        let until = Instant::now() + rest;
        events.lock().resting = Some(until);
        events.hold();
        assert!(Instant::now() >= until);
        assert_eq!(events.lock().resting, None, "the other events of the rest are received");
        events.lock().resting = Some(until + Duration::from_secs(3600));
        events.stop();
        events.hold();
    }
}
