//! Reading what other replicas count, and noticing that one is gone.
//!
//! Clocks of replicas need not agree: who has not changed anything for a while, by the clock of who looks, is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use status::read_shard;
use store::cache::{Cache, Event, Options};
use store::{Store, Stored};
use tokio::time::{Instant, sleep_until};

use super::{ALIVE, Counter, GONE, Said, key, remove, resource};

/// Says what other replicas count, as long as somebody listens and there is a store.
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
    /// The other replicas, and when each of them wrote last.
    seen: BTreeMap<Arc<str>, Instant>,
    counter: &'a C,
}

impl<C: Counter> Reader<'_, C> {
    async fn take(&mut self, store: &Arc<dyn Store>, event: Event) -> bool {
        match event {
            Event::Added(object) | Event::Modified { now: object, .. } => self.there(&object).await,
            Event::Deleted(object) => self.gone(store, &object).await,
            Event::Restart => {
                // What is there is told of again; what went meanwhile is not.
                for peer in self.seen.keys() {
                    if !self.counter.hear(Said::Parted(peer.clone())).await {
                        return false;
                    }
                }
                true
            }
        }
    }

    async fn there(&mut self, object: &Stored) -> bool {
        let peer = &object.key.namespace;
        if peer == self.identity {
            return true;
        }
        if self.seen.insert(peer.clone(), Instant::now()).is_some() {
            return self.tell(object).await;
        }
        // It is new, or was given up too early: nothing of it is known.
        let all = self.cache.list(&resource());
        for object in all.iter().filter(|object| object.key.namespace == *peer) {
            if !self.tell(object).await {
                return false;
            }
        }
        true
    }

    /// Also that it lives is told, as of a part without tallies: so a replica is known that has nothing else to say.
    async fn tell(&mut self, object: &Stored) -> bool {
        let said = Said::Told {
            peer: object.key.namespace.clone(),
            shard: object.key.name.clone(),
            shares: read_shard(&object.value()),
        };
        self.counter.hear(said).await
    }

    async fn gone(&mut self, store: &Arc<dyn Store>, object: &Stored) -> bool {
        let peer = &object.key.namespace;
        if &*object.key.name == ALIVE {
            let known = self.seen.remove(peer).is_some();
            if self.cache.get(&key(peer, ALIVE)).is_some() {
                // It is back already, and what it says now is yet to be heard.
                return self.counter.hear(Said::Parted(peer.clone())).await;
            }
            return !known || self.give_up(store, peer).await;
        }
        if !self.seen.contains_key(peer) {
            return true;
        }
        let said = Said::Told {
            peer: peer.clone(),
            shard: object.key.name.clone(),
            shares: BTreeMap::new(),
        };
        self.counter.hear(said).await
    }

    /// Gives up who has not written for long.
    async fn sweep(&mut self, store: &Arc<dyn Store>) -> bool {
        let now = Instant::now();
        let over: Vec<Arc<str>> = (self.seen.iter().filter(|(_, at)| now >= **at + GONE))
            .map(|(peer, _)| peer.clone())
            .collect();
        for peer in over {
            tracing::info!(replica = %peer, "has not been heard of for {}s: its proxies do not count any more", GONE.as_secs());
            self.seen.remove(&peer);
            if !self.give_up(store, &peer).await {
                return false;
            }
        }
        true
    }

    /// A replica that is gone does not count, and leaves nothing behind.
    async fn give_up(&mut self, store: &Arc<dyn Store>, peer: &Arc<str>) -> bool {
        if let Err(error) = remove(&**store, peer).await {
            tracing::debug!(%error, replica = %peer, "its tallies cannot be taken away now");
        }
        self.counter.hear(Said::Parted(peer.clone())).await
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
