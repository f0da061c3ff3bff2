//! Counts exchanged between replicas.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::ObjectKey;

use super::{Planner, Record};
use crate::{Counts, Elapsed, ReplicaCounts, Shares};

impl Planner {
    /// Applies changed counts of another replica.
    pub fn replica_reported(&mut self, peer: &Arc<str>, shares: Shares, now: Elapsed) {
        let changed = self.replicas.replica_reported(peer, shares);
        changed.iter().for_each(|key| self.again(key, now));
    }

    /// Removes the counts of a replica that is gone. Returns the objects that it had counts for, for [`Planner::again`].
    pub fn replica_removed(&mut self, peer: &str) -> Vec<ObjectKey> {
        self.replicas.replica_removed(peer)
    }

    /// The counts of this replica that changed since the last call (`None`: no proxy needs the object any more), or all
    /// of them if `all` is set. Empty while this replica leads in all scopes.
    pub fn shares(&mut self, all: bool) -> Shares {
        if self.leading.iter().all(Option::is_some) {
            return Vec::new();
        }
        let share_of = |key: &ObjectKey| self.objects.get(key).and_then(|record| record.share.clone());
        match self.unpublished.replace(BTreeSet::new()).filter(|_| !all) {
            Some(keys) => keys.into_iter().map(|key| (key.clone(), share_of(&key))).collect(),
            None => {
                let all = self.objects.iter().filter(|(_, record)| record.share.is_some());
                all.map(|(key, record)| (key.clone(), record.share.clone())).collect()
            }
        }
    }

    /// Whether [`Planner::shares`] would return anything.
    pub fn has_unpublished(&self) -> bool {
        self.unpublished.as_ref().is_some_and(|keys| !keys.is_empty())
    }

    /// Marks the counts of an object as changed since they were published.
    pub(super) fn mark_unpublished(&mut self, changed: bool, key: &ObjectKey) {
        if let Some(keys) = self.unpublished.as_mut().filter(|_| changed) {
            keys.insert(key.clone());
        }
    }
}

impl Record {
    /// Sets the counts of this replica. Returns true if they changed.
    pub(super) fn counted(&mut self, own: &Counts) -> bool {
        let effect = self.effect.filter(|_| own.total > 0);
        let share =
            effect.map(|(generation, _)| ReplicaCounts { uid: self.uid.clone(), generation, counts: own.clone() });
        let changed = share != self.share;
        self.share = share;
        changed
    }
}
