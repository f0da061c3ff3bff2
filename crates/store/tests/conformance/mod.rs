//! What every home promises. Each home's test file says `mod conformance;`, gives a function that makes a fresh, empty
//! home, and names it in `conformance_tests!`.
//!
//! Revisions ascend; nothing here needs them to be consecutive, nor the first one to be a certain number.

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

/// A home for one test.
pub struct Home {
    /// Empty.
    pub store: Arc<dyn Store>,
    /// What it needs as long as it is used.
    pub keep: Box<dyn Any + Send>,
    /// Whether it keeps histories.
    pub history: bool,
}

/// No single step of a test takes longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes one test of every promise; `$fresh` is an async function that returns a [`Home`].
#[macro_export]
macro_rules! conformance_tests {
    ($fresh:path) => {
        $crate::conformance_tests!(@each $fresh:
            objects_are_created_read_updated_and_deleted
            expectations_are_held
            transactions_happen_as_a_whole_or_not_at_all
            transactions_that_make_no_sense_are_refused
            changing_nothing_makes_no_revision
            revisions_ascend_and_stand_in_objects
            concurrent_writers_lose_nothing
            racing_creations_have_one_winner
            lists_are_sorted_and_scoped
            lists_select
            lists_come_in_pages_as_of_one_revision
            lists_are_as_of_the_revision_that_was_asked
            snapshots_hold_all_types
            watches_begin_where_they_are_told
            watches_yield_everything_once_in_order
            watches_keep_transactions_whole
            watches_see_their_scope_only
            watches_are_told_that_nothing_happened
            watches_may_be_interrupted
            watches_of_the_future_are_refused
            many_watches_see_every_event
            selections_are_entered_and_left
            histories_are_kept
            what_is_compacted_is_refused
            compaction_keeps_what_is_current
            a_closed_store_says_so
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

/// Commits one operation that must succeed.
pub async fn done(store: &Arc<dyn Store>, operation: Operation) -> Committed {
    store.commit(Transaction::one(operation)).await.expect("committed")
}

/// Commits one operation that must fail.
pub async fn refused(store: &Arc<dyn Store>, operation: Operation) -> Error {
    store.commit(Transaction::one(operation)).await.expect_err("refused")
}

/// Namespace, name and number of each object of a list.
pub async fn listed(store: &Arc<dyn Store>, query: &Query) -> Vec<(String, String, u64)> {
    rows(&store.list(query).await.expect("a list").items)
}

pub fn rows(items: &[Stored]) -> Vec<(String, String, u64)> {
    let row = |object: &Stored| {
        (
            object.key.namespace.to_string(),
            object.key.name.to_string(),
            number(object),
        )
    };
    items.iter().map(row).collect()
}

pub fn scope_of(resource: GroupResource) -> Scope {
    Scope {
        resource: Some(resource),
        ..Scope::default()
    }
}

/// The next moment, in time.
pub async fn moment(watch: &mut Watch) -> Result<WatchEvent, Error> {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("a moment in time")
}

/// The next changes, bookmarks left out. Bookmarks must not be from before what was yielded.
pub async fn changes(watch: &mut Watch, count: usize) -> Vec<Arc<Change>> {
    let mut seen = Vec::<Arc<Change>>::new();
    let mut told = 0;
    while seen.len() < count {
        match moment(watch).await.expect("a moment") {
            WatchEvent::Changes(changes) => {
                assert!(!changes.is_empty(), "a moment of nothing");
                for change in changes {
                    assert!(
                        change.revision > told,
                        "{} at {} after a bookmark of {told}",
                        change.key,
                        change.revision
                    );
                    assert!(
                        seen.last().is_none_or(|last| last.revision <= change.revision),
                        "not in order"
                    );
                    seen.push(change);
                }
            }
            WatchEvent::Bookmark(revision) => {
                assert!(revision >= told && seen.last().is_none_or(|last| last.revision <= revision));
                told = revision;
            }
        }
    }
    seen
}

/// The next bookmark, which must come before any change.
pub async fn bookmark(watch: &mut Watch) -> Revision {
    match moment(watch).await.expect("a moment") {
        WatchEvent::Bookmark(revision) => revision,
        WatchEvent::Changes(changes) => panic!("a bookmark was expected: {changes:?}"),
    }
}

/// What a change is, as a row: name, number before, number after.
pub fn told(change: &Change) -> (String, Option<u64>, Option<u64>) {
    (
        change.key.name.to_string(),
        change.before.as_ref().map(number),
        change.after.as_ref().map(number),
    )
}
