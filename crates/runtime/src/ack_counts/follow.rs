//! Reads the counts of other replicas, and evicts replicas without a heartbeat.
//!
//! The clocks of replicas need not agree: a replica is evicted when its objects have not changed for [`GONE`], by the
//! leader's clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectKey;
use status::{ReplicaCounts, Shares, read_name};
use store::follow::{Event, Follower};
use store::{Key, Store, Stored};
use tokio::time::Instant;

use super::{ALIVE, Counter, GONE, ReplicaUpdate, key, remove, resource};
use crate::leadership::until;

/// Follows the counts of other replicas until the world thread or the store ends.
pub(super) async fn run(store: &Arc<dyn Store>, identity: &Arc<str>, counter: &impl Counter) {
    let mut events = Follower::new(Arc::clone(store), vec![resource()]);
    let mut reader = Reader { objects: BTreeMap::new(), identity, seen: BTreeMap::new(), counter };
    loop {
        let next = reader.seen.values().min().map(|at| *at + GONE);
        let going_on = tokio::select! {
            event = events.next() => match event {
                Some(event) => reader.take(store, event).await,
                None => false,
            },
            () = until(next) => reader.sweep(store).await,
        };
        if !going_on {
            return;
        }
    }
}

struct Reader<'a, C> {
    /// The objects of all replicas.
    objects: BTreeMap<Key, Stored>,
    identity: &'a Arc<str>,
    /// The other replicas, with the time of each one's last write.
    seen: BTreeMap<Arc<str>, Instant>,
    counter: &'a C,
}

impl<C: Counter> Reader<'_, C> {
    async fn take(&mut self, store: &Arc<dyn Store>, event: Event) -> bool {
        let changes: Vec<(Key, Option<Stored>)> = match event {
            Event::Changed(changes) => {
                let now = changes.iter().map(|change| (change.key.clone(), change.after.clone()));
                now.collect()
            }
            Event::Listed(objects) => {
                let listed: BTreeMap<Key, Stored> = objects.into_iter().map(|o| (o.key.clone(), o)).collect();
                let gone = self.objects.keys().filter(|key| !listed.contains_key(*key));
                let gone: Vec<Key> = gone.cloned().collect();
                let now = listed.into_iter().map(|(key, object)| (key, Some(object)));
                gone.into_iter().map(|key| (key, None)).chain(now).collect()
            }
        };
        // All changes are known before the first one is handled: a deleted object may be back.
        for (key, now) in &changes {
            match now {
                Some(object) => drop(self.objects.insert(key.clone(), object.clone())),
                None => drop(self.objects.remove(key)),
            }
        }
        let mut reported: BTreeMap<Arc<str>, Shares> = BTreeMap::new();
        for (key, now) in changes {
            let replica = &key.namespace;
            match now {
                _ if replica == self.identity => {}
                Some(object) => {
                    let shares = match self.seen.insert(replica.clone(), Instant::now()) {
                        Some(_) => share(&key, Some(&object)).into_iter().collect(),
                        // The replica is new, or was evicted too early.
                        None => self.all_of(replica),
                    };
                    reported.entry(replica.clone()).or_default().extend(shares);
                }
                None if &*key.name == ALIVE => {
                    reported.remove(replica);
                    if !self.ended(store, replica).await {
                        return false;
                    }
                }
                None if self.seen.contains_key(replica) => {
                    reported.entry(replica.clone()).or_default().extend(share(&key, None));
                }
                None => {}
            }
        }
        for (replica, shares) in reported {
            if !self.counter.apply(ReplicaUpdate::Reported { replica, shares }).await {
                return false;
            }
        }
        true
    }

    fn all_of(&self, replica: &Arc<str>) -> Shares {
        let all = self.objects.iter().filter(|(key, _)| key.namespace == *replica);
        all.filter_map(|(key, object)| share(key, Some(object))).collect()
    }

    /// Handles the end of a heartbeat.
    async fn ended(&mut self, store: &Arc<dyn Store>, replica: &Arc<str>) -> bool {
        let known = self.seen.remove(replica).is_some();
        if self.objects.contains_key(&key(replica, ALIVE)) {
            // The replica is back; its new objects follow.
            return self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await;
        }
        !known || self.evict(store, replica).await
    }

    /// Evicts replicas without a recent heartbeat.
    async fn sweep(&mut self, store: &Arc<dyn Store>) -> bool {
        let now = Instant::now();
        let over: Vec<Arc<str>> =
            (self.seen.iter().filter(|(_, at)| now >= **at + GONE)).map(|(replica, _)| replica.clone()).collect();
        for replica in over {
            tracing::info!(replica = %replica, "replica sent no heartbeat for {}s; its proxies are not counted any more", GONE.as_secs());
            self.seen.remove(&replica);
            if !self.evict(store, &replica).await {
                return false;
            }
        }
        true
    }

    /// Removes a replica and its objects.
    async fn evict(&mut self, store: &Arc<dyn Store>, replica: &Arc<str>) -> bool {
        if let Err(error) = remove(&**store, replica).await {
            tracing::debug!(%error, replica = %replica, "cannot remove the counts of a replica that is gone");
        }
        self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await
    }
}

/// The counts that an object of the store has; `None` for other objects, such as heartbeats.
fn share(key: &Key, object: Option<&Stored>) -> Option<(ObjectKey, Option<ReplicaCounts>)> {
    let counts = object.map(|object| ReplicaCounts::from_json(&object.value()));
    Some((read_name(&key.name)?, counts.flatten()))
}
