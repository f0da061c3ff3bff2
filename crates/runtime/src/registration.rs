//! Registers workloads outside of Kubernetes: runs the machine of `controllers::registration` with the streams of this
//! replica, over the Kubernetes API or the API of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::controllers::registration::{
    Control, Counters, Found, Key, Nanos, Options, Refusal, Registrations, Step, Stream, Written,
};
use ::controllers::{Resource, Target};
use config::{AnyObject, Kind};
use server::registration::{Event, Registrar};
use server::{Configuration, Metric};
use settings::{Settings, StoreBackend};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use crate::kubernetes::answer::Endpoint;
use crate::kubernetes::controllers::ObjectWriter;
use crate::leadership::{Outcome, Writer as _};
use crate::{backend, replica};

/// The maximum number of operations in flight.
const IN_FLIGHT: usize = 16;
/// The number of events that are taken at once.
const TOGETHER: usize = 256;
/// The timeout of an operation.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time in which entries are marked as disconnected when this replica stops.
const ENDING: Duration = Duration::from_secs(3);

/// The queue of events of streams; `None` if workloads are not registered.
pub(crate) type Events = Option<mpsc::Receiver<Event>>;

/// Creates the registrar for the server. Stores that are read-only have none.
pub(crate) fn registrar(settings: &Settings) -> (Option<Registrar>, Events) {
    let is_written = !matches!(backend::chosen(settings), StoreBackend::None | StoreBackend::Files);
    let (registers, health) = (settings.workload_registration.0, settings.workload_health.0);
    if !is_written || !(registers || health) {
        return (None, None);
    }
    let (registrar, events) = Registrar::new(registers, health);
    (Some(registrar), Some(events))
}

/// The counters of a running [`Driver`].
#[derive(Clone, Default)]
pub(crate) struct Shown(Arc<Mutex<Counters>>);

impl Shown {
    /// The metrics, under istiod's names.
    pub(crate) fn metrics(&self) -> impl Fn() -> Vec<Metric> + Send + Sync + 'static {
        let shown = self.clone();
        move || {
            let now = *shown.0.lock().unwrap_or_else(PoisonError::into_inner);
            vec![
                Metric::counter(
                    "auto_registration_success_total",
                    "WorkloadEntries created for proxies that connected",
                    now.success,
                ),
                Metric::counter(
                    "auto_registration_updates_total",
                    "WorkloadEntries whose proxy connected again or from another replica",
                    now.updates,
                ),
                Metric::counter(
                    "auto_registration_unregister_total",
                    "WorkloadEntries whose last stream ended",
                    now.unregister,
                ),
                Metric::counter(
                    "auto_registration_deletes_total",
                    "WorkloadEntries deleted after the grace period",
                    now.deletes,
                ),
                Metric::counter(
                    "auto_registration_errors_total",
                    "Failures to register, update or delete a WorkloadEntry",
                    now.errors,
                ),
            ]
        }
    }
}

/// Runs the machine.
pub(crate) struct Driver {
    endpoint: Endpoint,
    machine: Registrations,
    configuration: Configuration,
    /// The observed changes of WorkloadEntries and WorkloadGroups.
    seen: [Option<u64>; 2],
    entries: BTreeMap<Key, Control>,
    groups: BTreeSet<Key>,
    operations: JoinSet<(Key, Done)>,
    waiting: BTreeMap<Stream, oneshot::Sender<Result<(), Refusal>>>,
    shown: Shown,
    sweeps: Duration,
}

/// A completed operation.
enum Done {
    Read(Result<Found, String>),
    Write(Written),
}

impl Driver {
    /// A driver over this API. `port` tells apart replicas on one machine.
    pub(crate) fn new(settings: &Settings, endpoint: Endpoint, configuration: Configuration, port: u16) -> Driver {
        let longest = settings.max_connection_age;
        let grace = settings.workload_grace_period;
        let options = Options {
            instance: instance(settings, port).into(),
            grace: nanos(grace),
            longest: (!longest.is_zero()).then(|| nanos(longest.saturating_add(longest / 2))),
            health: settings.workload_health.0,
            check: settings.workload_identity_check.0,
            in_flight: IN_FLIGHT,
        };
        Driver {
            endpoint,
            machine: Registrations::new(options),
            configuration,
            seen: [None; 2],
            entries: BTreeMap::new(),
            groups: BTreeSet::new(),
            operations: JoinSet::new(),
            waiting: BTreeMap::new(),
            shown: Shown::default(),
            sweeps: grace.saturating_mul(10).max(Duration::from_millis(100)),
        }
    }

    /// The counters.
    pub(crate) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Handles events until `stopped` becomes true. Then it marks the entries of its proxies as disconnected, because the
    /// proxies may not connect again.
    pub(crate) async fn run(mut self, mut events: mpsc::Receiver<Event>, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.configuration.changes();
        let mut sweep = interval_at(Instant::now() + self.sweeps, self.sweeps);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut taken = Vec::new();
        self.observe();
        loop {
            self.step();
            let deadline = self.machine.deadline();
            tokio::select! {
                count = events.recv_many(&mut taken, TOGETHER) => match count {
                    0 => break,
                    _ => taken.drain(..).for_each(|event| self.take(event)),
                },
                Some(done) = self.operations.join_next() => self.done(done),
                changed = changes.changed() => match changed {
                    Ok(()) => self.observe(),
                    Err(_) => break,
                },
                () = until(deadline) => {}
                _ = sweep.tick() => self.machine.sweep(now()),
                _ = stopped.wait_for(|stop| *stop) => break,
            }
        }
        events.close();
        self.waiting.clear();
        self.machine.leave(now());
        if timeout(ENDING, self.end()).await.is_err() {
            tracing::warn!("not all WorkloadEntries could be marked as disconnected; other replicas clean them up");
        }
    }

