//! Publishes the counts of this replica: changed ones, at most once per interval.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::ObjectKey;
use serde_json::json;
use status::{ReplicaCounts, Shares, stored_name};
use store::{Error, Expect, Key, Operation, Store, Transaction};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{ALIVE, BEAT, Counter, key, of_replica};

/// The approximate size of one transaction, in bytes. etcd rejects requests above 1.5 MiB.
const AT_ONCE: usize = 256 << 10;

/// The maximum number of operations of one transaction. etcd rejects more than 128, and a deletion counts twice.
const OPERATIONS: usize = 64;

/// Writes the counts of a replica to the store.
pub(super) struct Publisher {
    store: Arc<dyn Store>,
    identity: Arc<str>,
    /// The counts to write; `None` to delete them.
    pending: BTreeMap<Key, Option<ReplicaCounts>>,
    /// The number of heartbeats.
    beats: u64,
}

impl Publisher {
    pub(super) fn new(store: Arc<dyn Store>, identity: Arc<str>) -> Publisher {
        Publisher { store, identity, pending: BTreeMap::new(), beats: 0 }
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
                    let written = self.write(changes, all).await;
                    all &= written.is_err();
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

    /// Writes changed counts, or all counts if `all` is set, several in one transaction.
    async fn write(&mut self, changes: Shares, all: bool) -> Result<(), Error> {
        let key_of = |object: &ObjectKey| key(&self.identity, stored_name(object));
        let changes = changes.into_iter().map(|(object, share)| (key_of(&object), share));
        self.pending.extend(changes);
        if all {
            for stale in of_replica(&*self.store, &self.identity).await? {
                if &*stale.key.name != ALIVE {
                    self.pending.entry(stale.key).or_insert(None);
                }
            }
        }
        while !self.pending.is_empty() {
            let (mut operations, mut bytes) = (Vec::new(), 0);
            for (key, share) in self.pending.iter().take(OPERATIONS) {
                let (key, expect) = (key.clone(), Expect::Anything);
                operations.push(match share {
                    Some(share) => {
                        let value = share.to_json();
                        bytes += value.to_string().len();
                        Operation::Put { key, value, expect }
                    }
                    None => Operation::Delete { key, expect },
                });
                if bytes > AT_ONCE {
                    break;
                }
            }
            let written: Vec<Key> = operations.iter().map(|operation| operation.key().clone()).collect();
            self.store.commit(Transaction { operations }).await?;
            written.iter().for_each(|key| drop(self.pending.remove(key)));
        }
        Ok(())
    }
}
