//! Reads the counts of other replicas, and evicts replicas without a heartbeat.
//!
//! The clocks of replicas need not agree: a replica is evicted when its objects have not changed for [`GONE`], by the
//! leader's clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use status::read_shard;
use store::cache::{Cache, Event, Options};
use store::{Store, Stored};
use tokio::time::{Instant, sleep_until};

use super::{ALIVE, Counter, GONE, ReplicaUpdate, key, remove, resource};

/// Follows the counts of other replicas until the world thread or the store ends.
pub(super) async fn run(store: &Arc<dyn Store>, identity: &Arc<str>, counter: &impl Counter) {
    let options = Options {
        types: Some(vec![resource()]),
        ..Options::default()
    };
    let cache = Cache::start(Arc::clone(store), options);
    if !cache.synced().await {
        return;
    }
    let mut subscription = cache.subscribe(&resource());
    let mut reader = Reader {
        cache,
        identity,
        seen: BTreeMap::new(),
        counter,
    };
    loop {
        let next = reader.seen.values().min().map(|at| *at + GONE);
        let going_on = tokio::select! {
            event = subscription.next() => match event {
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
    cache: Cache,
    identity: &'a Arc<str>,
    /// The other replicas, with the time of each one's last write.
    seen: BTreeMap<Arc<str>, Instant>,
    counter: &'a C,
}

impl<C: Counter> Reader<'_, C> {
    async fn take(&mut self, store: &Arc<dyn Store>, event: Event) -> bool {
        match event {
            Event::Added(object) | Event::Modified { now: object, .. } => self.there(&object).await,
            Event::Deleted(object) => self.gone(store, &object).await,
            Event::Restart => {
                // Existing objects are reported again; deleted ones are not.
                for replica in self.seen.keys() {
                    if !self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await {
                        return false;
                    }
                }
                true
            }
        }
    }

    async fn there(&mut self, object: &Stored) -> bool {
        let replica = &object.key.namespace;
        if replica == self.identity {
            return true;
        }
        if self.seen.insert(replica.clone(), Instant::now()).is_some() {
            return self.report(object).await;
        }
        // The replica is new, or was evicted too early.
        let all = self.cache.list(&resource());
        for object in all.iter().filter(|object| object.key.namespace == *replica) {
            if !self.report(object).await {
                return false;
            }
        }
        true
    }

    /// Applies an object. The heartbeat counts as an empty shard, so that a replica without counts is known too.
    async fn report(&mut self, object: &Stored) -> bool {
        let update = ReplicaUpdate::Reported {
            replica: object.key.namespace.clone(),
            shard: object.key.name.clone(),
            shares: read_shard(&object.value()),
        };
        self.counter.apply(update).await
    }

    async fn gone(&mut self, store: &Arc<dyn Store>, object: &Stored) -> bool {
        let replica = &object.key.namespace;
        if &*object.key.name == ALIVE {
            let known = self.seen.remove(replica).is_some();
            if self.cache.get(&key(replica, ALIVE)).is_some() {
                // The replica is back; its new objects follow.
                return self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await;
            }
            return !known || self.evict(store, replica).await;
        }
        if !self.seen.contains_key(replica) {
            return true;
        }
        let update = ReplicaUpdate::Reported {
            replica: replica.clone(),
            shard: object.key.name.clone(),
            shares: BTreeMap::new(),
        };
        self.counter.apply(update).await
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
