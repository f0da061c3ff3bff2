//! Registers workloads outside of Kubernetes, such as virtual machines, as WorkloadEntries while their proxies are
//! connected.
//!
//! ```text
//! streams: connect, report, disconnect ─► Registrations ─► Read, Write ─► API ─► found, written ─┐
//! observed WorkloadEntries, WorkloadGroups ─►  ▲   └─► Reply: the stream goes on or is refused   │
//!                                              └─────────────────────────────────────────────────┘
//! ```
//!
//! Every replica runs this machine for its own streams; the annotations of an entry name the replica that controls it. Each
//! decision is made on an entry that was read for it, and each write names the version that was read. So of two
//! replicas that write at the same time, one reads again. At most one operation is in flight for an entry, and
//! [`Options::in_flight`] in total; the others wait in order.
//!
//! - While a proxy is connected, its entry exists and is marked as connected, by the replica to which it connected last.
//!   A replica takes control again if another one marks the entry as disconnected or the entry is deleted.
//! - When the last stream of an entry ends, the replica that controls it marks it as disconnected, and deletes it after the grace
//!   period unless the proxy has connected to any replica since.
//! - [`Registrations::sweep`] does the same for entries that replicas left behind.

mod claim;
mod decide;
mod entry;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use claim::{Claim, Of, Proof, Refusal};
use decide::Next;
use entry::Report;
pub use entry::{Control, Nanos};
use record::{Effect, Job, Live, Record};
use serde_json::Value;

use crate::{Resource, Target, Write};

/// The number of failures after which connecting proxies are refused. Other work is retried without end.
const FAILURES: u32 = 3;
/// The number of concurrent changes after which a write has failed.
const CHANGES: u32 = 6;
/// The backoff after the first failure, and the maximum.
const BACKOFF: (Nanos, Nanos) = (50_000_000, 30_000_000_000);
/// The time between two clean-ups of a sweep.
const CLEANING: Nanos = 50_000_000;
/// The minimum time between two reports of the health of a workload that are written.
const REPORTS: Nanos = 500_000_000;
/// The longest message of a report, in characters.
const MESSAGE: usize = 1024;

/// The namespace and the name of an object.
pub type Key = (Arc<str>, Arc<str>);

/// The number of a stream, unique in this process.
pub type Stream = u64;

/// Settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this replica.
    pub instance: Arc<str>,
    /// The time for which the entry of a disconnected proxy is kept.
    pub grace: Nanos,
    /// No connection lasts longer; none if there is no limit.
    pub longest: Option<Nanos>,
    /// Whether the health of workloads is written.
    pub health: bool,
    /// Whether proxies must prove their identity.
    pub check: bool,
    /// The maximum number of operations in flight.
    pub in_flight: usize,
}

/// An operation to execute.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Read an entry, and the WorkloadGroup if the entry does not exist. The result is passed to
    /// [`Registrations::found`].
    Read {
        /// The entry.
        key: Key,
        /// The WorkloadGroup, if one is needed.
        group: Option<Target>,
    },
    /// Write an entry. The result is passed to [`Registrations::written`].
    Write(Key, Write),
    /// Tell a connecting stream whether it may go on.
    Reply(Stream, Result<(), Refusal>),
}

/// The objects of a [`Step::Read`]; `None` if there is none.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The entry.
    pub entry: Option<Value>,
    /// The WorkloadGroup.
    pub group: Option<Value>,
}

/// The outcome of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// The object was written.
    Done,
    /// The object was changed, created or deleted since it was read.
    Changed,
    /// A temporary failure.
    Failed(String),
    /// A permanent failure.
    Refused(String),
}

/// Counters, under istiod's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Created entries.
    pub success: u64,
    /// Entries of which this replica took control.
    pub updates: u64,
    /// Entries of which the last stream ended.
    pub unregister: u64,
    /// Deleted entries.
    pub deletes: u64,
    /// Failures.
    pub errors: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Registrations {
    options: Options,
    records: BTreeMap<Key, Record>,
    /// The entries of connected streams.
    streams: BTreeMap<Stream, Key>,
    due: BTreeSet<(Nanos, Key)>,
    in_flight: usize,
    steps: Vec<Step>,
    /// The observed entries that a replica controls.
    entries: BTreeMap<Key, Control>,
    groups: BTreeSet<Key>,
    counters: Counters,
}

