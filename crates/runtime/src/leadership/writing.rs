//! Executes writes with bounded concurrency and retries.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::term::{Clock, Term};
use super::{Job, Options, Outcome, Stats, Writer, stopped};

/// The timeout of a write.
const LONGEST: Duration = Duration::from_secs(60);
/// The safety margin before another replica may lead, in which no write is in flight.
const MARGIN: Duration = Duration::from_secs(2);

/// Receives jobs and executes them while this replica leads.
pub(crate) async fn run<J: Job, W: Writer<J>>(
    mut jobs: mpsc::Receiver<Vec<J>>,
    writer: Arc<W>,
    options: &Options,
    stats: &Stats,
    (clock, mut leading): (Clock, watch::Receiver<Option<Term>>),
    mut stop: watch::Receiver<bool>,
) {
    let mut work = Work {
        writer,
        clock,
        options,
        stats,
        waiting: BTreeMap::new(),
        in_flight: HashMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        work.begin(*leading.borrow());
        let due = work.next_due();
        tokio::select! {
            batch = jobs.recv(), if work.waiting.len() < options.backlog => match batch {
                Some(batch) if leading.borrow().is_some() => batch.into_iter().for_each(|job| work.take(job)),
                Some(_) => {}
                None => break,
            },
            Some(done) = work.tasks.join_next_with_id() => work.done(done),
            Ok(()) = leading.changed() => if leading.borrow_and_update().is_none() {
                work.end();
            },
            () = until(due) => {}
            () = stopped(&mut stop) => return,
        }
    }
    // Writes in flight finish; no new one starts.
    while work.tasks.join_next().await.is_some() {}
}

/// The pending writes and those in flight.
struct Work<'a, J: Job, W> {
    writer: Arc<W>,
    clock: Clock,
    options: &'a Options,
    stats: &'a Stats,
    waiting: BTreeMap<J::Key, Waiting<J>>,
    in_flight: HashMap<Id, Waiting<J>>,
    tasks: JoinSet<Outcome>,
}

struct Waiting<J> {
    job: J,
    /// The earliest start.
    due: Instant,
    failures: u32,
}

impl<J: Job, W: Writer<J>> Work<'_, J, W> {
    /// Adds a job, which replaces a pending one for the same object.
    fn take(&mut self, job: J) {
        let waiting = Waiting { due: Instant::now(), failures: 0, job };
        self.waiting.insert(waiting.job.key().clone(), waiting);
    }

    /// Drops pending jobs and cancels those in flight.
    fn end(&mut self) {
        self.waiting.clear();
        self.tasks.abort_all();
    }

    /// Starts as many jobs as allowed. Each ends before another replica may lead.
    fn begin(&mut self, term: Option<Term>) {
        let time = self.clock.elapsed();
        let Some(term) = term.filter(|term| time < term.ends) else {
            return;
        };
        let limit = term.over.saturating_sub(time + MARGIN).min(LONGEST);
        let now = Instant::now();
        while self.in_flight.len() < self.options.concurrency {
            let free = |key: &J::Key| !self.in_flight.values().any(|busy| busy.job.key() == key);
            let ready = self.waiting.iter().find(|(key, waiting)| waiting.due <= now && free(key));
            let Some(key) = ready.map(|(key, _)| key.clone()) else {
                return;
            };
            let Some(waiting) = self.waiting.remove(&key) else {
                return;
            };
            let (writer, job) = (Arc::clone(&self.writer), waiting.job.clone());
            let task = self.tasks.spawn(async move {
                let written = timeout(limit, writer.write(&job)).await;
                written.unwrap_or_else(|_| Outcome::Retry("timed out".to_owned()))
            });
            self.in_flight.insert(task.id(), waiting);
        }
    }

    /// The time at which the next job in backoff may start.
    fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        self.waiting.values().map(|waiting| waiting.due).filter(|due| *due > now).min()
    }

    fn done(&mut self, done: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match done {
            Ok(done) => done,
            Err(error) if error.is_cancelled() => {
                self.in_flight.remove(&error.id());
                return;
            }
            Err(error) => {
                tracing::error!(%error, "writing an object panicked");
                (error.id(), Outcome::Gone)
            }
        };
        let Some(waiting) = self.in_flight.remove(&id) else {
            return;
        };
        match outcome {
            Outcome::Written => Stats::add(&self.stats.written),
            Outcome::Gone | Outcome::Stale => Stats::add(&self.stats.dropped),
            Outcome::Retry(reason) => self.again(waiting, &reason),
            Outcome::Refused(reason) => {
                Stats::add(&self.stats.dropped);
                tracing::warn!(object = %waiting.job.key(), reason, "a write was rejected");
            }
        }
    }

    /// Retries after a backoff, unless a newer job is pending.
    fn again(&mut self, mut waiting: Waiting<J>, reason: &str) {
        Stats::add(&self.stats.retried);
        let key = waiting.job.key().clone();
        tracing::debug!(object = %key, reason, failures = waiting.failures, "cannot write an object, will retry");
        if self.waiting.contains_key(&key) {
            return;
        }
        waiting.due = Instant::now() + backoff(self.options, waiting.failures);
        waiting.failures += 1;
        self.waiting.insert(key, waiting);
    }
}

fn backoff(options: &Options, failures: u32) -> Duration {
    let doubled = options.backoff.checked_mul(1 << failures.min(16));
    doubled.map_or(options.backoff_limit, |doubled| doubled.min(options.backoff_limit))
}

/// Waits until a time; forever if there is none.
pub(crate) async fn until(due: Option<Instant>) {
    match due {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