    async fn end(&mut self) {
        loop {
            self.step();
            if self.machine.is_idle(now()) {
                return;
            }
            tokio::select! {
                Some(done) = self.operations.join_next() => self.done(done),
                () = until(self.machine.deadline()) => {}
            }
        }
    }

    fn take(&mut self, event: Event) {
        let now = now();
        match event {
            Event::Connect(stream, claim, reply) => {
                self.waiting.insert(stream, reply);
                self.machine.connect(stream, *claim, now);
            }
            Event::Health(stream, error) => self.machine.report(stream, error, now),
            Event::Disconnect(stream) => self.machine.disconnect(stream, now),
        }
    }

    /// Starts the operations that are due.
    fn step(&mut self) {
        for step in self.machine.tick(now()) {
            let endpoint = self.endpoint.clone();
            match step {
                Step::Read { key, group } => drop(self.operations.spawn(async move {
                    let read = read(&endpoint, &key, group.as_ref());
                    let found = timeout(PATIENCE, read).await.unwrap_or_else(|_| Err("timed out".to_owned()));
                    (key, Done::Read(found))
                })),
                Step::Write(key, write) => drop(self.operations.spawn(async move {
                    let writer = ObjectWriter::over(endpoint);
                    let outcome = timeout(PATIENCE, writer.write(&write)).await;
                    let outcome = outcome.unwrap_or_else(|_| Outcome::Retry("timed out".to_owned()));
                    (key, Done::Write(written(outcome)))
                })),
                Step::Reply(stream, reply) => {
                    if let Some(waiting) = self.waiting.remove(&stream) {
                        let _ = waiting.send(reply);
                    }
                }
            }
        }
        *self.shown.0.lock().unwrap_or_else(PoisonError::into_inner) = self.machine.counters();
    }

    fn done(&mut self, done: Result<(Key, Done), JoinError>) {
        match done {
            Ok((key, Done::Read(found))) => self.machine.found(&key, found, now()),
            Ok((key, Done::Write(written))) => self.machine.written(&key, written, now()),
            Err(error) => tracing::error!(%error, "an operation of a WorkloadEntry failed"),
        }
    }

    /// Passes the objects in effect to the machine, if they have changed.
    fn observe(&mut self) {
        let entries = self.configuration.changed_since(Kind::WorkloadEntry, self.seen[0]);
        let groups = self.configuration.changed_since(Kind::WorkloadGroup, self.seen[1]);
        if entries.is_none() && groups.is_none() {
            return;
        }
        if let Some((generation, objects)) = entries {
            self.seen[0] = Some(generation);
            self.entries = objects.iter().filter_map(controlled).collect();
        }
        if let Some((generation, objects)) = groups {
            self.seen[1] = Some(generation);
            let kept = objects.iter().map(AnyObject::meta).filter(|meta| meta.deletion_timestamp.is_none());
            self.groups = kept.map(|meta| (meta.namespace.clone(), meta.name.clone())).collect();
        }
        self.machine.observe(self.entries.clone(), self.groups.clone(), now());
    }
}

/// A WorkloadEntry that a replica controls.
fn controlled(object: &AnyObject) -> Option<(Key, Control)> {
    let meta = object.meta();
    let control = Control::of(|name| meta.annotation(name));
    let concerns = control.registered || control.connected.is_some() || meta.healthy().is_some();
    let key = (meta.namespace.clone(), meta.name.clone());
    (concerns && !control.controller.is_empty()).then_some((key, control))
}

/// The name of this replica in WorkloadEntries.
fn instance(settings: &Settings, port: u16) -> String {
    match (settings.pod_name.as_str(), backend::chosen(settings)) {
        // Several replicas may run on one machine.
        ("", StoreBackend::Etcd) => format!("{}:{port}", replica::hostname()),
        ("", _) => replica::hostname(),
        (name, _) => name.to_owned(),
    }
}

async fn read(endpoint: &Endpoint, (namespace, name): &Key, group: Option<&Target>) -> Result<Found, String> {
    let entry = endpoint.get(&Target::new(Resource::WORKLOAD_ENTRY, namespace, name)).await?;
    let group = match group.filter(|_| entry.is_none()) {
        Some(group) => endpoint.get(group).await?,
        None => None,
    };
    Ok(Found { entry, group })
}

fn written(outcome: Outcome) -> Written {
    match outcome {
        Outcome::Written => Written::Done,
        Outcome::Gone | Outcome::Stale => Written::Changed,
        Outcome::Retry(reason) => Written::Failed(reason),
        Outcome::Refused(reason) => Written::Refused(reason),
    }
}

fn now() -> Nanos {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos)
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Waits until this time; without one, forever.
fn until(at: Option<Nanos>) -> impl Future<Output = ()> {
    let wait = at.map(|at| Duration::from_nanos(at.saturating_sub(now()).max(0).unsigned_abs()));
    async move {
        match wait {
            Some(wait) => sleep(wait).await,
            None => std::future::pending().await,
        }
    }
}
