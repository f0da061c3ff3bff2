//! What other replicas count.
//!
//! Proxies are connected to one replica each. What a replica counts of an object is its [`Share`]; the leader adds up the
//! shares of all ([`Peers`]), and its own.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::ObjectKey;

use crate::{Counts, Unmade};

/// What one replica counts of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The object's UID; empty: it has none.
    pub uid: Arc<str>,
    /// The generation that is in effect there, and counted.
    pub generation: i64,
    /// How many of its proxies need it and run it.
    pub counts: Counts,
}

/// The shares of other replicas.
#[derive(Default)]
pub(crate) struct Peers(BTreeMap<Arc<str>, Peer>);

#[derive(Default)]
struct Peer {
    shares: BTreeMap<ObjectKey, Share>,
    /// Which objects it tells of in which shard.
    shards: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Peers {
    /// Notes all that a replica has in a shard, in place of what it had there. Gives the objects of which it says something
    /// else than before.
    pub(crate) fn told(
        &mut self,
        peer: &Arc<str>,
        shard: &Arc<str>,
        shares: BTreeMap<ObjectKey, Share>,
    ) -> Vec<ObjectKey> {
        let peer = self.0.entry(peer.clone()).or_default();
        let before = peer.shards.remove(shard).unwrap_or_default();
        let mut changed = Vec::new();
        for key in before {
            if !shares.contains_key(&key) {
                peer.shares.remove(&key);
                changed.push(key);
            }
        }
        peer.shards.insert(shard.clone(), shares.keys().cloned().collect());
        for (key, share) in shares {
            if peer.shares.get(&key) != Some(&share) {
                changed.push(key.clone());
                peer.shares.insert(key, share);
            }
        }
        changed
    }

    /// Forgets a replica. Gives the objects of which it had told.
    pub(crate) fn parted(&mut self, peer: &str) -> Vec<ObjectKey> {
        let peer = self.0.remove(peer).unwrap_or_default();
        peer.shares.into_keys().collect()
    }

    /// Forgets all replicas.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is counted here, and what others count of the same object. Proxies of a replica that has another generation
    /// in effect have not answered this one.
    pub(crate) fn with(&self, mut own: Counts, key: &ObjectKey, uid: &str, generation: i64) -> Counts {
        for share in self.0.values().filter_map(|peer| peer.shares.get(key)) {
            if *share.uid == *uid {
                own.add(&share.counts, share.generation == generation);
            }
        }
        own
    }

    /// Whether each of them tells of this generation of an object. One that does not may have no proxy that needs it, or
    /// has yet to tell.
    pub(crate) fn all_tell(&self, key: &ObjectKey, uid: &str, generation: i64) -> bool {
        let tells = |peer: &Peer| {
            let share = peer.shares.get(key);
            share.is_some_and(|share| *share.uid == *uid && share.generation == generation)
        };
        self.0.values().all(tells)
    }
}

impl Counts {
    /// Adds what another replica counts; `same`: of the same generation.
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
        self.refused = self.refused.saturating_add(other.refused);
        self.pending = self.pending.saturating_add(other.pending);
        // That of the first proxy by name, whichever replica it is connected to.
        let all = [self.refusal.take(), other.refusal.clone()];
        self.refusal = all.into_iter().flatten().min_by(|a, b| a.proxy.cmp(&b.proxy));
    }
}

/// What two replicas say of an EnvoyFilter's patches. One that matches nothing here may match something there.
fn both(one: &Counts, other: &Counts) -> Vec<Unmade> {
    if one.total == 0 || other.total == 0 {
        let whose = if one.total == 0 { other } else { one };
        return whose.unmade.clone();
    }
    let mut all: BTreeMap<u16, Unmade> = BTreeMap::new();
    for unmade in one.unmade.iter().chain(&other.unmade) {
        let said_by = |counts: &Counts| counts.unmade.iter().any(|said| said.index == unmade.index);
        if unmade.resources == 0 && !(said_by(one) && said_by(other)) {
            continue;
        }
        match all.entry(unmade.index) {
            Entry::Vacant(free) => drop(free.insert(unmade.clone())),
            Entry::Occupied(mut there) => {
                let resources = there.get().resources.saturating_add(unmade.resources);
                let first = [there.get(), unmade].into_iter().filter(|one| one.resources > 0);
                let first = first.min_by(|a, b| a.resource.cmp(&b.resource)).cloned();
                let merged = first.unwrap_or_else(|| unmade.clone());
                there.insert(Unmade { resources, ..merged });
            }
        }
    }
    all.into_values().collect()
}
