//! The next write of an entry that was just read.

use serde_json::{Value, json};

use super::claim::{Claim, Of, Refusal, account};
use super::entry::{CONNECTED, CONTROLLER, DISCONNECTED, Entry, Nanos, annotations, format};
use super::record::Effect;
use super::{Found, Key, REPORTS, Registrations, named, target};
use crate::{Body, Target, Write};

const MANAGER: &str = "rutter";

/// The result of a decision.
pub(super) enum Next {
    Write(Write, Effect),
    /// Nothing is to be done.
    Settled,
    /// A proxy has connected whose group was not read.
    Read,
}

impl Registrations {
    /// The write that is needed. Refuses streams that may not have the entry.
    pub(super) fn decide(&mut self, key: &Key, found: &Found, now: Nanos) -> Next {
        let write = match &found.entry {
            None if self.records.get(key).is_some_and(|record| record.group() != record.read) => return Next::Read,
            None => self.create(key, found.group.as_ref(), now),
            Some(entry) => {
                let entry = Entry::of(entry);
                self.admit(key, |claim| claim.check(&entry.account));
                self.connected(key, &entry).or_else(|| self.disconnected(key, &entry, now))
            }
        };
        write.map_or(Next::Settled, |(write, effect)| Next::Write(write, effect))
    }

    /// Refuses waiting streams that fail this check.
    fn admit(&mut self, key: &Key, check: impl Fn(&Claim) -> Result<(), Refusal>) {
        if self.options.check {
            self.refuse(key, |claim| check(claim).err());
        }
    }

    /// Creates an entry for a connected proxy, if there is a WorkloadGroup.
    fn create(&mut self, key: &Key, group: Option<&Value>, now: Nanos) -> Option<(Write, Effect)> {
        let record = self.records.get_mut(key)?;
        (record.left, record.wrote, record.clean) = (None, None, false);
        // A group that is being deleted takes its entries with it.
        let group = group.filter(|group| group["metadata"].get("deletionTimestamp").is_none());
        let Some(group) = group else {
            let is_refused = record.streams.values().any(|live| live.waiting);
            self.counters.errors += u64::from(is_refused);
            self.refuse(key, |claim| {
                Some(match &claim.of {
                    Of::Group(group) => {
                        let group = format!("{}/{group}", claim.namespace);
                        Refusal::NoGroup { id: claim.id.clone(), group }
                    }
                    Of::Entry(_) => Refusal::NoEntry(named(key)),
                })
            });
            return None;
        };
        self.admit(key, |claim| claim.check(account(group)));
        let live = self.records.get(key)?.newest()?;
        let at = live.at.max(now);
        let fields = live.claim.fields(group, &self.options.instance, at);
        let body = Body::Create { fields, manager: MANAGER };
        Some((Write { target: target(key), uid: "".into(), body }, Effect::Created(at)))
    }

    /// Marks the entry of a connected proxy, and writes its health.
    fn connected(&mut self, key: &Key, entry: &Entry) -> Option<(Write, Effect)> {
        let instance = self.options.instance.clone();
        let record = self.records.get_mut(key)?;
        let live = record.newest()?;
        if matches!(live.claim.of, Of::Entry(_)) && !entry.checked {
            // Its proxy has nothing to report.
            return None;
        }
        let control = &entry.control;
        let is_own = control.controller == instance;
        let last = control.connected.max(control.disconnected);
        let is_kept = control.is_connected() && if is_own { last >= Some(live.at) } else { last > Some(live.at) };
        if !is_kept {
            // The clocks of replicas differ: the last connection has the latest time nevertheless.
            let at = live.at.max(last.map_or(0, |last| last.saturating_add(1)));
            let set = [(CONTROLLER, Some(instance.to_string())), (CONNECTED, Some(format(at))), (DISCONNECTED, None)];
            return Some((merge(target(key), entry, annotations(set)), Effect::Connected(at)));
        }
        if !is_own {
            return None;
        }
        record.wrote = control.connected;
        let conditions = entry.with(record.report.as_ref()?)?;
        let status = json!({"status": {"conditions": conditions}});
        Some((merge(status_of(key), entry, status), Effect::Reported))
    }

    /// Marks the entry of a disconnected proxy, and cleans it up after the grace period.
    fn disconnected(&mut self, key: &Key, entry: &Entry, now: Nanos) -> Option<(Write, Effect)> {
        let record = self.records.get_mut(key)?;
        if !record.streams.is_empty() {
            return None;
        }
        let control = &entry.control;
        let left = record.left.take();
        if control.is_connected() && control.controller == self.options.instance && left >= control.connected {
            record.left = left;
            let at = now.max(control.connected.unwrap_or_default());
            let set = [
                (CONTROLLER, Some(control.controller.to_string())),
                (CONNECTED, None),
                (DISCONNECTED, Some(format(at))),
            ];
            return Some((merge(target(key), entry, annotations(set)), Effect::Disconnected));
        }
        if !std::mem::take(&mut record.clean) {
            return None;
        }
        if entry.is_over(now, self.options.grace, self.options.longest) {
            record.clean = true;
            if control.registered {
                let body = Body::Delete { version: entry.version.clone() };
                return Some((Write { target: target(key), uid: entry.uid.clone(), body }, Effect::Deleted));
            }
            let status = json!({"status": {"conditions": entry.without()}});
            return Some((merge(status_of(key), entry, status), Effect::Forgotten));
        }
        // Not yet.
        if control.controller == self.options.instance
            && !control.is_connected()
            && let Some(at) = control.disconnected
        {
            record.clean = true;
            let over = at.saturating_add(self.options.grace).max(now.saturating_add(REPORTS));
            self.wake(key, over);
        }
        None
    }
}

fn merge(target: Target, entry: &Entry, patch: Value) -> Write {
    Write { target, uid: entry.uid.clone(), body: Body::Merge { patch, version: entry.version.clone() } }
}

fn status_of((namespace, name): &Key) -> Target {
    Target::status(crate::Resource::WORKLOAD_ENTRY, namespace, name)
}