impl Registrations {
    /// A machine without streams.
    pub fn new(options: Options) -> Registrations {
        Registrations {
            options,
            records: BTreeMap::new(),
            streams: BTreeMap::new(),
            due: BTreeSet::new(),
            in_flight: 0,
            steps: Vec::new(),
            entries: BTreeMap::new(),
            groups: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// A proxy connects. [`Step::Reply`] tells whether it may.
    pub fn connect(&mut self, stream: Stream, claim: Claim, now: Nanos) {
        let key: Key = (claim.namespace.clone(), claim.entry());
        self.streams.insert(stream, key.clone());
        let live = Live { claim: Arc::new(claim), at: now, waiting: true };
        let record = self.records.entry(key.clone()).or_default();
        record.streams.insert(stream, live);
        record.left = None;
        self.wake(&key, now);
    }

    /// A proxy reports the health of its workload.
    pub fn report(&mut self, stream: Stream, error: Option<String>, now: Nanos) {
        let Some(key) = self.streams.get(&stream).cloned() else { return };
        let Some(record) = self.records.get_mut(&key).filter(|_| self.options.health) else { return };
        let error = error.map(|text| text.chars().take(MESSAGE).collect());
        record.report = Some(Report { error, at: now });
        let at = now.max(record.reported.saturating_add(REPORTS));
        self.wake(&key, at);
    }

    /// A stream has ended. Unknown ones, and ones that were refused, are ignored.
    pub fn disconnect(&mut self, stream: Stream, now: Nanos) {
        let Some(key) = self.streams.remove(&stream) else { return };
        let Some(record) = self.records.get_mut(&key) else { return };
        record.streams.remove(&stream);
        if record.streams.is_empty() {
            record.left = record.wrote;
            record.report = None;
            self.wake(&key, now);
        }
    }

    /// This replica ends: all streams are treated as ended.
    pub fn leave(&mut self, now: Nanos) {
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            self.disconnect(stream, now);
        }
    }

    /// Whether nothing is left to do at this time.
    pub fn is_idle(&self, now: Nanos) -> bool {
        self.in_flight == 0 && self.steps.is_empty() && self.due.first().is_none_or(|(at, _)| *at > now)
    }

    /// Sets the observed entries that a replica controls, and the observed WorkloadGroups. Entries of connected proxies
    /// that were deleted or marked as disconnected are registered again.
    pub fn observe(&mut self, entries: BTreeMap<Key, Control>, groups: BTreeSet<Key>, now: Nanos) {
        let connected = |all: &BTreeMap<Key, Control>, key: &Key| all.get(key).is_some_and(Control::is_connected);
        let is_new = |record: &Record| {
            let of = record.streams.values().filter_map(|live| live.claim.group());
            of.map(|group| (group.namespace, group.name))
                .any(|group| groups.contains(&group) && !self.groups.contains(&group))
        };
        let lost = |key: &Key| connected(&self.entries, key) && !connected(&entries, key);
        let affected =
            self.records.iter().filter(|(key, record)| !record.streams.is_empty() && (lost(key) || is_new(record)));
        let affected: Vec<Key> = affected.map(|(key, _)| key.clone()).collect();
        (self.entries, self.groups) = (entries, groups);
        affected.iter().for_each(|key| self.wake(key, now));
    }

    /// Looks for entries that were left behind: by another replica, by this one before it was restarted, or because an event
    /// was missed. Call it regularly, and not before proxies have had the time to connect again after a restart.
    pub fn sweep(&mut self, now: Nanos) {
        let is_live = |record: Option<&Record>| record.is_some_and(|record| !record.streams.is_empty());
        let mut keys: Vec<Key> = Vec::new();
        for (key, record) in &self.records {
            if is_live(Some(record)) && !self.entries.get(key).is_some_and(Control::is_connected) {
                keys.push(key.clone());
            }
        }
        for (key, control) in &self.entries {
            if is_live(self.records.get(key)) {
                continue;
            }
            let is_own = control.is_connected() && control.controller == self.options.instance;
            let has_left = |at| now.saturating_sub(at) >= self.options.grace;
            let is_over = |at| self.options.longest.is_some_and(|longest| now.saturating_sub(at) > longest);
            let is_stale = match control.connected {
                Some(at) => is_over(at),
                None => control.disconnected.is_some_and(has_left),
            };
            if is_own || is_stale {
                let record = self.records.entry(key.clone()).or_default();
                record.clean |= is_stale;
                record.left = record.left.max(control.connected.filter(|_| is_own));
                keys.push(key.clone());
            }
        }
        for (n, key) in (0..).zip(keys) {
            self.wake(&key, now.saturating_add(n * CLEANING));
        }
    }

    /// The time at which [`Registrations::tick`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        let has_place = self.in_flight < self.options.in_flight;
        self.due.first().filter(|_| has_place).map(|(at, _)| *at)
    }

