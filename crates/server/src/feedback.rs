//! What became of each configuration object: counted beside the world, handed out to be written.
//!
//! Sources say which objects came, changed or went ([`Observation`]); the hub knows what proxies accepted. After every
//! turn of work, when all responses are on their way, the objects that are due are counted ([`world::World::reach`],
//! [`xds::Hub::tally`]), and the statuses that differ go into a bounded channel. Discovery never waits for it: a full
//! channel means that nothing is counted until there is room, and a turn ends when its time is up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use config::{Diagnostic, Kind, Meta, ObjectKey, Timestamp};
use flow::CellId;
use serde_json::{Map, Value};
use status::{Ask, Counts, Intent, News, Now, Planner, Refusal, Settings, Subject, Unmade};
use tokio::sync::{Notify, mpsc};
use world::Conflicts;
use xds::{Moment, Question};

use crate::origin::Served;
use crate::world_handle::Hub;

/// Batches of statuses that may wait for who writes them.
const QUEUE: usize = 4;
/// How long one turn may count.
const TURN: Duration = Duration::from_millis(10);

/// What a source tells of an object, beside what it commits.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation {
    /// It came, or changed. Also objects that are not valid, and are not committed, are told of.
    Seen(Box<Subject>),
    /// It went.
    Gone(ObjectKey),
}

impl Observation {
    /// An object that came or changed: what its metadata says, what is wrong with it, and the status that is stored.
    pub fn seen(meta: &Meta, diagnostics: Vec<Diagnostic>, status: Option<Value>) -> Observation {
        Observation::Seen(Box::new(Subject {
            key: meta.key(),
            uid: meta.uid.clone(),
            generation: meta.generation,
            diagnostics,
            status,
        }))
    }
}

/// Knows what is to be told of objects.
pub(crate) struct Tracker {
    pub(crate) planner: Planner,
    /// The objects that are watched for what is to be said of them because of others.
    watched: BTreeMap<ObjectKey, CellId>,
    /// Told when there are shares to be published.
    pub(crate) unshared: Arc<Notify>,
    out: Option<mpsc::Sender<Vec<Intent>>>,
    /// When the clock that moments are read from began.
    start: SystemTime,
    /// The channel was full: not before this time again.
    blocked: Option<Moment>,
    /// Time spent, statuses handed out, objects counted.
    seconds: f64,
    planned: u64,
    counted: u64,
}

impl Tracker {
    pub(crate) fn new(started: Instant) -> Tracker {
        Tracker {
            planner: Planner::new(Settings::default()),
            watched: BTreeMap::new(),
            unshared: Arc::default(),
            out: None,
            start: SystemTime::now().checked_sub(started.elapsed()).unwrap_or(UNIX_EPOCH),
            blocked: None,
            seconds: 0.0,
            planned: 0,
            counted: 0,
        }
    }

