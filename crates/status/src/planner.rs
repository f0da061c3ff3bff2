//! Which statuses are due.

mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Diagnostic, ObjectKey, Timestamp};

use crate::peers::{Peers, Share};
use crate::queue::Queue;
use crate::status::{Counts, Status, Truth};
use crate::subject::{Standing, Subject, Verdict};
use crate::{Moment, Settings};

/// A status that another writer put in place of ours is noticed, unless ours was written so recently that what is seen
/// may be from before.
const ECHO: Moment = Moment::from_secs(5);

/// The time, twice: to measure with, and to write down.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// To measure with.
    pub moment: Moment,
    /// To write down.
    pub wall: Timestamp,
}

/// What proxies did, in general.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// Some accepted something.
    pub answered: bool,
    /// Some refused something.
    pub refused: bool,
    /// Some came, went, or need something else.
    pub members: bool,
}

/// An object that is to be counted: [`Planner::plan`] wants to know how many proxies run it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Which.
    pub key: ObjectKey,
    /// What was given to [`Planner::saw`] with the generation that is in effect; none: nothing of it is.
    pub since: Option<u64>,
}

/// A status that is to be written.
#[derive(Clone, PartialEq, Debug)]
pub struct Intent {
    /// Of which object.
    pub key: ObjectKey,
    /// Its UID: another object of the name does not get it. Empty: it has none.
    pub uid: Arc<str>,
    /// The generation that it speaks of.
    pub generation: i64,
    /// The status.
    pub status: Status,
}

/// An object and what is known of it, for people.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// Which.
    pub key: &'a ObjectKey,
    /// Its status as it was when it was looked at last; none: it was not yet.
    pub status: Option<&'a Status>,
}

/// Knows all objects, and when which of them is to be written.
pub struct Planner {
    settings: Settings,
    objects: BTreeMap<ObjectKey, Record>,
    queue: Queue,
    /// Objects that some proxy has not accepted yet: what proxies answer may concern them.
    open: BTreeSet<ObjectKey>,
    news: News,
    flushed: Option<Moment>,
    swept: Option<Moment>,
    /// When all objects are looked at because proxies came or went.
    sweep: Option<Moment>,
    /// Since when it leads.
    leading: Option<Moment>,
    /// What other replicas count.
    peers: Peers,
    /// Objects whose share changed since it was asked for; none: nobody asks.
    unshared: Option<BTreeSet<ObjectKey>>,
}

struct Record {
    uid: Arc<str>,
    observed: i64,
    verdict: Verdict,
    standing: Standing,
    /// The generation that is in effect, and since which epoch.
    effect: Option<(i64, u64)>,
    changed: Moment,
    /// As of the last look.
    current: Option<Status>,
    /// As it is stored, or is about to be.
    stored: Option<Status>,
    written: Option<Moment>,
    looked: Option<Moment>,
    /// How long to wait for the next look if the last one found nothing new.
    patience: Moment,
    /// What this replica counts of it; none: no proxy needs it.
    share: Option<Share>,
}

impl Planner {
    /// A planner that knows no objects, and does not lead.
    pub fn new(settings: Settings) -> Planner {
        Planner {
            settings,
            objects: BTreeMap::new(),
            queue: Queue::default(),
            open: BTreeSet::new(),
            news: News::default(),
            flushed: None,
            swept: None,
            sweep: None,
            leading: None,
            peers: Peers::default(),
            unshared: None,
        }
    }

    /// Plans by other settings from now on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Notes an object that came or changed. `since` is the epoch of the change as proxies' places are counted.
    pub fn saw(&mut self, subject: Subject, since: u64, now: Moment) {
        let verdict = Verdict::of(&subject.diagnostics);
        let stored = subject.status.as_ref().and_then(Status::from_json);
        let key = subject.key.clone();
        match self.objects.get_mut(&key) {
            Some(record) if record.uid == subject.uid => {
                let counted = subject.generation == 0;
                let next = if counted {
                    record.observed + 1
                } else {
                    subject.generation
                };
                let foreign = stored.is_some() && record.may_be_foreign(now);
                if foreign || self.leading.is_none() && stored.is_some() {
                    record.stored = stored;
                }
                let same = next == record.observed && verdict == record.verdict;
                if same && !foreign {
                    return;
                }
                if next != record.observed || verdict.accepted != record.verdict.accepted {
                    record.change(next, verdict.accepted, since, now);
                }
                record.verdict = verdict;
            }
            _ => {
                let generation = subject.generation.max(1);
                let mut record = Record::new(subject.uid, verdict, stored, now);
                record.change(generation, record.verdict.accepted, since, now);
                let before = self.objects.insert(key.clone(), record);
                self.unshare(before.and_then(|before| before.share).is_some(), &key);
            }
        }
        self.open.insert(key.clone());
        self.look(&key, now);
    }

