//! Tracks the status of configuration objects and hands out the statuses to write.
//!
//! Sources report objects ([`Observed`]); the hub knows the ACKs of proxies. After every turn of the world thread, when
//! all responses are queued, it counts the objects that are due ([`world::World::reach`], [`xds::Hub::tally`]) and
//! sends changed statuses into a bounded channel. xDS never waits for this: nothing is counted while the channel is
//! full, and counting stops when its time is used up.

use std::collections::{BTreeMap, VecDeque, btree_map};
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::{Kind, ObjectKey, Observed};
use flow::CellId;
use status::{
    CountRequest, Counts, Elapsed, Intent, KubeStatus, Nack, Now, Planner, ProxyActivity, Settings, SkippedPatch,
    Status, Truth,
};
use tokio::sync::{Notify, mpsc};
use world::{Conflicts, Facts};
use xds::{Listed, Question};

use crate::clock::Clock;
use crate::served_world::{Hub, ServedWorld};

/// The capacity of the channel to the status writer, in batches.
const QUEUE: usize = 4;
/// The maximum time for counting in one turn.
const TURN: Duration = Duration::from_millis(10);

/// Objects as their sources observed them; `None` if deleted.
pub type Observations = BTreeMap<ObjectKey, Option<Observed>>;

/// Connects the planner to the world and the hub.
pub(crate) struct StatusTracker {
    pub(crate) planner: Planner,
    /// Reports of sources that are not applied yet, with the epochs of their commits.
    observed: VecDeque<(u64, btree_map::IntoIter<ObjectKey, Option<Observed>>)>,
    /// The objects whose conflicts or standings are watched.
    watched: BTreeMap<ObjectKey, Vec<CellId>>,
    /// Notified when there are counts to publish.
    pub(crate) unpublished: Arc<Notify>,
    out: Option<mpsc::Sender<Vec<Intent>>>,
    clock: Clock,
    /// The time before which nothing is sent, because the channel was full.
    blocked: Option<Elapsed>,
    /// Totals: seconds spent, statuses handed out, objects counted.
    seconds: f64,
    planned: u64,
    counted: u64,
}

impl StatusTracker {
    pub(crate) fn new(started: Instant) -> StatusTracker {
        StatusTracker {
            planner: Planner::new(Settings::default()),
            observed: VecDeque::new(),
            watched: BTreeMap::new(),
            unpublished: Arc::default(),
            out: None,
            clock: Clock::new(started),
            blocked: None,
            seconds: 0.0,
            planned: 0,
            counted: 0,
        }
    }

