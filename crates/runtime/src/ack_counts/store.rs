//! Counts in a store that replicas share. The objects of a replica have its identity as their namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::store::follow::{Event as StoreEvent, Follower};
use ::store::{Error, Expect, GroupResource, Key, Operation, Scope, Store, Stored, Transaction};
use config::ObjectKey;
use serde_json::json;
use status::{ReplicaCounts, Shares, stored_name};

use super::{ALIVE, Board, Event, Follow, Name};

/// The approximate size of one transaction, in bytes. etcd rejects requests above 1.5 MiB.
const AT_ONCE: usize = 256 << 10;

/// The maximum number of operations of one transaction. etcd rejects more than 128, and a deletion counts twice.
const OPERATIONS: usize = 64;

/// The counts of a replica in the store.
#[derive(Clone)]
pub(crate) struct StoreBoard {
    store: Arc<dyn Store>,
    identity: Arc<str>,
    /// The counts to write; `None` to delete them.
    pending: BTreeMap<Key, Option<ReplicaCounts>>,
    /// The number of heartbeats.
    beats: u64,
}

impl StoreBoard {
    /// The place for the replica with this identity.
    pub(crate) fn new(store: Arc<dyn Store>, identity: Arc<str>) -> StoreBoard {
        StoreBoard { store, identity, pending: BTreeMap::new(), beats: 0 }
    }
}

impl Board for StoreBoard {
    type Error = Error;

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
                return Ok(!first);
            }
        }
        self.store.commit(Transaction::one(put(Expect::Anything, 0))).await?;
        self.beats = 1;
        Ok(false)
    }

    /// Writes several objects in one transaction.
    async fn write(&mut self, changes: Shares, all: bool) -> Result<bool, Error> {
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
        Ok(true)
    }

    /// Fails without a change if an object was written in the meantime.
    async fn remove(&self, replica: &Arc<str>) -> Result<(), Error> {
        let there = of_replica(&*self.store, replica).await?;
        let operations: Vec<Operation> = there
            .into_iter()
            .map(|object| Operation::Delete { expect: Expect::Revision(object.revision), key: object.key })
            .collect();
        if !operations.is_empty() {
            self.store.commit(Transaction { operations }).await?;
        }
        Ok(())
    }

    fn follow(&self) -> impl Follow {
        Follower::new(Arc::clone(&self.store), vec![resource()])
    }
}

impl Follow for Follower {
    async fn next(&mut self) -> Option<Event> {
        let entry = |object: &Stored| (name(&object.key), object.value());
        Some(match Follower::next(self).await? {
            StoreEvent::Listed(objects) => Event::Listed(objects.iter().map(entry).collect()),
            StoreEvent::Changed(changes) => {
                let value = |after: &Option<Stored>| after.as_ref().map(|object| object.value());
                Event::Changed(changes.iter().map(|change| (name(&change.key), value(&change.after))).collect())
            }
        })
    }
}

/// The type of the objects, which the API does not serve.
fn resource() -> GroupResource {
    GroupResource::new("internal.rutter", "tallies")
}

fn key(replica: &Arc<str>, name: impl Into<Arc<str>>) -> Key {
    Key::new(resource(), replica.clone(), name)
}

fn name(key: &Key) -> Name {
    (key.namespace.clone(), key.name.clone())
}

/// All objects of a replica in the store.
pub(super) async fn of_replica(store: &dyn Store, replica: &Arc<str>) -> Result<Vec<Stored>, Error> {
    let scope = Scope { resource: Some(resource()), namespace: Some(replica.clone()), name: None };
    Ok(store.snapshot(&scope).await?.items)
}
