//! Publishes the counts of this replica: each shard at most once per interval, and only if it changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use status::Shards;
use store::{Error, Expect, Operation, Store, Transaction};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{ALIVE, BEAT, Counter, key};

/// The approximate size of one transaction, in bytes. etcd rejects requests above 1.5 MiB.
const AT_ONCE: usize = 256 << 10;

/// Writes the counts of a replica to the store.
pub(super) struct Publisher {
    store: Arc<dyn Store>,
    identity: Arc<str>,
    shards: Shards,
    /// The number of heartbeats.
    beats: u64,
}

impl Publisher {
    pub(super) fn new(store: Arc<dyn Store>, identity: Arc<str>) -> Publisher {
        Publisher {
            store,
            identity,
            shards: Shards::unwritten(),
            beats: 0,
        }
    }

    /// Writes changed counts, at most once per `least`, and heartbeats. Ends with the world thread.
    pub(super) async fn run(&mut self, least: Duration, changed: &Notify, counter: &impl Counter) {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut all, mut failed) = (true, false);
        let mut next = Instant::now() + least;
        loop {
            let due = async {
                sleep_until(next).await;
                if !all && !failed {
                    changed.notified().await;
                }
            };
            let done = tokio::select! {
                biased;
                _ = beat.tick() => self.beat().await.map(|known| all |= !known),
                () = due => {
                    let Some(changes) = counter.shares(all).await else { return };
                    if std::mem::take(&mut all) {
                        self.shards = Shards::unwritten();
                    }
                    self.shards.take(changes);
                    let written = self.write().await;
                    failed = written.is_err();
                    next = Instant::now() + least.max(if failed { BEAT / 5 } else { Duration::ZERO });
                    written
                }
            };
            if let Err(error) = done {
                tracing::debug!(%error, "cannot publish the counts of this replica, will retry");
            }
        }
    }

    /// Writes the heartbeat. Returns false if another replica had evicted this one and removed its objects.
    async fn beat(&mut self) -> Result<bool, Error> {
        let put = |expect, beats| Operation::Put {
            key: key(&self.identity, ALIVE),
            value: json!({"metadata": {}, "beats": beats}),
            expect,
        };
        let first = self.beats == 0;
        let expect = if first { Expect::Anything } else { Expect::Present };
        match self.store.commit(Transaction::one(put(expect, self.beats))).await {
            Err(Error::NotFound { .. }) => self.beats = 0,
            Err(error) => return Err(error),
            Ok(_) => {
                self.beats += 1;
                return Ok(true);
            }
        }
        self.store.commit(Transaction::one(put(Expect::Anything, 0))).await?;
        self.beats = 1;
        Ok(false)
    }

    /// Writes the changed shards, several in one transaction if they are small.
    async fn write(&mut self) -> Result<(), Error> {
        let (mut places, mut operations, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (place, value) in self.shards.changed() {
            let key = key(&self.identity, format!("{place:02}"));
            let expect = Expect::Anything;
            let size = value.as_ref().map_or(0, |value| value.to_string().len());
            if bytes + size > AT_ONCE && !operations.is_empty() {
                self.commit(std::mem::take(&mut places), std::mem::take(&mut operations))
                    .await?;
                bytes = 0;
            }
            bytes += size;
            places.push(place);
            operations.push(match value {
                Some(value) => Operation::Put { key, value, expect },
                None => Operation::Delete { key, expect },
            });
        }
        self.commit(places, operations).await
    }

    async fn commit(&mut self, places: Vec<usize>, operations: Vec<Operation>) -> Result<(), Error> {
        if !operations.is_empty() {
            self.store.commit(Transaction { operations }).await?;
        }
        places.into_iter().for_each(|place| self.shards.wrote(place));
        Ok(())
    }
}