    /// Notes what is to be said of an object because of others; nothing: all is well.
    pub fn conflicted(&mut self, key: &ObjectKey, conflicts: &[Diagnostic], now: Moment) {
        let standing = Standing::of(conflicts);
        let Some(record) = self.objects.get_mut(key).filter(|record| record.standing != standing) else {
            return;
        };
        record.standing = standing;
        self.look(key, now);
    }

    /// Forgets an object.
    pub fn gone(&mut self, key: &ObjectKey) {
        let before = self.objects.remove(key);
        self.unshare(before.and_then(|before| before.share).is_some(), key);
        self.open.remove(key);
        self.queue.take_out(key);
    }

    /// Notes what proxies did.
    pub fn heard(&mut self, news: News, now: Moment) {
        self.news.answered |= news.answered && !self.open.is_empty();
        self.news.refused |= news.refused && !self.open.is_empty();
        if news.members && self.sweep.is_none() && !self.objects.is_empty() {
            let calm = self.swept.map_or(now, |at| at + self.settings.calm);
            // Who came has not asked for everything yet.
            self.sweep = Some(calm.max(now + self.settings.interval));
        }
    }

    /// Begins or ends to hand out what is to be written. What is not written as it should be is then looked at. Who does
    /// not lead forgets what other replicas count.
    pub fn lead(&mut self, leading: bool, now: Moment) {
        match leading {
            true => self.unshared = None,
            false => self.peers.clear(),
        }
        if leading && self.leading.is_none() {
            let differs = |record: &&Record| match (&record.current, &record.stored) {
                (Some(current), Some(stored)) => !current.says_the_same(stored),
                _ => true,
            };
            let all = self.objects.iter().filter(|(_, record)| differs(record));
            let keys: Vec<ObjectKey> = all.map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| self.look(key, now));
        }
        self.leading = leading.then(|| self.leading.unwrap_or(now));
    }

    /// Looks at an object that was asked about once more: there was no time to count it.
    pub fn again(&mut self, key: &ObjectKey, now: Moment) {
        if self.objects.contains_key(key) {
            self.look(key, now);
        }
    }

    /// The objects to count now, for [`Planner::plan`].
    pub fn due(&mut self, now: Moment) -> Vec<Ask> {
        if self.flushed.is_some_and(|at| now < at + self.settings.floor) {
            return Vec::new();
        }
        self.take_news(now);
        if self.sweep.is_some_and(|at| at <= now) {
            (self.sweep, self.swept) = (None, Some(now));
            let keys: Vec<ObjectKey> = self.objects.keys().cloned().collect();
            keys.iter().for_each(|key| self.look(key, now));
        }
        let mut asks = Vec::new();
        while asks.len() < self.settings.batch
            && let Some(key) = self.queue.pop(now)
        {
            let since = self.objects.get(&key).and_then(|record| record.effect);
            let since = since.map(|(_, since)| since);
            asks.push(Ask { key, since });
        }
        if !asks.is_empty() {
            self.flushed = Some(now);
        }
        asks
    }

    /// What is to be written of the objects that were counted. What is returned counts as written.
    pub fn plan(&mut self, counted: impl IntoIterator<Item = (ObjectKey, Counts)>, now: Now) -> Vec<Intent> {
        let planned = counted
            .into_iter()
            .filter_map(|(key, counts)| self.plan_one(key, counts, now));
        planned.collect()
    }

    /// When [`Planner::due`] should be asked, if at all.
    pub fn deadline(&self) -> Option<Moment> {
        let at_once = (self.news.answered || self.news.refused).then_some(Moment::ZERO);
        let next = [at_once, self.queue.next(), self.sweep].into_iter().flatten().min()?;
        Some(self.flushed.map_or(next, |at| next.max(at + self.settings.floor)))
    }

    /// All objects, by key.
    pub fn reports(&self) -> impl Iterator<Item = Report<'_>> {
        self.objects.iter().map(|(key, record)| Report {
            key,
            status: record.current.as_ref(),
        })
    }

    /// How many objects there are, how many of them some proxy has not accepted yet, and how many wait to be looked at.
    pub fn sizes(&self) -> [(&'static str, usize); 3] {
        [
            ("objects", self.objects.len()),
            ("unsettled", self.open.len()),
            ("waiting", self.queue.len()),
        ]
    }

    fn take_news(&mut self, now: Moment) {
        let news = std::mem::take(&mut self.news);
        if !news.answered && !news.refused {
            return;
        }
        let keys: Vec<ObjectKey> = self.open.iter().cloned().collect();
        for key in keys {
            let Some(record) = self.objects.get_mut(&key) else {
                continue;
            };
            if news.refused {
                record.patience = Moment::ZERO;
            }
            let at = record.looked.map_or(now, |looked| now.max(looked + record.patience));
            self.look(&key, at);
        }
    }

    /// Looks at an object at this time, or when it may be written again, if that is later.
    fn look(&mut self, key: &ObjectKey, at: Moment) {
        let written = self.objects.get(key).and_then(|record| record.written);
        let allowed = written.map_or(at, |written| at.max(written + self.settings.interval));
        self.queue.put(key, allowed);
    }

    fn plan_one(&mut self, key: ObjectKey, counts: Counts, now: Now) -> Option<Intent> {
        let own = counts.bounded();
        let settled = own.running == own.total;
        let shared = self.objects.get_mut(&key)?.counted(&own);
        self.unshare(shared, &key);
        let record = self.objects.get_mut(&key)?;
        let before = record.stored.as_ref().or(record.current.as_ref());
        let (observed, effective) = (record.observed, record.effect.map(|(generation, _)| generation));
        let (counts, complete) = match effective {
            Some(generation) => (
                self.peers.with(own, &key, &record.uid, generation),
                self.peers.all_tell(&key, &record.uid, generation),
            ),
            None => (own, true),
        };
        let status = Status::of(
            observed,
            (&record.verdict, &record.standing),
            effective,
            counts,
            before,
            now.wall,
        );
        if settled {
            self.open.remove(&key);
        } else {
            self.open.insert(key.clone());
        }
        record.looked = Some(now.moment);
        let later = record
            .postponed(&status, complete, &self.settings, self.leading)
            .filter(|at| *at > now.moment);
        let known = record
            .current
            .as_ref()
            .is_some_and(|current| current.says_the_same(&status));
        record.patience = match known {
            true => (record.patience * 2).clamp(self.settings.floor, self.settings.calm),
            false => Moment::ZERO,
        };
        record.current = Some(status.clone());
        if self.leading.is_none()
            || record
                .stored
                .as_ref()
                .is_some_and(|stored| stored.says_the_same(&status))
        {
            return None;
        }
        if let Some(at) = later {
            self.look(&key, at);
            return None;
        }
        record.stored = Some(status.clone());
        record.written = Some(now.moment);
        Some(Intent {
            uid: record.uid.clone(),
            generation: observed,
            status,
            key,
        })
    }
}

