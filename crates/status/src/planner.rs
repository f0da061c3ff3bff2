//! The planner: decides which objects are counted and which statuses are written.

mod passes;
mod replica_counts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use config::{Diagnostic, Kind, ObjectKey, Observed, Timestamp};
use model::standing::Standing;

use crate::queue::Queue;
use crate::replicas::{ReplicaCounts, Replicas};
use crate::status::{Counts, Status, Truth};
use crate::subject::{Problems, Verdict};
use crate::{Elapsed, Settings, kube};
use passes::{Pass, Reason};

/// A stored status that differs from ours counts as written by another client only after this time: before, it may be
/// an outdated read.
const ECHO: Elapsed = Elapsed::from_secs(5);

/// The current time, in both forms.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic, for intervals.
    pub elapsed: Elapsed,
    /// Wall-clock time, for timestamps.
    pub wall: Timestamp,
}

/// Objects whose statuses one replica writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Objects that no label assigns to a revision. All revisions observe them.
    All,
    /// Objects of this revision.
    Revision,
}

/// Activity of proxies since the last report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProxyActivity {
    /// A proxy sent an ACK.
    pub answered: bool,
    /// A proxy sent a NACK.
    pub rejected: bool,
    /// A proxy connected, disconnected or changed its subscriptions.
    pub members: bool,
}

/// A request to count the proxies that run an object, answered through [`Planner::plan`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountRequest {
    /// The object.
    pub key: ObjectKey,
    /// The epoch given to [`Planner::saw`] with the generation that is in effect; `None` if no generation is.
    pub since: Option<u64>,
}

/// A status to write.
#[derive(Clone, PartialEq, Debug)]
pub struct Intent {
    /// The object.
    pub key: ObjectKey,
    /// The UID of the object, so that a recreated object does not receive the status. Empty if it has none.
    pub uid: Arc<str>,
    /// The generation that the status describes.
    pub generation: i64,
    /// The status.
    pub status: Status,
    /// The scope that the object is in.
    pub scope: Scope,
}

/// An object with its status, for the debug page.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// The object.
    pub key: &'a ObjectKey,
    /// Its status as of the last count; `None` if it was not counted yet.
    pub status: Option<&'a Status>,
}

/// Holds all objects, and decides when each is counted and written.
pub struct Planner {
    settings: Settings,
    objects: BTreeMap<ObjectKey, Record>,
    queue: Queue,
    /// Objects that some proxy has not acknowledged yet, so that an ACK or NACK may change their status.
    open: BTreeSet<ObjectKey>,
    /// Gateways of the Gateway API that no proxy needs yet, whose first proxy is not kept waiting for a sweep.
    idle: BTreeSet<ObjectKey>,
    /// The time for which they are scheduled.
    idle_look: Option<Elapsed>,
    news: ProxyActivity,
    passes: VecDeque<Pass>,
    flushed: Option<Elapsed>,
    swept: Option<Elapsed>,
    /// The time at which all objects are recounted because proxies connected or disconnected.
    sweep: Option<Elapsed>,
    /// The time since which this replica leads, by scope.
    leading: [Option<Elapsed>; 2],
    /// The counts of other replicas.
    replicas: Replicas,
    /// Objects whose own counts changed since the last [`Planner::shares`]; `None` if they are not published, because this replica
    /// leads in all scopes.
    unpublished: Option<BTreeSet<ObjectKey>>,
}

struct Record {
    uid: Arc<str>,
    scope: Scope,
    observed: i64,
    verdict: Verdict,
    problems: Problems,
    /// The facts about an object of the Gateway API; none if no class that is served has to do with it.
    standing: Option<Arc<Standing>>,
    /// The generation in effect, and the epoch of its commit.
    effect: Option<(i64, u64)>,
    changed: Elapsed,
    /// The status as of the last count.
    current: Option<Status>,
    /// The status as stored, or as handed out to be written.
    stored: Option<Status>,
    written: Option<Elapsed>,
    looked: Option<Elapsed>,
    /// The time until the next count if the last one found no change.
    patience: Elapsed,
    /// The counts of this replica; `None` if no connected proxy needs the object.
    share: Option<ReplicaCounts>,
}

