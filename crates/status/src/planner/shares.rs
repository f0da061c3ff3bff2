//! What this replica tells others of what it counts, and what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::ObjectKey;

use super::{Planner, Record};
use crate::{Counts, Moment, Share};

impl Planner {
    /// Notes what another replica counts: all that it has in a shard, in place of what it had there.
    pub fn told(&mut self, peer: &Arc<str>, shard: &Arc<str>, shares: BTreeMap<ObjectKey, Share>, now: Moment) {
        let changed = self.peers.told(peer, shard, shares);
        changed.iter().for_each(|key| self.again(key, now));
    }

    /// Forgets what a replica counts: it is gone.
    pub fn parted(&mut self, peer: &str, now: Moment) {
        let changed = self.peers.parted(peer);
        changed.iter().for_each(|key| self.again(key, now));
    }

    /// The shares of this replica that changed since this was called last (none: nothing of the object is left), or all
    /// of them, `anew`. Nothing while it leads.
    pub fn shares(&mut self, anew: bool) -> Vec<(ObjectKey, Option<Share>)> {
        if self.leading.is_some() {
            return Vec::new();
        }
        let share_of = |key: &ObjectKey| self.objects.get(key).and_then(|record| record.share.clone());
        match self.unshared.replace(BTreeSet::new()).filter(|_| !anew) {
            Some(keys) => keys.into_iter().map(|key| (key.clone(), share_of(&key))).collect(),
            None => {
                let all = self.objects.iter().filter(|(_, record)| record.share.is_some());
                all.map(|(key, record)| (key.clone(), record.share.clone())).collect()
            }
        }
    }

    /// Whether [`Planner::shares`] would give something.
    pub fn has_unshared(&self) -> bool {
        self.unshared.as_ref().is_some_and(|keys| !keys.is_empty())
    }

    /// Notes that an object's share is another than was told.
    pub(super) fn unshare(&mut self, changed: bool, key: &ObjectKey) {
        if let Some(keys) = self.unshared.as_mut().filter(|_| changed) {
            keys.insert(key.clone());
        }
    }
}

impl Record {
    /// Notes what this replica counts. True: it is something else than before.
    pub(super) fn counted(&mut self, own: &Counts) -> bool {
        let effect = self.effect.filter(|_| own.total > 0);
        let share = effect.map(|(generation, _)| Share {
            uid: self.uid.clone(),
            generation,
            counts: own.clone(),
        });
        let changed = share != self.share;
        self.share = share;
        changed
    }
}
