//! The memory backend passes the conformance suite, and has limits.

mod conformance;

use std::sync::Arc;
use std::time::Duration;

use conformance::{Backend, bookmark, done, key, object, pods, put, refused, scope_of, services};
use store::memory::Memory;
use store::{Error, Expect, Key, Limits, Query, Scope, WatchEvent};

conformance_tests!(fresh);

async fn fresh() -> Backend {
    backend(quick())
}

fn backend(limits: Limits) -> Backend {
    Backend { store: Arc::new(Memory::new(limits)), keep: Box::new(()), history: true }
}

/// Limits with frequent bookmarks.
fn quick() -> Limits {
    Limits { bookmark_interval: Duration::from_millis(20), ..Limits::default() }
}

#[tokio::test]
async fn only_a_watch_that_falls_behind_ends() {
    let limits = Limits { ring_revisions: 10, ..Limits::default() };
    let store = backend(limits).store;
    let start = store.revision().await.expect("a revision");
    let mut slow = store.watch(&scope_of(services()), start).await.expect("a watch");
    let mut quiet = store.watch(&scope_of(pods()), start).await.expect("a watch");
    let mut all = store.watch(&Scope::default(), start).await.expect("a watch");
    for n in 0..10 {
        done(&store, put(key("default", "a"), object("a", n), Expect::Anything)).await;
    }
    assert!(matches!(slow.next().await, Ok(WatchEvent::Changes(changes)) if changes.len() == 10));
    for n in 0..11 {
        done(&store, put(key("default", "a"), object("a", n), Expect::Anything)).await;
    }
    assert!(matches!(slow.next().await, Err(Error::Compacted { requested, oldest }) if oldest == requested + 1));
    assert!(matches!(all.next().await, Err(Error::Compacted { .. })));
    assert_eq!(bookmark(&mut quiet).await, 22, "no change of its type was missed");
    assert!(matches!(store.watch(&scope_of(pods()), start).await.err(), Some(Error::Compacted { .. })));
}

#[tokio::test]
async fn unread_watches_hold_no_changes() {
    const WATCHES: usize = 1_000;
    let limits = Limits { ring_bytes: 100_000, ..Limits::default() };
    let store = backend(limits).store;
    let start = store.revision().await.expect("a revision");
    let scope = scope_of(services());
    let mut reader = store.watch(&scope, start).await.expect("a watch");
    let mut unread = Vec::new();
    for _ in 0..WATCHES {
        unread.push(store.watch(&scope, start).await.expect("a watch"));
    }
    let large = |n| serde_json::json!({"spec": {"number": n, "text": "x".repeat(10_000)}});
    let mut received = Vec::new();
    for n in 0..200 {
        done(&store, put(key("default", "a"), large(n), Expect::Anything)).await;
        let changes = conformance::changes(&mut reader, 1).await;
        received.extend(changes.iter().map(Arc::downgrade));
    }
    let alive = received.iter().filter(|change| change.strong_count() > 0).count();
    assert_eq!(received.len(), 200);
    assert!((1..=10).contains(&alive), "{alive} changes of 20 kB are held for {WATCHES} watches");
    for mut watch in unread {
        let error = watch.next().await.expect_err("too old");
        assert!(matches!(error, Error::Compacted { requested, .. } if requested == start), "{error}");
    }
}

#[tokio::test]
async fn history_is_limited_by_bytes() {
    let limits = Limits { ring_bytes: 100_000, ..Limits::default() };
    let store = backend(limits).store;
    let large = serde_json::json!({"spec": {"number": 1, "text": "x".repeat(10_000)}});
    for _ in 0..50 {
        done(&store, put(key("default", "a"), large.clone(), Expect::Anything)).await;
    }
    let versions = store.history(&key("default", "a"), 100).await.expect("a history");
    assert!((3..=10).contains(&versions.len()), "{}", versions.len());
}

#[tokio::test]
async fn the_size_of_objects_is_limited() {
    let limits = Limits { object_bytes: 100, ..Limits::default() };
    let store = backend(limits).store;
    let error = refused(&store, put(key("default", "a"), object("a".repeat(100).as_str(), 1), Expect::Anything)).await;
    assert!(matches!(error, Error::TooLarge { limit: 100, .. }), "{error}");
    assert!(conformance::listed(&store, &Query::of(services())).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_depend_on_revisions_and_time() {
    let limits = Limits { bookmark_revisions: 5, ..Limits::default() };
    let store = backend(limits).store;
    let start = store.revision().await.expect("a revision");
    let mut watch = store.watch(&scope_of(pods()), start).await.expect("a watch");
    assert_eq!(bookmark(&mut watch).await, start);
    let write = |n| put(Key::new(services(), "default", "a"), object("a", n), Expect::Anything);
    for n in 0..4 {
        done(&store, write(n)).await;
    }
    let began = tokio::time::Instant::now();
    assert_eq!(bookmark(&mut watch).await, start + 4);
    assert_eq!(began.elapsed(), Duration::from_secs(10), "four revisions are too few, so the interval decides");
    for n in 0..5 {
        done(&store, write(n)).await;
    }
    let began = tokio::time::Instant::now();
    assert_eq!(bookmark(&mut watch).await, start + 9);
    assert_eq!(began.elapsed(), Duration::ZERO, "five revisions are enough");
}
