//! Caches: exact differences, gaps, slow subscribers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::json;

use super::*;
use crate::memory::Memory;
use crate::{Committed, Expect, Limits, List, Operation, Transaction, Version};

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn key(name: &str) -> Key {
    Key::new(pods(), "default", name)
}

async fn put(store: &dyn Store, key: Key, number: u64) -> Revision {
    let value = json!({"spec": {"number": number}});
    let operation = Operation::Put {
        key,
        value,
        expect: Expect::Anything,
    };
    store
        .commit(Transaction::one(operation))
        .await
        .expect("committed")
        .revision
}

async fn delete(store: &dyn Store, key: Key) -> Revision {
    let operation = Operation::Delete {
        key,
        expect: Expect::Present,
    };
    store
        .commit(Transaction::one(operation))
        .await
        .expect("committed")
        .revision
}

fn number(object: &Stored) -> u64 {
    object.value()["spec"]["number"].as_u64().expect("a number")
}

/// An event as a line.
fn line(event: &Event) -> String {
    match event {
        Event::Added(object) => format!("+{}={}", object.key.name, number(object)),
        Event::Modified { before, now } => format!("~{}={}>{}", now.key.name, number(before), number(now)),
        Event::Deleted(object) => format!("-{}={}", object.key.name, number(object)),
        Event::Restart => "restart".to_owned(),
    }
}

async fn lines(subscription: &mut Subscription, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < count {
        lines.push(line(&subscription.next().await.expect("an event")));
    }
    lines
}

/// A store that can be made unavailable and exchanged.
#[derive(Default)]
struct Switch {
    /// `None` while unavailable.
    store: Mutex<Option<Memory>>,
}

impl Switch {
    fn now(&self) -> Result<Memory, Error> {
        self.store
            .lock()
            .expect("a lock")
            .clone()
            .ok_or_else(|| Error::Unavailable("away".to_owned()))
    }

    /// Replaces the store, or makes it unavailable. Watches of the old one end.
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
async fn a_cache_follows_the_store_and_emits_events() {
    let store = Arc::new(Memory::default());
    put(&*store, key("a"), 1).await;
    put(&*store, Key::new(GroupResource::new("", "nodes"), "", "n"), 9).await;
    let cache = Cache::start(store.clone(), Options::default());
    let mut early = cache.subscribe(&pods());
    assert!(cache.synced().await);
    assert_eq!(lines(&mut early, 1).await, ["+a=1"]);
    let mut late = cache.subscribe(&pods());
    put(&*store, key("a"), 2).await;
    put(&*store, key("b"), 3).await;
    let newest = delete(&*store, key("a")).await;
    let expected = ["~a=1>2", "+b=3", "-a=2"];
    assert_eq!(lines(&mut early, 3).await, expected);
    assert_eq!(lines(&mut late, 4).await, ["+a=1", "~a=1>2", "+b=3", "-a=2"]);
    assert!(cache.reached(newest).await);
    assert_eq!(cache.list(&pods()).iter().map(number).collect::<Vec<_>>(), [3]);
    assert_eq!(cache.get(&key("b")).map(|object| number(&object)), Some(3));
    assert_eq!((cache.revision(), cache.status()), (newest, Status::Synced));
    cache.stop();
    assert!(early.next().await.is_none() && late.next().await.is_none());
    assert_eq!(cache.status(), Status::Stopped);
    assert!(!cache.reached(newest + 1).await);
    assert!(cache.subscribe(&pods()).next().await.is_none());
    assert_eq!(cache.list(&pods()).len(), 1, "the last copy is kept");
}

#[tokio::test(start_paused = true)]
async fn only_the_selected_types_are_cached() {
    let store = Arc::new(Memory::default());
    let node = Key::new(GroupResource::new("", "nodes"), "", "n");
    put(&*store, key("a"), 1).await;
    put(&*store, node.clone(), 9).await;
    let cache = Cache::start(
        store.clone(),
        Options {
            types: Some(vec![pods()]),
            ..Options::default()
        },
    );
    assert!(cache.synced().await);
    let newest = put(&*store, node.clone(), 10).await;
    assert!(cache.reached(newest).await);
    assert_eq!((cache.get(&node).is_some(), cache.list(&pods()).len()), (false, 1));
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_the_differences_are_emitted() {
    let switch = Arc::new(Switch::default());
    let cache = Cache::start(switch.clone(), Options::default());
    let first = Memory::default();
    for (name, number) in [("same", 1), ("changed", 2), ("gone", 3)] {
        put(&first, key(name), number).await;
    }
    assert_eq!(cache.status(), Status::Starting);
    switch.set(Some(first)).await;
    assert!(cache.synced().await);
    let mut subscription = cache.subscribe(&pods());
    assert_eq!(lines(&mut subscription, 3).await, ["+changed=2", "+gone=3", "+same=1"]);

    switch.set(None).await;
    let mut status = cache.board.status();
    status
        .wait_for(|status| matches!(status, Status::Stale(_)))
        .await
        .expect("stale");
    // Another store with a lower revision, as from a backup.
    let second = Memory::default();
    put(&second, key("same"), 1).await;
    put(&second, key("changed"), 4).await;
    switch.set(Some(second.clone())).await;
    assert_eq!(lines(&mut subscription, 2).await, ["-gone=3", "~changed=2>4"]);
    assert_eq!(cache.revision(), second.revision().await.expect("a revision"));
    put(&second, key("same"), 5).await;
    assert_eq!(lines(&mut subscription, 1).await, ["~same=1>5"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_compaction_the_objects_are_relisted() {
    let limits = Limits {
        ring_revisions: 2,
        ..Limits::default()
    };
    let store = Arc::new(Memory::new(limits));
    let cache = Cache::start(store.clone(), Options::default());
    assert!(cache.synced().await);
    let mut subscription = cache.subscribe(&pods());
    // The task does not run meanwhile: the runtime has one thread, and commits in memory do not wait.
    for n in 0..10 {
        put(&*store, key("a"), n).await;
    }
    put(&*store, key("b"), 1).await;
    assert_eq!(lines(&mut subscription, 2).await, ["+a=9", "+b=1"]);
}

#[tokio::test]
async fn a_slow_subscriber_restarts() {
    let store = Arc::new(Memory::default());
    let cache = Cache::start(
        store.clone(),
        Options {
            queue: 2,
            ..Options::default()
        },
    );
    assert!(cache.synced().await);
    let mut slow = cache.subscribe(&pods());
    let mut known = BTreeMap::new();
    for n in 0..20 {
        let revision = put(&*store, key(&format!("n{}", n % 3)), n).await;
        assert!(cache.reached(revision).await);
        known.insert(format!("n{}", n % 3), n);
    }
    let mut seen = BTreeMap::new();
    let mut restarts = 0;
    while seen != known {
        match slow.next().await.expect("an event") {
            Event::Added(object) | Event::Modified { now: object, .. } => {
                seen.insert(object.key.name.to_string(), number(&object));
            }
            Event::Deleted(object) => {
                seen.remove(&*object.key.name);
            }
            Event::Restart => {
                restarts += 1;
                seen.clear();
            }
        }
    }
    assert_eq!(restarts, 1);
    let revision = put(&*store, key("n0"), 99).await;
    assert!(cache.reached(revision).await);
    assert_eq!(slow.try_next().map(|event| line(&event)).as_deref(), Some("~n0=18>99"));
    assert!(slow.try_next().is_none());
}