impl Planner {
    /// A planner without objects that does not lead.
    pub fn new(settings: Settings) -> Planner {
        Planner {
            settings,
            objects: BTreeMap::new(),
            queue: Queue::default(),
            open: BTreeSet::new(),
            idle: BTreeSet::new(),
            idle_look: None,
            news: ProxyActivity::default(),
            passes: VecDeque::new(),
            flushed: None,
            swept: None,
            sweep: None,
            leading: [None; 2],
            replicas: Replicas::default(),
            unpublished: None,
        }
    }

    /// Replaces the settings.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Adds or updates an object. `since` is the epoch of the commit that the object came with.
    pub fn saw(&mut self, subject: Observed, since: u64, now: Elapsed) {
        let verdict = Verdict::of(subject.key.kind, &subject.diagnostics);
        let stored = subject.status.as_ref().and_then(|status| Status::from_json(subject.key.kind, status));
        let key = subject.key.clone();
        let scope = if subject.assigned { Scope::Revision } else { Scope::All };
        match self.objects.get_mut(&key) {
            Some(record) if record.uid == subject.uid => {
                let counted = subject.generation == 0;
                let next = if counted { record.observed + 1 } else { subject.generation };
                let stored_is_empty = stored.is_none();
                let foreign = !stored_is_empty && record.may_be_foreign(now);
                if foreign || self.leading[record.scope as usize].is_none() && stored.is_some() {
                    record.stored = stored;
                }
                // Another client removed what is ours.
                let removed =
                    kube::is_kube(key.kind) && stored_is_empty && record.has_written() && record.may_be_foreign(now);
                if removed {
                    record.stored = None;
                }
                let same = next == record.observed && verdict == record.verdict && scope == record.scope;
                if same && !foreign && !removed {
                    return;
                }
                if next != record.observed || verdict.accepted != record.verdict.accepted {
                    record.change(next, verdict.accepted, since, now);
                }
                (record.verdict, record.scope) = (verdict, scope);
            }
            _ => {
                let generation = subject.generation.max(1);
                let mut record = Record::new((subject.uid, scope), verdict, stored, now);
                record.change(generation, record.verdict.accepted, since, now);
                let before = self.objects.insert(key.clone(), record);
                self.mark_unpublished(before.and_then(|before| before.share).is_some(), &key);
            }
        }
        self.open.insert(key.clone());
        self.look(&key, now);
    }

    /// Sets the conflicts of an object with others and its missing references.
    pub fn conflicted(&mut self, key: &ObjectKey, conflicts: &[Diagnostic], now: Elapsed) {
        let problems = Problems::of(conflicts);
        let Some(record) = self.objects.get_mut(key).filter(|record| record.problems != problems) else {
            return;
        };
        record.problems = problems;
        self.look(key, now);
    }

    /// Sets the facts about an object of the Gateway API.
    pub fn stand(&mut self, key: &ObjectKey, standing: Option<Arc<Standing>>, now: Elapsed) {
        let Some(record) = self.objects.get_mut(key).filter(|record| record.standing != standing) else {
            return;
        };
        record.standing = standing;
        self.look(key, now);
    }

    /// Removes an object.
    pub fn gone(&mut self, key: &ObjectKey) {
        let before = self.objects.remove(key);
        self.mark_unpublished(before.and_then(|before| before.share).is_some(), key);
        self.open.remove(key);
        self.idle.remove(key);
        self.queue.take_out(key);
    }

    /// Records activity of proxies, which may change counts.
    pub fn proxies_changed(&mut self, news: ProxyActivity, now: Elapsed) {
        self.news.answered |= news.answered && !self.open.is_empty();
        self.news.rejected |= news.rejected && !self.open.is_empty();
        if !news.members {
            return;
        }
        // A proxy that just connected has not subscribed to everything yet.
        let soon = now + self.settings.interval;
        if self.sweep.is_none() && !self.objects.is_empty() {
            let calm = self.swept.map_or(now, |at| at + self.settings.calm);
            self.sweep = Some(calm.max(soon));
        }
        if self.idle_look.is_none_or(|at| at <= now) {
            self.idle_look = Some(soon);
            self.idle.clone().iter().for_each(|key| self.look(key, soon));
        }
    }

    /// Starts or stops handing out statuses, whatever the revision of the objects.
    pub fn lead(&mut self, leading: bool, now: Elapsed) {
        [Scope::All, Scope::Revision].into_iter().for_each(|scope| self.lead_in(scope, leading, now));
    }