    /// Starts what is due, and returns the steps since the last call.
    pub fn tick(&mut self, now: Nanos) -> Vec<Step> {
        while self.deadline().is_some_and(|at| at <= now)
            && let Some((_, key)) = self.due.pop_first()
        {
            let Some(record) = self.records.get_mut(&key) else { continue };
            record.job = Job::Busy(Effect::Read, false);
            self.in_flight += 1;
            let group = record.group();
            record.read.clone_from(&group);
            self.steps.push(Step::Read { key, group });
        }
        std::mem::take(&mut self.steps)
    }

    /// Reads an entry at this time, unless that is planned earlier.
    fn wake(&mut self, key: &Key, at: Nanos) {
        let Some(record) = self.records.get_mut(key) else { return };
        match &mut record.job {
            Job::Busy(_, again) => *again = true,
            Job::Due(before) if *before <= at => {}
            job => {
                if let Job::Due(before) = *job {
                    self.due.remove(&(before, key.clone()));
                }
                *job = Job::Due(at);
                self.due.insert((at, key.clone()));
            }
        }
    }

    /// Handles the result of [`Step::Read`].
    pub fn found(&mut self, key: &Key, found: Result<Found, String>, now: Nanos) {
        let again = self.free(key);
        match found {
            Err(reason) => self.failed(key, reason, now),
            Ok(found) => match self.decide(key, &found, now) {
                Next::Read => self.wake(key, now),
                Next::Write(write, effect) => {
                    if let Some(record) = self.records.get_mut(key) {
                        record.job = Job::Busy(effect, again);
                        self.in_flight += 1;
                        self.steps.push(Step::Write(key.clone(), write));
                    }
                }
                Next::Settled => self.settled(key, again, now),
            },
        }
    }

    /// Handles the result of [`Step::Write`].
    pub fn written(&mut self, key: &Key, outcome: Written, now: Nanos) {
        let Some(Job::Busy(effect, _)) = self.records.get(key).map(|record| record.job) else { return };
        self.free(key);
        match outcome {
            Written::Done => {
                self.apply(key, effect, now);
                self.wake(key, now);
            }
            Written::Changed if self.records.get(key).is_some_and(|record| record.failures >= CHANGES) => {
                self.failed(key, "it is changed or deleted all the time".to_owned(), now);
            }
            Written::Changed => self.retry(key, now),
            Written::Failed(reason) => self.failed(key, reason, now),
            Written::Refused(reason) => {
                self.counters.errors += 1;
                tracing::warn!(entry = %named(key), reason, "cannot write a WorkloadEntry");
                self.refuse(key, |_| Some(Refusal::Write { entry: named(key), reason: reason.clone() }));
                if let Some(record) = self.records.get_mut(key) {
                    (record.left, record.report, record.clean) = (None, None, false);
                }
                self.settled(key, false, now);
            }
        }
    }

