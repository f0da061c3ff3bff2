//! Reads the counts of other replicas, and detects replicas that are gone.
//!
//! The clocks of replicas need not agree: a replica whose objects have not changed for a while, by the leader's clock, is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use status::read_shard;
use store::follow::{Event, Follower};
use store::{Key, Store, Stored};
use tokio::time::{Instant, sleep_until};

use super::{ALIVE, Counter, GONE, ReplicaUpdate, key, remove, resource};

/// Follows the counts of other replicas until the world thread or the store ends.
pub(super) async fn run(store: &Arc<dyn Store>, identity: &Arc<str>, counter: &impl Counter) {
    let mut events = Follower::new(Arc::clone(store), vec![resource()]);
    let mut reader = Reader {
        objects: BTreeMap::new(),
        identity,
        seen: BTreeMap::new(),
        counter,
    };
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
        for (key, now) in changes {
            let going_on = match now {
                Some(object) => self.there(&object).await,
                None => self.gone(store, &key).await,
            };
            if !going_on {
                return false;
            }
        }
        true
    }

    async fn there(&mut self, object: &Stored) -> bool {
        let replica = &object.key.namespace;
        if replica == self.identity {
            return true;
        }
        if self.seen.insert(replica.clone(), Instant::now()).is_some() {
            return self.tell(object).await;
        }
        // The replica is new, or was evicted too early.
        let all = self.objects.values().filter(|object| object.key.namespace == *replica);
        for object in all.cloned().collect::<Vec<_>>() {
            if !self.tell(&object).await {
                return false;
            }
        }
        true
    }

    /// Reports an object. The heartbeat counts as an empty shard, so that a replica without counts is known too.
    async fn tell(&mut self, object: &Stored) -> bool {
        let said = ReplicaUpdate::Reported {
            replica: object.key.namespace.clone(),
            shard: object.key.name.clone(),
            shares: read_shard(&object.value()),
        };
        self.counter.apply(said).await
    }

    async fn gone(&mut self, store: &Arc<dyn Store>, object: &Key) -> bool {
        let replica = &object.namespace;
        if &*object.name == ALIVE {
            let known = self.seen.remove(replica).is_some();
            if self.objects.contains_key(&key(replica, ALIVE)) {
                // The replica is back; its new objects follow.
                return self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await;
            }
            return !known || self.evict(store, replica).await;
        }
        if !self.seen.contains_key(replica) {
            return true;
        }
        let said = ReplicaUpdate::Reported {
            replica: replica.clone(),
            shard: object.name.clone(),
            shares: BTreeMap::new(),
        };
        self.counter.apply(said).await
    }

    /// Evicts replicas without a recent heartbeat.
    async fn sweep(&mut self, store: &Arc<dyn Store>) -> bool {
        let now = Instant::now();
        let over: Vec<Arc<str>> = (self.seen.iter().filter(|(_, at)| now >= **at + GONE))
            .map(|(replica, _)| replica.clone())
            .collect();
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

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