    /// From now on statuses are handed out to the receiver, once this replica leads.
    pub(crate) fn attach(&mut self, settings: Settings) -> mpsc::Receiver<Vec<Intent>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.planner.set(settings);
        self.out = Some(sender);
        receiver
    }

    pub(crate) fn lead(&mut self, leading: bool, now: Moment) {
        self.planner.lead(leading, now);
    }

    /// Takes in what sources told; `epoch` is that of the commit that it came with.
    pub(crate) fn observe(&mut self, observed: Vec<Observation>, served: &mut Served, epoch: u64, now: Moment) {
        for observation in observed {
            match observation {
                Observation::Seen(subject) if status::has_status(subject.key.kind) => {
                    let key = subject.key.clone();
                    self.planner.saw(*subject, epoch, now);
                    self.watch(key, served, now);
                }
                Observation::Seen(subject) if subject.key.kind == Kind::MeshConfig => {
                    self.watch(subject.key.clone(), served, now);
                }
                Observation::Seen(_) => {}
                Observation::Gone(key) => {
                    self.planner.gone(&key);
                    self.watched
                        .remove(&key)
                        .into_iter()
                        .for_each(|cell| served.0.close(cell));
                }
            }
        }
    }

    /// Takes in what is to be said of objects because of others.
    pub(crate) fn conflict(&mut self, conflicts: &[(ObjectKey, Conflicts)], now: Moment) {
        for (key, conflicts) in conflicts {
            tell(key, conflicts);
            self.planner.conflicted(key, conflicts, now);
        }
    }

    /// Of the patches of these EnvoyFilters something else became.
    pub(crate) fn patched(&mut self, filters: &[ObjectKey], now: Moment) {
        filters.iter().for_each(|key| self.planner.again(key, now));
    }

    /// Watches an object; one that another object of its name follows is watched already, but not known to be.
    fn watch(&mut self, key: ObjectKey, served: &mut Served, now: Moment) {
        if let Some((cell, conflicts)) = served.0.watch(&key) {
            if !self.watched.contains_key(&key) {
                tell(&key, &conflicts);
            }
            self.planner.conflicted(&key, &conflicts, now);
            if let Some(before) = self.watched.insert(key, cell) {
                served.0.close(before);
            }
        }
    }

    /// Counts what is due, and hands out what is to be written.
    pub(crate) fn turn(&mut self, served: &Served, hub: &mut Hub, now: Moment) {
        let news = hub.take_news();
        let news = News {
            answered: news.answered,
            refused: news.refused,
            members: news.members,
        };
        self.planner.heard(news, now);
        self.announce();
        if self
            .out
            .as_ref()
            .is_some_and(|out| !out.is_closed() && out.capacity() == 0)
        {
            self.blocked = Some(now + TURN);
            return;
        }
        self.blocked = None;
        let begun = Instant::now();
        let asks = self.planner.due(now);
        if asks.is_empty() {
            return;
        }
        let wall = Timestamp::from_unix(self.wall(now));
        let counted = self.count(asks.into(), served, hub, now, begun);
        let intents = self.planner.plan(counted, Now { moment: now, wall });
        self.seconds += begun.elapsed().as_secs_f64();
        self.planned += intents.len() as u64;
        self.announce();
        if let Some(out) = &self.out
            && !intents.is_empty()
            && out.try_send(intents).is_err()
        {
            // There was room a moment ago: whoever wrote has gone.
            self.planner.lead(false, now);
            self.out = None;
        }
    }

    /// Says that there are shares to be published.
    fn announce(&self) {
        if self.planner.has_unshared() {
            self.unshared.notify_one();
        }
    }

    /// When there is something to do next.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let next = self.planner.deadline()?;
        Some(self.blocked.map_or(next, |blocked| next.max(blocked)))
    }

    /// All objects, by kind, namespace and name, with their state (`/debug/objectz`).
    pub(crate) fn page(&self) -> Value {
        let objects = self.planner.reports().map(|report| {
            let mut object = Map::new();
            object.insert("kind".into(), report.key.kind.name().into());
            object.insert("namespace".into(), (*report.key.namespace).into());
            object.insert("name".into(), (*report.key.name).into());
            let status = report.status.map_or(Value::Null, status::Status::to_json);
            object.insert("status".into(), status);
            Value::Object(object)
        });
        objects.collect()
    }

    /// For metrics: how many objects there are and in which state, and what was done.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut refused = 0;
        for report in self.planner.reports() {
            refused += usize::from(report.status.is_some_and(|s| s.proxies.counts.refused > 0));
        }
        let mut sizes = self.planner.sizes().to_vec();
        sizes.push(("refused", refused));
        Numbers {
            sizes: sizes.into_iter().map(|(name, size)| (name, size as f64)).collect(),
            planned: self.planned as f64,
            counted: self.counted as f64,
            seconds: self.seconds,
        }
    }

    /// Counts as many as there is time for; the others are due again.
    fn count(
        &mut self,
        mut asks: VecDeque<Ask>,
        served: &Served,
        hub: &Hub,
        now: Moment,
        begun: Instant,
    ) -> Vec<(ObjectKey, Counts)> {
        let (mut keys, mut questions) = (Vec::new(), Vec::new());
        let mut unmade: Vec<Vec<Unmade>> = Vec::new();
        let mut counted: Vec<(ObjectKey, Counts)> = Vec::new();
        while let Some(ask) = asks.pop_front() {
            let Some(since) = ask.since else {
                counted.push((ask.key, Counts::default()));
                continue;
            };
            let reach = served.0.reach(&ask.key);
            unmade.push(reach.unmade.into_iter().map(told).collect());
            questions.push(Question {
                resources: reach.resources,
                catalogues: reach.catalogues,
                maybe: reach.maybe,
                since,
            });
            keys.push(ask.key);
            if begun.elapsed() > TURN {
                break;
            }
        }
        asks.iter().for_each(|ask| self.planner.again(&ask.key, now));
        self.counted += keys.len() as u64;
        let tallies = hub.tally(&questions).into_iter().zip(unmade);
        let tallies = tallies.map(|(tally, unmade)| counts(tally, unmade));
        counted.extend(keys.into_iter().zip(tallies));
        counted
    }

    /// Seconds since 1970.
    fn wall(&self, now: Moment) -> i64 {
        let since = (self.start + now).duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    }
}

/// What metrics tell of the feedback.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) sizes: Vec<(&'static str, f64)>,
    pub(crate) planned: f64,
    pub(crate) counted: f64,
    pub(crate) seconds: f64,
}

fn told(unmade: world::Unmade) -> Unmade {
    Unmade {
        index: unmade.index,
        resources: unmade.resources,
        resource: unmade.resource.to_string(),
        why: unmade.why.to_string(),
    }
}

fn counts(tally: xds::Tally, unmade: Vec<Unmade>) -> Counts {
    let refusal = tally.objection.map(|objection| Refusal {
        proxy: objection.proxy.to_string(),
        kind: objection.kind.short_name().to_owned(),
        resource: joined(&objection.resources),
        message: objection.message.to_string(),
    });
    Counts {
        total: tally.total,
        running: tally.running,
        refused: tally.refused,
        pending: tally.pending,
        refusal,
        unmade,
    }
}

/// Says what is to be said of the mesh's settings, which have no status that could.
fn tell(key: &ObjectKey, conflicts: &Conflicts) {
    for conflict in conflicts.iter().filter(|_| key.kind == Kind::MeshConfig) {
        tracing::warn!("{conflict}");
    }
}

fn joined(names: &[Arc<str>]) -> String {
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    names.join(", ")
}
