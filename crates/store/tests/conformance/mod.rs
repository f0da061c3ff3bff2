//! The conformance suite that every backend must pass. The test file of a backend declares `mod conformance;` and a
//! function that creates an empty store, and passes it to `conformance_tests!`.
//!
//! Revisions ascend. The suite does not require that they are consecutive or start with a certain number.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

mod model;
mod past;
mod reads;
mod watches;
mod writes;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::{
    Change, Committed, Error, Expect, GroupResource, Key, Operation, Query, Revision, Scope, Store, Stored,
    Transaction, Watch, WatchEvent,
};

pub use model::*;
pub use past::*;
pub use reads::*;
pub use watches::*;
pub use writes::*;

/// A backend for one test.
pub struct Backend {
    /// An empty store.
    pub store: Arc<dyn Store>,
    /// Resources that must live as long as the store.
    pub keep: Box<dyn Any + Send>,
    /// Whether the backend keeps histories.
    pub history: bool,
}

/// The timeout of a step, sufficient for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Generates one test per case; `$fresh` is an async function that returns a [`Backend`].
#[macro_export]
macro_rules! conformance_tests {
    ($fresh:path) => {
        $crate::conformance_tests!(@each $fresh:
            objects_are_created_read_updated_and_deleted
            preconditions_are_checked
            transactions_are_atomic
            invalid_transactions_are_rejected
            no_op_transactions_create_no_revision
            revisions_ascend_and_are_resource_versions
            concurrent_writers_lose_nothing
            racing_creations_have_one_winner
            lists_are_sorted_and_scoped
            lists_select
            pages_of_a_list_have_one_revision
            lists_show_the_requested_revision
            snapshots_hold_all_types
            watches_start_after_the_given_revision
            watches_yield_everything_once_in_order
            watches_keep_transactions_whole
            watches_see_their_scope_only
            quiet_watches_get_bookmarks
            watches_are_cancel_safe
            watches_of_future_revisions_are_rejected
            many_watches_see_every_event
            watches_with_selectors_see_objects_start_and_stop_matching
            histories_are_kept
            compacted_revisions_are_rejected
            compaction_keeps_current_objects
            a_closed_store_returns_closed
        );
        #[test]
        fn model() {
            $crate::conformance::agrees_with_a_model(|| $fresh());
        }
    };
    (@each $fresh:path: $($case:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$case($fresh().await).await;
            }
        )+
    };
}

pub fn services() -> GroupResource {
    GroupResource::new("networking.istio.io", "virtualservices")
}

pub fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

pub fn key(namespace: &str, name: &str) -> Key {
    Key::new(services(), namespace, name)
}

/// An object with a label `app` and a number.
pub fn object(app: &str, number: u64) -> Value {
    json!({"kind": "VirtualService", "metadata": {"labels": {"app": app}}, "spec": {"number": number}})
}

pub fn put(key: Key, value: Value, expect: Expect) -> Operation {
    Operation::Put { key, value, expect }
}

pub fn delete(key: Key, expect: Expect) -> Operation {
    Operation::Delete { key, expect }
}

/// The number in an object.
pub fn number(object: &Stored) -> u64 {
    object.value()["spec"]["number"].as_u64().expect("a number")
}

/// Commits one operation, which must succeed.
pub async fn done(store: &Arc<dyn Store>, operation: Operation) -> Committed {
    store.commit(Transaction::one(operation)).await.expect("committed")
}

/// Commits one operation, which must fail.
pub async fn refused(store: &Arc<dyn Store>, operation: Operation) -> Error {
    store.commit(Transaction::one(operation)).await.expect_err("refused")
}

/// The namespace, name and number of each object of a list.
pub async fn listed(store: &Arc<dyn Store>, query: &Query) -> Vec<(String, String, u64)> {
    rows(&store.list(query).await.expect("a list").items)
}

pub fn rows(items: &[Stored]) -> Vec<(String, String, u64)> {
    let row = |object: &Stored| (object.key.namespace.to_string(), object.key.name.to_string(), number(object));
    items.iter().map(row).collect()
}

pub fn scope_of(resource: GroupResource) -> Scope {
    Scope { resource: Some(resource), ..Scope::default() }
}

/// The next event, with a timeout.
pub async fn event(watch: &mut Watch) -> Result<WatchEvent, Error> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("an event in time")
}

/// The next changes, without bookmarks. A bookmark must not be older than yielded changes.
pub async fn changes(watch: &mut Watch, count: usize) -> Vec<Arc<Change>> {
    let mut seen = Vec::<Arc<Change>>::new();
    let mut bookmarked = 0;
    while seen.len() < count {
        match event(watch).await.expect("an event") {
            WatchEvent::Changes(changes) => {
                assert!(!changes.is_empty(), "an event without changes");
                for change in changes {
                    assert!(
                        change.revision > bookmarked,
                        "{} at {} after a bookmark of {bookmarked}",
                        change.key,
                        change.revision
                    );
                    assert!(seen.last().is_none_or(|last| last.revision <= change.revision), "out of order");
                    seen.push(change);
                }
            }
            WatchEvent::Bookmark(revision) => {
                assert!(revision >= bookmarked && seen.last().is_none_or(|last| last.revision <= revision));
                bookmarked = revision;
            }
        }
    }
    seen
}

/// The next bookmark, which must come before any change.
pub async fn bookmark(watch: &mut Watch) -> Revision {
    match event(watch).await.expect("an event") {
        WatchEvent::Bookmark(revision) => revision,
        WatchEvent::Changes(changes) => panic!("a bookmark was expected: {changes:?}"),
    }
}

/// A change as a row: name, number before, number after.
pub fn summary(change: &Change) -> (String, Option<u64>, Option<u64>) {
    (change.key.name.to_string(), change.before.as_ref().map(number), change.after.as_ref().map(number))
}