    /// Starts or stops handing out the statuses of a scope. A replica that starts to lead recounts every object whose stored status
    /// differs; one that leads nowhere drops the counts of other replicas.
    pub fn lead_in(&mut self, scope: Scope, leading: bool, now: Elapsed) {
        let before = self.leading[scope as usize];
        self.leading[scope as usize] = leading.then(|| before.unwrap_or(now));
        match self.leading {
            [Some(_), Some(_)] => self.unpublished = None,
            [None, None] => self.replicas.clear(),
            _ => {}
        }
        if leading && before.is_none() {
            self.begin_pass(Reason::Lead(scope));
        }
    }

    /// Schedules an object again that was requested but not counted for lack of time.
    pub fn again(&mut self, key: &ObjectKey, now: Elapsed) {
        if self.objects.contains_key(key) {
            self.look(key, now);
        }
    }

    /// The objects to count now, for [`Planner::plan`].
    pub fn due(&mut self, now: Elapsed) -> Vec<CountRequest> {
        if self.flushed.is_some_and(|at| now < at + self.settings.floor) {
            return Vec::new();
        }
        self.take_answers();
        if self.sweep.is_some_and(|at| at <= now) {
            (self.sweep, self.swept) = (None, Some(now));
            self.begin_pass(Reason::Members);
        }
        self.examine_some(now);
        let mut asks = Vec::new();
        while asks.len() < self.settings.batch
            && let Some(key) = self.queue.pop(now)
        {
            let counted = self.objects.get(&key).filter(|record| record.is_counted(&key));
            let since = counted.and_then(|record| record.effect).map(|(_, since)| since);
            asks.push(CountRequest { key, since });
        }
        if !asks.is_empty() {
            self.flushed = Some(now);
        }
        asks
    }

    /// The statuses to write for the objects that were counted. A returned status counts as written.
    pub fn plan(&mut self, counted: impl IntoIterator<Item = (ObjectKey, Counts)>, now: Now) -> Vec<Intent> {
        let planned = counted.into_iter().filter_map(|(key, counts)| self.plan_one(key, counts, now));
        planned.collect()
    }

    /// The next time at which [`Planner::due`] returns objects, if any.
    pub fn deadline(&self) -> Option<Elapsed> {
        let is_busy = self.news.answered || self.news.rejected || !self.passes.is_empty();
        let at_once = is_busy.then_some(Elapsed::ZERO);
        let next = [at_once, self.queue.next(), self.sweep].into_iter().flatten().min()?;
        Some(self.flushed.map_or(next, |at| next.max(at + self.settings.floor)))
    }

    /// All objects, by key, or those with greater keys than this one.
    pub fn reports(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = Report<'_>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let objects = self.objects.range((start, Bound::Unbounded));
        objects.map(|(key, record)| Report { key, status: record.current.as_ref() })
    }

