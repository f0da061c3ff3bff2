//! The embedded backend passes the conformance suite, also over restarts.

mod conformance;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conformance::{Backend, changes, delete, done, key, listed, number, object, put, scope_of, services, summary};
use store::embedded::{Embedded, Options};
use store::{At, Error, Expect, Limits, Query, Store};
use tempfile::TempDir;

conformance_tests!(fresh);

fn quick() -> Options {
    Options {
        limits: Limits { bookmark_interval: Duration::from_millis(20), ..Limits::default() },
        ..Options::default()
    }
}

/// A small history in memory, so that most lists of older revisions read the disk.
fn short_memory() -> Options {
    let mut options = quick();
    options.limits.ring_revisions = 2;
    options
}

async fn open(path: &Path, options: Options) -> Arc<dyn Store> {
    Arc::new(Embedded::open(path, options).await.expect("opened"))
}

async fn backend(options: Options) -> Backend {
    let directory = TempDir::new().expect("a directory");
    Backend { store: open(directory.path(), options).await, keep: Box::new(directory), history: true }
}

async fn fresh() -> Backend {
    backend(quick()).await
}

async fn again(backend: Backend) -> Backend {
    let directory = backend.keep.downcast::<TempDir>().expect("a directory");
    Backend { store: open(directory.path(), quick()).await, keep: directory, history: true }
}

#[test]
fn model_over_restarts() {
    conformance::agrees_with_a_model_over_restarts(fresh, again);
}

#[tokio::test]
async fn older_lists_are_read_from_disk() {
    conformance::lists_show_the_requested_revision(backend(short_memory()).await).await;
    conformance::pages_of_a_list_have_one_revision(backend(short_memory()).await).await;
    conformance::histories_are_kept(backend(short_memory()).await).await;
}

#[tokio::test]
async fn objects_and_history_survive_a_restart() {
    let backend = fresh().await;
    let start = done(&backend.store, put(key("default", "gone"), object("a", 0), Expect::Absent)).await.revision;
    let first = done(&backend.store, put(key("default", "a"), object("a", 1), Expect::Absent)).await;
    done(&backend.store, delete(key("default", "gone"), Expect::Present)).await;
    let last = done(&backend.store, put(key("default", "a"), object("b", 2), Expect::Present)).await;
    backend.store.close().await;
    let backend = again(backend).await;
    let now = backend.store.get(&key("default", "a")).await.expect("read").expect("there");
    assert_eq!(Some(&now.json), last.objects[0].as_ref().map(|object| &object.json));
    assert_eq!(&*now.labels["app"], "b");
    assert_eq!(backend.store.revision().await, Ok(last.revision));
    // A watch continues over the restart.
    let mut watch = backend.store.watch(&scope_of(services()), start).await.expect("a watch");
    let seen: Vec<_> = changes(&mut watch, 3).await.iter().map(|change| summary(change)).collect();
    let expected = [("a", None, Some(1)), ("gone", Some(0), None), ("a", Some(1), Some(2))];
    assert_eq!(seen, expected.map(|(name, before, after)| (name.to_owned(), before, after)));
    let versions = backend.store.history(&key("default", "a"), 9).await.expect("a history");
    assert_eq!(versions.iter().map(|v| v.object.as_ref().map(number)).collect::<Vec<_>>(), [Some(2), Some(1)]);
    assert!(
        versions
            .iter()
            .all(|version| { version.time.is_some_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() < 600)) })
    );
    let query = Query { at: At::Exactly(first.revision), ..Query::of(services()) };
    assert_eq!(listed(&backend.store, &query).await.len(), 2);
    let next = done(&backend.store, put(key("default", "c"), object("a", 3), Expect::Absent)).await;
    assert_eq!(next.revision, last.revision + 1);
}

#[tokio::test]
async fn a_directory_is_locked_by_one_process() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("deep/data");
    let store = open(&path, quick()).await;
    let error = Embedded::open(&path, quick()).await.err().expect("locked");
    let text = error.to_string();
    assert!(matches!(error, Error::Locked(_)), "{text}");
    assert!(text.contains(&format!("process {}", std::process::id())) && text.contains("deep/data"), "{text}");
    store.close().await;
    let store = open(&path, quick()).await;
    done(&store, put(key("default", "a"), object("a", 1), Expect::Absent)).await;
    for entry in std::fs::read_dir(&path).expect("a directory") {
        let mode = entry.expect("an entry").metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(std::fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn errors_name_directories_that_cannot_be_written() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let error = Embedded::open(file.path().join("below"), quick()).await.err().expect("no directory");
    assert!(error.to_string().contains(&*file.path().to_string_lossy()), "{error}");
    let error = Embedded::open("/proc/self/store", quick()).await.err().expect("not writable");
    assert!(error.to_string().contains("/proc/self/store"), "{error}");
}

#[tokio::test]
async fn old_revisions_are_compacted_automatically() {
    let options = Options { keep_revisions: 100, ..short_memory() };
    let backend = backend(options).await;
    let store = &backend.store;
    let kept = done(store, put(key("default", "kept"), object("a", 1), Expect::Absent)).await.revision;
    for n in 0..700 {
        done(store, put(key("default", &format!("n{}", n % 3)), object("a", n), Expect::Anything)).await;
    }
    let newest = store.revision().await.expect("a revision");
    let at = |revision| Query { at: At::Exactly(revision), ..Query::of(services()) };
    let error = store.list(&at(kept + 1)).await.expect_err("compacted");
    let Error::Compacted { oldest, .. } = error else { panic!("{error}") };
    assert!((100..=100 + 2 * 256).contains(&(newest - oldest)), "{oldest} of {newest}");
    assert_eq!(listed(store, &at(newest - 100)).await.len(), 4, "the last hundred revisions are retained");
    assert_eq!(store.history(&key("default", "kept"), 9).await.expect("a history").len(), 1);
    assert_eq!(store.get(&key("default", "kept")).await.expect("read").map(|object| object.revision), Some(kept));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_disk_syncs_and_all_are_acknowledged() {
    let backend = fresh().await;
    let writers: Vec<_> = (0..200)
        .map(|n| {
            let store = backend.store.clone();
            tokio::spawn(async move {
                done(&store, put(key("default", &format!("n{n}")), object("a", n), Expect::Absent)).await.revision
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.push(writer.await.expect("done"));
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (2..202).collect::<Vec<_>>());
    backend.store.close().await;
    assert_eq!(listed(&again(backend).await.store, &Query::of(services())).await.len(), 200);
}