impl Record {
    fn new(uid: Arc<str>, verdict: Verdict, stored: Option<Status>, now: Moment) -> Record {
        // What was in effect before a restart is not known to be now: only the next accepted generation is.
        Record {
            uid,
            observed: 0,
            verdict,
            standing: Standing::default(),
            effect: None,
            changed: now,
            current: None,
            stored,
            written: None,
            looked: None,
            patience: Moment::ZERO,
            share: None,
        }
    }

    fn change(&mut self, generation: i64, accepted: bool, since: u64, now: Moment) {
        self.observed = generation;
        if accepted {
            self.effect = Some((generation, since));
        }
        self.changed = now;
        self.patience = Moment::ZERO;
    }

    fn may_be_foreign(&self, now: Moment) -> bool {
        self.written.is_none_or(|written| now >= written + ECHO)
    }

    /// Until when it waits to be written although it says something new: there are no answers yet, but they may come at
    /// once; or it is no real news.
    fn postponed(
        &self,
        status: &Status,
        complete: bool,
        settings: &Settings,
        leading: Option<Moment>,
    ) -> Option<Moment> {
        let stored = self.stored.as_ref();
        let told = stored.is_some_and(|s| s.observed == status.observed && s.accepted.truth == status.accepted.truth);
        if self.written.is_none() && told && status.proxies.counts.refused == 0 {
            // Somebody wrote this before, and proxies have yet to come here from there.
            return leading.map(|since| since + settings.calm);
        }
        let new = stored.is_none_or(|stored| stored.proxies.generation != status.proxies.generation);
        match status.programmed.truth {
            Truth::Unknown if new => return Some(self.changed + settings.grace),
            // Other replicas tell within an interval what their proxies say, if it concerns them at all.
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
                && stored.programmed.truth == Truth::True
        });
        self.written.filter(|_| calm).map(|written| written + settings.calm)
    }
}