    /// The number of objects, of those that some proxy has not acknowledged yet, and of those that wait to be counted.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        [("objects", self.objects.len()), ("unsettled", self.open.len()), ("waiting", self.queue.len())]
    }

    /// Schedules an object for this time, or for when it may be written again if that is later.
    fn look(&mut self, key: &ObjectKey, at: Elapsed) {
        let written = self.objects.get(key).and_then(|record| record.written);
        let allowed = written.map_or(at, |written| at.max(written + self.settings.interval));
        self.queue.put(key, allowed);
    }

    fn plan_one(&mut self, key: ObjectKey, counts: Counts, now: Now) -> Option<Intent> {
        let own = counts.bounded();
        let (settled, none) = (own.running == own.total, own.total == 0);
        let shared = self.objects.get_mut(&key)?.counted(&own);
        self.mark_unpublished(shared, &key);
        let record = self.objects.get_mut(&key)?;
        let before = record.stored.as_ref().or(record.current.as_ref());
        let (observed, effective) = (record.observed, record.effect.map(|(generation, _)| generation));
        let (counts, complete) = match effective {
            Some(generation) => (
                self.replicas.with(own, &key, &record.uid, generation),
                self.replicas.all_reported(&key, &record.uid, generation),
            ),
            None => (own, true),
        };
        match settled {
            true => self.open.remove(&key),
            false => self.open.insert(key.clone()),
        };
        match none && key.kind == Kind::KubeGateway {
            true => self.idle.insert(key.clone()),
            false => self.idle.remove(&key),
        };
        record.looked = Some(now.elapsed);
        let status = match (kube::is_kube(key.kind), &record.standing) {
            (false, _) => {
                Status::of(observed, (&record.verdict, &record.problems), effective, counts, before, now.wall)
            }
            (true, Some(standing)) => {
                let facts = (&record.verdict, &record.problems, &**standing);
                Status::of_kube(observed, facts, effective, counts, before, now.wall)
            }
            // The object is for another control plane.
            (true, None) => {
                record.current = None;
                return None;
            }
        };
        let leading = self.leading[record.scope as usize];
        let later = record.postponed(&status, complete, &self.settings, leading).filter(|at| *at > now.elapsed);
        let known = record.current.as_ref().is_some_and(|current| current.says_the_same(&status));
        record.patience = match known {
            true => (record.patience * 2).clamp(self.settings.floor, self.settings.calm),
            false => Elapsed::ZERO,
        };
        record.current = Some(status.clone());
        let is_written = match &record.stored {
            Some(stored) => stored.says_the_same(&status),
            None => status.kube.as_ref().is_some_and(kube::KubeStatus::is_empty),
        };
        if leading.is_none() || is_written {
            return None;
        }
        if let Some(at) = later {
            self.look(&key, at);
            return None;
        }
        record.stored = Some(status.clone());
        record.written = Some(now.elapsed);
        Some(Intent { uid: record.uid.clone(), generation: observed, status, scope: record.scope, key })
    }
}

impl Record {
    fn new((uid, scope): (Arc<str>, Scope), verdict: Verdict, stored: Option<Status>, now: Elapsed) -> Record {
        // After a restart it is unknown which generation is in effect until one is accepted.
        Record {
            uid,
            scope,
            observed: 0,
            verdict,
            problems: Problems::default(),
            standing: None,
            effect: None,
            changed: now,
            current: None,
            stored,
            written: None,
            looked: None,
            patience: Elapsed::ZERO,
            share: None,
        }
    }

    fn change(&mut self, generation: i64, accepted: bool, since: u64, now: Elapsed) {
        self.observed = generation;
        if accepted {
            self.effect = Some((generation, since));
        }
        self.changed = now;
        self.patience = Elapsed::ZERO;
    }

    /// Whether proxies are counted for the object.
    fn is_counted(&self, key: &ObjectKey) -> bool {
        !kube::is_kube(key.kind) || self.standing.is_some() && kube::is_counted(key.kind)
    }

    /// Whether the stored status has something of ours, as far as is known.
    fn has_written(&self) -> bool {
        self.stored.as_ref().and_then(|stored| stored.kube.as_ref()).is_some_and(|kube| !kube.is_empty())
    }

    fn may_be_foreign(&self, now: Elapsed) -> bool {
        self.written.is_none_or(|written| now >= written + ECHO)
    }

    /// The time until which a changed status is held back: because the first ACKs may arrive at any moment, or because
    /// only counts changed.
    fn postponed(
        &self,
        status: &Status,
        complete: bool,
        settings: &Settings,
        leading: Option<Elapsed>,
    ) -> Option<Elapsed> {
        let stored = self.stored.as_ref();
        let known = stored.is_some_and(|s| s.observed == status.observed && s.accepted.truth == status.accepted.truth);
        if self.written.is_none() && known && status.proxies.counts.rejected == 0 {
            // Another replica wrote this status, and its proxies have yet to reconnect to this one.
            return leading.map(|since| since + settings.calm);
        }
        let new = stored.is_none_or(|stored| stored.proxies.generation != status.proxies.generation);
        match status.programmed.truth {
            Truth::Unknown if new => return Some(self.changed + settings.grace),
            // Other replicas publish their counts within an interval if they have proxies that need the object.
            Truth::True if new && !complete => return Some(self.changed + settings.interval * 2),
            _ => {}
        }
        let calm = stored.is_some_and(|stored| {
            stored.observed == status.observed
                && stored.accepted == status.accepted
                && stored.programmed == status.programmed
                && stored.conflicted == status.conflicted
                && stored.resolved == status.resolved
                && stored.patches == status.patches
                && stored.kube == status.kube
                && stored.programmed.truth == Truth::True
        });
        self.written.filter(|_| calm).map(|written| written + settings.calm)
    }
}
