//! The counts of other replicas.
//!
//! Each proxy is connected to one replica. The leader adds the counts of all others ([`Replicas`]) to its own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use config::ObjectKey;
use serde::{Deserialize, Serialize};

use crate::{Counts, SkippedPatch};

/// The counts of one replica for an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaCounts {
    /// The UID of the object; empty if it has none.
    pub uid: Arc<str>,
    /// The generation that is in effect on that replica.
    pub generation: i64,
    /// The counts of the replica's proxies.
    pub counts: Counts,
}

/// Changed counts of a replica; `None` if no proxy of it needs the object any more.
pub type Shares = Vec<(ObjectKey, Option<ReplicaCounts>)>;

/// The counts of all other replicas, by replica.
#[derive(Default)]
pub(crate) struct Replicas(BTreeMap<Arc<str>, BTreeMap<ObjectKey, ReplicaCounts>>);

impl Replicas {
    /// Applies changed counts of a replica. Returns the objects whose counts changed.
    pub(crate) fn replica_reported(&mut self, peer: &Arc<str>, shares: Shares) -> Vec<ObjectKey> {
        let known = self.0.entry(peer.clone()).or_default();
        let mut changed = Vec::new();
        for (key, share) in shares {
            if known.get(&key) == share.as_ref() {
                continue;
            }
            match share {
                Some(share) => drop(known.insert(key.clone(), share)),
                None => drop(known.remove(&key)),
            }
            changed.push(key);
        }
        changed
    }

    /// Removes a replica. Returns the objects that it had counts for.
    pub(crate) fn replica_removed(&mut self, peer: &str) -> Vec<ObjectKey> {
        self.0.remove(peer).unwrap_or_default().into_keys().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the counts of other replicas. Proxies of a replica with another generation in effect count as pending.
    pub(crate) fn with(&self, mut own: Counts, key: &ObjectKey, uid: &str, generation: i64) -> Counts {
        for share in self.0.values().filter_map(|peer| peer.get(key)) {
            if *share.uid == *uid {
                own.add(&share.counts, share.generation == generation);
            }
        }
        own
    }

    /// Whether every replica has reported counts for this generation. One that has not may have no proxy that needs the
    /// object, or may not have published yet.
    pub(crate) fn all_reported(&self, key: &ObjectKey, uid: &str, generation: i64) -> bool {
        let tells = |peer: &BTreeMap<ObjectKey, ReplicaCounts>| {
            let share = peer.get(key);
            share.is_some_and(|share| *share.uid == *uid && share.generation == generation)
        };
        self.0.values().all(tells)
    }
}

impl Counts {
    /// Adds the counts of another replica; `same` means of the same generation.
    fn add(&mut self, other: &Counts, same: bool) {
        if same {
            self.unmade = both(self, other);
        }
        self.total = self.total.saturating_add(other.total);
        if !same {
            self.pending = self.pending.saturating_add(other.total);
            return;
        }
        self.running = self.running.saturating_add(other.running);
        self.rejected = self.rejected.saturating_add(other.rejected);
        self.pending = self.pending.saturating_add(other.pending);
        // The NACK of the first proxy by name, so that the result does not depend on the replica.
        let all = [self.nack.take(), other.nack.clone()];
        self.nack = all.into_iter().flatten().min_by(|a, b| a.proxy.cmp(&b.proxy));
    }
}

/// Merges the skipped patches of an EnvoyFilter. A patch that matches nothing on one replica may match on another.
fn both(one: &Counts, other: &Counts) -> Vec<SkippedPatch> {
    if one.total == 0 || other.total == 0 {
        let known = if one.total == 0 { other } else { one };
        return known.unmade.clone();
    }
    let mut all: BTreeMap<u16, SkippedPatch> = BTreeMap::new();
    for unmade in one.unmade.iter().chain(&other.unmade) {
        let skipped_by = |counts: &Counts| counts.unmade.iter().any(|other| other.index == unmade.index);
        if unmade.resources == 0 && !(skipped_by(one) && skipped_by(other)) {
            continue;
        }
        match all.entry(unmade.index) {
            Entry::Vacant(free) => drop(free.insert(unmade.clone())),
            Entry::Occupied(mut there) => {
                let resources = there.get().resources.saturating_add(unmade.resources);
                let first = [there.get(), unmade].into_iter().filter(|one| one.resources > 0);
                let first = first.min_by(|a, b| a.resource.cmp(&b.resource)).cloned();
                let merged = first.unwrap_or_else(|| unmade.clone());
                there.insert(SkippedPatch { resources, ..merged });
            }
        }
    }
    all.into_values().collect()
}