    /// Ends the operation of an entry. Returns whether it must be read again.
    fn free(&mut self, key: &Key) -> bool {
        let Some(record) = self.records.get_mut(key) else { return false };
        let Job::Busy(_, again) = std::mem::take(&mut record.job) else { return false };
        self.in_flight = self.in_flight.saturating_sub(1);
        again
    }

    /// A decision found nothing more to do.
    fn settled(&mut self, key: &Key, again: bool, now: Nanos) {
        let Some(record) = self.records.get_mut(key) else { return };
        record.failures = 0;
        for (stream, live) in &mut record.streams {
            if std::mem::take(&mut live.waiting) {
                self.steps.push(Step::Reply(*stream, Ok(())));
            }
        }
        if again {
            self.wake(key, now);
        } else if record.is_over() {
            self.records.remove(key);
        }
    }

    /// An operation failed for now.
    fn failed(&mut self, key: &Key, reason: String, now: Nanos) {
        self.counters.errors += 1;
        let Some(record) = self.records.get_mut(key) else { return };
        if record.failures == 0 {
            tracing::warn!(entry = %named(key), reason, "cannot read or write a WorkloadEntry, will retry");
        }
        if record.failures + 1 >= FAILURES {
            self.refuse(key, |_| Some(Refusal::Unavailable { entry: named(key), reason: reason.clone() }));
        }
        self.retry(key, now);
    }

    fn retry(&mut self, key: &Key, now: Nanos) {
        let Some(record) = self.records.get_mut(key) else { return };
        let (first, longest) = BACKOFF;
        let wait = first.saturating_mul(1 << record.failures.min(20)).min(longest);
        record.failures = record.failures.saturating_add(1);
        if record.is_over() {
            self.records.remove(key);
        } else {
            self.wake(key, now.saturating_add(wait));
        }
    }

    /// Refuses waiting streams of an entry.
    fn refuse(&mut self, key: &Key, reason: impl Fn(&Claim) -> Option<Refusal>) {
        let Some(record) = self.records.get_mut(key) else { return };
        let refused = record.streams.iter().filter(|(_, live)| live.waiting);
        let refused: Vec<_> = refused.filter_map(|(stream, live)| Some((*stream, reason(&live.claim)?))).collect();
        for (stream, refusal) in refused {
            record.streams.remove(&stream);
            self.streams.remove(&stream);
            self.steps.push(Step::Reply(stream, Err(refusal)));
        }
        if record.streams.is_empty() {
            record.left = record.left.or(record.wrote);
            record.report = None;
        }
    }

    /// Applies the effect of a write.
    fn apply(&mut self, key: &Key, effect: Effect, now: Nanos) {
        let Some(record) = self.records.get_mut(key) else { return };
        let entry = named(key);
        record.failures = 0;
        match effect {
            Effect::Read => {}
            Effect::Created(at) | Effect::Connected(at) => {
                record.wrote = Some(at);
                match effect {
                    Effect::Created(_) => self.counters.success += 1,
                    _ => self.counters.updates += 1,
                }
                tracing::info!(entry, created = matches!(effect, Effect::Created(_)), "registered a WorkloadEntry");
                if record.streams.is_empty() {
                    record.left = Some(at);
                }
            }
            Effect::Reported => record.reported = now,
            Effect::Disconnected => {
                (record.left, record.wrote, record.clean) = (None, None, true);
                self.counters.unregister += 1;
                tracing::info!(entry, "the proxy of a WorkloadEntry has disconnected");
            }
            Effect::Deleted | Effect::Forgotten => {
                record.clean = false;
                if effect == Effect::Deleted {
                    self.counters.deletes += 1;
                }
                tracing::info!(entry, "cleaned up a WorkloadEntry whose proxy has disconnected");
            }
        }
    }
}

/// `NAMESPACE/NAME`.
fn named((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

fn target((namespace, name): &Key) -> Target {
    Target::new(Resource::WORKLOAD_ENTRY, namespace, name)
}