    /// Connects a receiver of statuses. It receives them while this replica leads.
    pub(crate) fn attach(&mut self, settings: Settings) -> mpsc::Receiver<Vec<Intent>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.planner.set(settings);
        self.out = Some(sender);
        receiver
    }

    /// Adds reports of sources; `epoch` is that of the commit that they came with. They are applied by
    /// [`StatusTracker::observe_some`].
    pub(crate) fn observe(&mut self, observed: Observations, epoch: u64) {
        if !observed.is_empty() {
            self.observed.push_back((epoch, observed.into_iter()));
        }
    }

    /// Whether reports are to be applied.
    pub(crate) fn has_observed(&self) -> bool {
        !self.observed.is_empty()
    }

    /// Applies reports of sources, as many as time allows.
    pub(crate) fn observe_some(&mut self, served: &mut ServedWorld, now: Elapsed) {
        let begun = Instant::now();
        while begun.elapsed() < TURN
            && let Some((epoch, observed)) = self.observed.front_mut()
        {
            let epoch = *epoch;
            match observed.next() {
                Some((key, observed)) => self.observe_one(key, observed, served, (epoch, now)),
                None => drop(self.observed.pop_front()),
            }
        }
    }

    fn observe_one(
        &mut self,
        key: ObjectKey,
        observed: Option<Observed>,
        served: &mut ServedWorld,
        (epoch, now): (u64, Elapsed),
    ) {
        match observed {
            Some(observed) if status::has_status(key.kind) => {
                self.planner.saw(observed, epoch, now);
                self.watch(key, served, now);
            }
            Some(_) if key.kind == Kind::MeshConfig => self.watch(key, served, now),
            Some(_) => {}
            None => {
                self.planner.gone(&key);
                self.watched.remove(&key).into_iter().flatten().for_each(|cell| served.world.close(cell));
            }
        }
    }

    /// Applies changed conflicts.
    pub(crate) fn conflict(&mut self, conflicts: &[(ObjectKey, Conflicts)], now: Elapsed) {
        for (key, conflicts) in conflicts {
            log_mesh_conflicts(key, conflicts);
            self.planner.conflicted(key, conflicts, now);
        }
    }

    /// Applies changed facts about objects of the Gateway API.
    pub(crate) fn stand(&mut self, standings: Vec<(ObjectKey, Facts)>, now: Elapsed) {
        for (key, facts) in standings {
            self.planner.stand(&key, facts, now);
        }
    }

    /// Recounts EnvoyFilters whose skipped patches changed.
    pub(crate) fn patched(&mut self, filters: &[ObjectKey], now: Elapsed) {
        filters.iter().for_each(|key| self.planner.again(key, now));
    }

    /// Watches the same objects in a world whose subscriptions have ended.
    pub(crate) fn watch_again(&mut self, served: &mut ServedWorld, now: Elapsed) {
        let keys = std::mem::take(&mut self.watched).into_keys();
        keys.for_each(|key| self.watch(key, served, now));
    }

    /// Watches the conflicts of an object, and the facts about one of the Gateway API. A recreated object replaces the earlier
    /// watch.
    fn watch(&mut self, key: ObjectKey, served: &mut ServedWorld, now: Elapsed) {
        let mut cells = Vec::new();
        if let Some((cell, conflicts)) = served.world.watch(&key) {
            if !self.watched.contains_key(&key) {
                log_mesh_conflicts(&key, &conflicts);
            }
            self.planner.conflicted(&key, &conflicts, now);
            cells.push(cell);
        }
        if let Some((cell, facts)) = served.world.watch_standing(&key) {
            self.planner.stand(&key, facts, now);
            cells.push(cell);
        }
        if !cells.is_empty() {
            let before = self.watched.insert(key, cells);
            before.into_iter().flatten().for_each(|cell| served.world.close(cell));
        }
    }

    /// Counts the objects that are due, and hands out changed statuses.
    pub(crate) fn turn(&mut self, served: &ServedWorld, hub: &mut Hub, now: Elapsed) {
        let news = hub.take_news();
        let activity = ProxyActivity { answered: news.answered, rejected: news.rejected, members: news.members };
        self.planner.proxies_changed(activity, now);
        self.announce();
        if self.out.as_ref().is_some_and(|out| !out.is_closed() && out.capacity() == 0) {
            self.blocked = Some(now + TURN);
            return;
        }
        self.blocked = None;
        let begun = Instant::now();
        let asks = self.planner.due(now);
        if asks.is_empty() {
            return;
        }
        let counted = self.count(asks.into(), served, hub, now, begun);
        let intents = self.planner.plan(counted, Now { elapsed: now, wall: self.clock.at(now) });
        self.seconds += begun.elapsed().as_secs_f64();
        self.planned += intents.len() as u64;
        self.announce();
        if let Some(out) = &self.out
            && !intents.is_empty()
            && out.try_send(intents).is_err()
        {
            // There was room, so the receiver is closed.
            self.planner.lead(false, now);
            self.out = None;
        }
    }

    /// Notifies the publisher if there are counts to publish.
    fn announce(&self) {
        if self.planner.has_unpublished() {
            self.unpublished.notify_one();
        }
    }

    /// The time of the next turn, if one is needed.
    pub(crate) fn deadline(&self) -> Option<Elapsed> {
        let next = self.planner.deadline()?;
        Some(self.blocked.map_or(next, |blocked| next.max(blocked)))
    }

    /// The numbers for metrics.
    pub(crate) fn numbers(&self) -> TrackerStats {
        let (mut rejected, mut problems) = (0, BTreeMap::new());
        for report in self.planner.reports(None) {
            let Some(status) = report.status else { continue };
            rejected += usize::from(status.proxies.counts.rejected > 0);
            for condition in problems_of(status) {
                *problems.entry((report.key.kind.name(), condition)).or_insert(0.0) += 1.0;
            }
        }
        let mut sizes = self.planner.sizes().to_vec();
        sizes.push(("rejected", rejected));
        TrackerStats {
            sizes: sizes.into_iter().map(|(name, size)| (name, size as f64)).collect(),
            problems,
            planned: self.planned as f64,
            counted: self.counted as f64,
            seconds: self.seconds,
        }
    }

    /// Counts as many objects as time allows; the others are scheduled again.
    fn count(
        &mut self,
        mut asks: VecDeque<CountRequest>,
        served: &ServedWorld,
        hub: &Hub,
        now: Elapsed,
        begun: Instant,
    ) -> Vec<(ObjectKey, Counts)> {
        let (mut tallies, mut counted) = (hub.tallies(), Vec::new());
        while let Some(ask) = asks.pop_front() {
            let Some(since) = ask.since else {
                counted.push((ask.key, Counts::default()));
                continue;
            };
            let reach = served.world.reach(&ask.key);
            let unmade = reach.unmade.into_iter().map(skipped_patch).collect();
            let tally = tallies.answer(&Question {
                resources: reach.resources,
                catalogues: reach.catalogues.into_iter().map(|(cell, names)| Listed { cell, names }).collect(),
                maybe: reach.maybe,
                since,
                parts: reach.hosts,
            });
            self.counted += 1;
            counted.push((ask.key, counts(tally, unmade)));
            if begun.elapsed() > TURN {
                break;
            }
        }
        asks.iter().for_each(|ask| self.planner.again(&ask.key, now));
        counted
    }
}

