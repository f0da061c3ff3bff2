//! Runs rules: for one cell, containing panics, and for many cells on several threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::core::Core;
use crate::erased::{self, AnyKey, SharedRow};
use crate::reads::ReadsNow;
use crate::schema::Derive;
use crate::{Reads, Rule};

/// The maximum number of jobs that a thread takes at once. It takes fewer if other threads would be idle.
const CHUNK: usize = 64;

/// The result of a run.
pub(crate) struct Derived {
    pub(crate) reads: ReadsNow,
    pub(crate) outcome: Outcome,
}

pub(crate) enum Outcome {
    /// The row is equal to the previous one.
    Same,
    /// The row differs.
    Row(Option<SharedRow>),
    /// The rule panicked with this message.
    Panicked(String),
}

impl Derived {
    /// The row, for a cell without a previous row.
    pub(crate) fn row(&self) -> Option<&SharedRow> {
        match &self.outcome {
            Outcome::Row(row) => row.as_ref(),
            Outcome::Same | Outcome::Panicked(_) => None,
        }
    }
}

/// Derives a row and compares it with the previous one.
pub(crate) fn derive<R: Rule>(cx: &Reads<'_>, key: &dyn AnyKey, before: Option<&SharedRow>) -> Outcome {
    let now = R::derive(cx, erased::key(key));
    if now.as_ref() == before.map(|row| erased::row(&**row)) {
        return Outcome::Same;
    }
    Outcome::Row(now.map(|row| Arc::new(row) as SharedRow))
}

impl Core {
    /// Runs a rule for one cell, given its previous reads and row.
    pub(crate) fn run(
        &self,
        relation: usize,
        derive: Derive,
        key: &dyn AnyKey,
        before: &[u32],
        row: Option<&SharedRow>,
    ) -> Derived {
        let cx = Reads::new(self, relation, before);
        // Rules see the engine through shared references, and the list of reads that an unwound run leaves behind is
        // always consistent.
        let outcome = catch_unwind(AssertUnwindSafe(|| derive(&cx, key, row)));
        let outcome = outcome.unwrap_or_else(|panic| Outcome::Panicked(message(&*panic)));
        Derived { reads: cx.finish(), outcome }
    }

    /// Runs a rule for existing cells. The results are in the order of `cells`.
    pub(crate) fn run_all(&self, relation: usize, derive: Derive, cells: &[u32]) -> Vec<(u32, Derived)> {
        self.spread(cells, |cell| {
            let key = self.key(relation, *cell)?;
            let before = self.graph.node(*cell).reads.as_slice();
            Some((*cell, self.run(relation, derive, key, before, self.row(relation, *cell))))
        })
    }

    /// Calls `work` for each job, on several threads if there are enough jobs. Results are in the order of the jobs.
    pub(crate) fn spread<J: Sync, T: Send>(&self, jobs: &[J], work: impl Fn(&J) -> Option<T> + Sync) -> Vec<T> {
        let (threads, count) = (self.threads, jobs.len());
        if threads < 2 || count < self.schema.parallel_from.max(2) {
            return jobs.iter().filter_map(work).collect();
        }
        let size = (count / (threads * 4)).clamp(1, CHUNK);
        let chunks: Vec<Mutex<Vec<T>>> = (0..count.div_ceil(size)).map(|_| Mutex::default()).collect();
        on_threads(threads, chunks.len(), &|at| {
            let jobs = &jobs[at * size..count.min((at + 1) * size)];
            *lock(&chunks[at]) = jobs.iter().filter_map(&work).collect();
        });
        chunks.iter().flat_map(|chunk| std::mem::take(&mut *lock(chunk))).collect()
    }
}

/// Calls `work` with each number below `count` on up to `threads` threads, including this one. Not generic, so that it
/// is compiled once.
fn on_threads(threads: usize, count: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let worker = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|number| *number < count).for_each(work);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            // If a thread cannot be started, the others do its work.
            let _ = std::thread::Builder::new().name("flow".into()).spawn_scoped(scope, worker);
        }
        worker();
    });
}

/// Locks a mutex. No rule panics under these locks: panics are caught where rules run.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}
