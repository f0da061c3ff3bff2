//! Following: lists, changes, gaps, a store that is unavailable.

use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::memory::Memory;
use crate::{Committed, Expect, Key, Limits, List, Operation, Transaction, Version};

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn key(name: &str) -> Key {
    Key::new(pods(), "default", name)
}

async fn put(store: &dyn Store, key: Key, number: u64) -> Revision {
    let value = json!({"spec": {"number": number}});
    let operation = Operation::Put { key, value, expect: Expect::Anything };
    store.commit(Transaction::one(operation)).await.expect("committed").revision
}

async fn delete(store: &dyn Store, key: Key) -> Revision {
    let operation = Operation::Delete { key, expect: Expect::Present };
    store.commit(Transaction::one(operation)).await.expect("committed").revision
}

fn number(object: &Stored) -> u64 {
    object.value()["spec"]["number"].as_u64().expect("a number")
}

/// An event as lines.
fn lines(event: Option<Event>) -> Vec<String> {
    let there = |object: &Stored| format!("{}={}", object.key.name, number(object));
    match event {
        Some(Event::Listed(objects)) => objects.iter().map(|object| format!("={}", there(object))).collect(),
        Some(Event::Changed(changes)) => {
            let line = |change: &Arc<Change>| match (&change.before, &change.after) {
                (None, Some(object)) => format!("+{}", there(object)),
                (Some(before), Some(object)) => format!("~{}>{}", there(before), number(object)),
                (Some(before), None) => format!("-{}", there(before)),
                (None, None) => unreachable!("a change of nothing"),
            };
            changes.iter().map(line).collect()
        }
        None => vec!["closed".to_owned()],
    }
}

async fn next(follower: &mut Follower) -> Vec<String> {
    lines(follower.next().await)
}

/// A store that can be taken away and exchanged.
#[derive(Default)]
struct Switch {
    /// None: away.
    store: Mutex<Option<Memory>>,
}

impl Switch {
    fn now(&self) -> Result<Memory, Error> {
        self.store.lock().expect("a lock").clone().ok_or_else(|| Error::Unavailable("away".to_owned()))
    }

    /// Puts another store in, or none; what watched the old one is cut off.
    async fn set(&self, store: Option<Memory>) {
        let old = std::mem::replace(&mut *self.store.lock().expect("a lock"), store);
        if let Some(old) = old {
            old.close().await;
        }
    }
}

#[async_trait::async_trait]
impl Store for Switch {
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        self.now()?.get(key).await
    }
    async fn list(&self, query: &Query) -> Result<List, Error> {
        self.now()?.list(query).await
    }
    async fn snapshot(&self, scope: &Scope) -> Result<List, Error> {
        self.now()?.snapshot(scope).await
    }
    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        self.now()?.commit(transaction).await
    }
    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error> {
        self.now()?.watch(scope, after).await
    }
    async fn revision(&self) -> Result<Revision, Error> {
        self.now()?.revision().await
    }
    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error> {
        self.now()?.history(key, limit).await
    }
    async fn compact(&self, upto: Revision) -> Result<(), Error> {
        self.now()?.compact(upto).await
    }
}

#[tokio::test]
async fn objects_are_listed_and_then_their_changes_come() {
    let store = Arc::new(Memory::default());
    let node = Key::new(GroupResource::new("", "nodes"), "", "n");
    put(&*store, key("a"), 1).await;
    put(&*store, node.clone(), 9).await;
    let mut pods_only = Follower::new(store.clone(), vec![pods()]);
    let mut both = Follower::new(store.clone(), vec![pods(), node.resource.clone()]);
    assert_eq!(next(&mut pods_only).await, ["=a=1"]);
    assert_eq!(next(&mut both).await, ["=a=1", "=n=9"]);
    put(&*store, node, 10).await;
    put(&*store, key("a"), 2).await;
    put(&*store, key("b"), 3).await;
    delete(&*store, key("a")).await;
    let expected = ["~n=9>10", "~a=1>2", "+b=3", "-a=2"];
    assert_eq!(next(&mut pods_only).await, expected[1..]);
    assert_eq!(next(&mut both).await, expected);
    store.close().await;
    assert_eq!(next(&mut pods_only).await, ["closed"]);
    assert_eq!(next(&mut both).await, ["closed"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_everything_is_listed() {
    let switch = Arc::new(Switch::default());
    let mut follower = Follower::new(switch.clone(), vec![pods()]);
    let early = tokio::time::timeout(Duration::from_secs(60), follower.next()).await;
    assert!(early.is_err(), "the store is away");
    let first = Memory::default();
    for (name, number) in [("same", 1), ("changed", 2), ("gone", 3)] {
        put(&first, key(name), number).await;
    }
    switch.set(Some(first.clone())).await;
    assert_eq!(next(&mut follower).await, ["=changed=2", "=gone=3", "=same=1"]);
    // Another store, which is behind: as from a backup.
    let second = Memory::default();
    put(&second, key("same"), 1).await;
    put(&second, key("changed"), 4).await;
    *switch.store.lock().expect("a lock") = Some(second.clone());
    follower.watch = None;
    assert_eq!(next(&mut follower).await, ["=changed=4", "=same=1"]);
    put(&second, key("same"), 5).await;
    assert_eq!(next(&mut follower).await, ["~same=1>5"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_compacted_meanwhile_is_listed() {
    let limits = Limits { ring_revisions: 2, ..Limits::default() };
    let store = Arc::new(Memory::new(limits));
    let mut follower = Follower::new(store.clone(), vec![pods()]);
    assert!(next(&mut follower).await.is_empty());
    for n in 0..10 {
        put(&*store, key("a"), n).await;
    }
    put(&*store, key("b"), 1).await;
    assert_eq!(next(&mut follower).await, ["=a=9", "=b=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_loses_nothing() {
    let switch = Arc::new(Switch::default());
    let store = Memory::default();
    put(&store, key("a"), 1).await;
    *switch.store.lock().expect("a lock") = Some(store.clone());
    let mut follower = Follower::new(switch.clone(), vec![pods()]);
    assert_eq!(next(&mut follower).await, ["=a=1"]);
    *switch.store.lock().expect("a lock") = None;
    follower.watch = None;
    put(&store, key("a"), 2).await;
    assert!(tokio::time::timeout(Duration::from_secs(60), follower.next()).await.is_err());
    *switch.store.lock().expect("a lock") = Some(store);
    assert_eq!(next(&mut follower).await, ["~a=1>2"]);
}