/// The numbers of the tracker for metrics.
#[derive(Clone, Debug)]
pub(crate) struct TrackerStats {
    pub(crate) sizes: Vec<(&'static str, f64)>,
    /// The number of objects with a condition that reports a problem, by kind and type of condition.
    pub(crate) problems: BTreeMap<(&'static str, &'static str), f64>,
    pub(crate) planned: f64,
    pub(crate) counted: f64,
    pub(crate) seconds: f64,
}

/// The types of the conditions of a status that report a problem.
fn problems_of(status: &Status) -> impl Iterator<Item = &'static str> {
    let of_kube = status.kube.iter().flat_map(KubeStatus::problems);
    let own = [
        ("Accepted", status.kube.is_none() && status.accepted.truth == Truth::False),
        ("Conflicted", status.conflicted.is_some()),
        ("ResolvedRefs", status.resolved.is_some()),
        ("PatchesApplied", status.patches.is_some()),
    ]
    .into_iter()
    .filter_map(|(condition, problem)| problem.then_some(condition));
    of_kube.chain(own)
}

fn skipped_patch(unmade: world::Unmade) -> SkippedPatch {
    SkippedPatch {
        index: unmade.index,
        resources: unmade.resources,
        resource: unmade.resource.to_string(),
        why: unmade.why.to_string(),
    }
}

fn counts(tally: xds::Tally, unmade: Vec<SkippedPatch>) -> Counts {
    let nack = tally.nack.map(|nack| Nack {
        proxy: nack.proxy.to_string(),
        kind: nack.kind.short_name.to_owned(),
        resource: joined(&nack.resources),
        message: nack.message.to_string(),
    });
    Counts {
        total: tally.total,
        running: tally.running,
        rejected: tally.rejected,
        pending: tally.pending,
        nack,
        unmade,
    }
}

/// Logs conflicts of MeshConfig, which has no status.
fn log_mesh_conflicts(key: &ObjectKey, conflicts: &Conflicts) {
    for conflict in conflicts.iter().filter(|_| key.kind == Kind::MeshConfig) {
        tracing::warn!("{conflict}");
    }
}

fn joined(names: &[Arc<str>]) -> String {
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    names.join(", ")
}
