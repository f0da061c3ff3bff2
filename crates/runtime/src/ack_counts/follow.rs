//! Reads the counts of other replicas, and evicts replicas without a heartbeat.
//!
//! The clocks of replicas need not agree: a replica is evicted when nothing of it has changed for [`GONE`], by the leader's
//! clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectKey;
use serde_json::Value;
use status::{ReplicaCounts, Shares, read_name};
use tokio::time::Instant;

use super::{ALIVE, Board, Counter, Event, Follow, GONE, Name, ReplicaUpdate};
use crate::leadership::until;

/// Follows the counts of other replicas until the world thread or the events end.
pub(super) async fn run<B: Board>(board: &B, identity: &Arc<str>, counter: &impl Counter) {
    let mut events = board.follow();
    let mut reader = Reader { board, values: BTreeMap::new(), identity, seen: BTreeMap::new(), counter };
    loop {
        let next = reader.seen.values().min().map(|at| *at + GONE);
        let going_on = tokio::select! {
            event = events.next() => match event {
                Some(event) => reader.take(event).await,
                None => false,
            },
            () = until(next) => reader.sweep().await,
        };
        if !going_on {
            return;
        }
    }
}

struct Reader<'a, B, C> {
    board: &'a B,
    /// The values of all replicas.
    values: BTreeMap<Name, Value>,
    identity: &'a Arc<str>,
    /// The other replicas, with the time of each one's last write.
    seen: BTreeMap<Arc<str>, Instant>,
    counter: &'a C,
}

impl<B: Board, C: Counter> Reader<'_, B, C> {
    async fn take(&mut self, event: Event) -> bool {
        let changes: Vec<(Name, Option<Value>)> = match event {
            Event::Changed(changes) => changes,
            Event::Listed(values) => {
                let listed: BTreeMap<Name, Value> = values.into_iter().collect();
                let gone = self.values.keys().filter(|name| !listed.contains_key(*name));
                let gone: Vec<Name> = gone.cloned().collect();
                let now = listed.into_iter().map(|(name, value)| (name, Some(value)));
                gone.into_iter().map(|name| (name, None)).chain(now).collect()
            }
        };
        // All changes are known before the first one is handled: a removed value may be back.
        for (name, now) in &changes {
            match now {
                Some(value) => drop(self.values.insert(name.clone(), value.clone())),
                None => drop(self.values.remove(name)),
            }
        }
        let mut reported: BTreeMap<Arc<str>, Shares> = BTreeMap::new();
        for ((replica, name), now) in changes {
            match now {
                _ if replica == *self.identity => {}
                Some(value) => {
                    let shares = match self.seen.insert(replica.clone(), Instant::now()) {
                        Some(_) => share(&name, Some(&value)).into_iter().collect(),
                        // The replica is new, or was evicted too early.
                        None => self.all_of(&replica),
                    };
                    reported.entry(replica).or_default().extend(shares);
                }
                None if &*name == ALIVE => {
                    reported.remove(&replica);
                    if !self.ended(&replica).await {
                        return false;
                    }
                }
                None if self.seen.contains_key(&replica) => {
                    reported.entry(replica).or_default().extend(share(&name, None));
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
        let all = self.values.iter().filter(|((of, _), _)| of == replica);
        all.filter_map(|((_, name), value)| share(name, Some(value))).collect()
    }

    /// Handles the end of a heartbeat.
    async fn ended(&mut self, replica: &Arc<str>) -> bool {
        let known = self.seen.remove(replica).is_some();
        if self.values.contains_key(&(replica.clone(), ALIVE.into())) {
            // The replica is back; its new values follow.
            return self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await;
        }
        !known || self.evict(replica).await
    }

    /// Evicts replicas without a recent heartbeat.
    async fn sweep(&mut self) -> bool {
        let now = Instant::now();
        let over: Vec<Arc<str>> =
            (self.seen.iter().filter(|(_, at)| now >= **at + GONE)).map(|(replica, _)| replica.clone()).collect();
        for replica in over {
            tracing::info!(replica = %replica, "replica sent no heartbeat for {}s; its proxies are not counted any more", GONE.as_secs());
            self.seen.remove(&replica);
            if !self.evict(&replica).await {
                return false;
            }
        }
        true
    }

    /// Removes a replica and its values.
    async fn evict(&mut self, replica: &Arc<str>) -> bool {
        if let Err(error) = self.board.remove(replica).await {
            tracing::debug!(%error, replica = %replica, "cannot remove the counts of a replica that is gone");
        }
        self.counter.apply(ReplicaUpdate::Removed(replica.clone())).await
    }
}

/// The counts that a value has; `None` for other values, such as heartbeats.
fn share(name: &str, value: Option<&Value>) -> Option<(ObjectKey, Option<ReplicaCounts>)> {
    Some((read_name(name)?, value.and_then(ReplicaCounts::from_json)))
}
