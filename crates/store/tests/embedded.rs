//! The durable home keeps what every home promises, over restarts, too.

mod conformance;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conformance::{Home, changes, delete, done, key, listed, number, object, put, scope_of, services, told};
use store::embedded::{Embedded, Options};
use store::{At, Error, Expect, Limits, Query, Store};
use tempfile::TempDir;

conformance_tests!(fresh);

fn quick() -> Options {
    Options {
        limits: Limits {
            bookmark_interval: Duration::from_millis(20),
            ..Limits::default()
        },
        ..Options::default()
    }
}

/// Lists of the past come from the disk, mostly.
fn short_memory() -> Options {
    let mut options = quick();
    options.limits.ring_revisions = 2;
    options
}

async fn open(path: &Path, options: Options) -> Arc<dyn Store> {
    Arc::new(Embedded::open(path, options).await.expect("opened"))
}

async fn home(options: Options) -> Home {
    let directory = TempDir::new().expect("a directory");
    Home {
        store: open(directory.path(), options).await,
        keep: Box::new(directory),
        history: true,
    }
}

async fn fresh() -> Home {
    home(quick()).await
}

async fn again(home: Home) -> Home {
    let directory = home.keep.downcast::<TempDir>().expect("a directory");
    Home {
        store: open(directory.path(), quick()).await,
        keep: directory,
        history: true,
    }
}

#[test]
fn model_over_restarts() {
    conformance::agrees_with_a_model_over_restarts(fresh, again);
}

#[tokio::test]
async fn lists_come_from_the_disk_when_memory_is_short() {
    conformance::lists_are_as_of_the_revision_that_was_asked(home(short_memory()).await).await;
    conformance::lists_come_in_pages_as_of_one_revision(home(short_memory()).await).await;
    conformance::histories_are_kept(home(short_memory()).await).await;
}

#[tokio::test]
async fn everything_is_there_again() {
    let home = fresh().await;
    let start = done(&home.store, put(key("default", "gone"), object("a", 0), Expect::Absent))
        .await
        .revision;
    let first = done(&home.store, put(key("default", "a"), object("a", 1), Expect::Absent)).await;
    done(&home.store, delete(key("default", "gone"), Expect::Present)).await;
    let last = done(&home.store, put(key("default", "a"), object("b", 2), Expect::Present)).await;
    home.store.close().await;
    let home = again(home).await;
    let now = home
        .store
        .get(&key("default", "a"))
        .await
        .expect("read")
        .expect("there");
    assert_eq!(Some(&now.json), last.objects[0].as_ref().map(|object| &object.json));
    assert_eq!(&*now.labels["app"], "b");
    assert_eq!(home.store.revision().await, Ok(last.revision));
    // A watch goes on where it was, over the restart.
    let mut watch = home.store.watch(&scope_of(services()), start).await.expect("a watch");
    let seen: Vec<_> = changes(&mut watch, 3).await.iter().map(|change| told(change)).collect();
    let expected = [("a", None, Some(1)), ("gone", Some(0), None), ("a", Some(1), Some(2))];
    assert_eq!(
        seen,
        expected.map(|(name, before, after)| (name.to_owned(), before, after))
    );
    let versions = home.store.history(&key("default", "a"), 9).await.expect("a history");
    assert_eq!(
        versions
            .iter()
            .map(|v| v.object.as_ref().map(number))
            .collect::<Vec<_>>(),
        [Some(2), Some(1)]
    );
    assert!(versions.iter().all(|version| {
        version
            .time
            .is_some_and(|time| time.elapsed().is_ok_and(|age| age.as_secs() < 600))
    }));
    let query = Query {
        at: At::Exactly(first.revision),
        ..Query::of(services())
    };
    assert_eq!(listed(&home.store, &query).await.len(), 2);
    let next = done(&home.store, put(key("default", "c"), object("a", 3), Expect::Absent)).await;
    assert_eq!(next.revision, last.revision + 1);
}

#[tokio::test]
async fn a_directory_has_one_holder() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("deep/data");
    let store = open(&path, quick()).await;
    let error = Embedded::open(&path, quick()).await.err().expect("locked");
    let text = error.to_string();
    assert!(matches!(error, Error::Locked(_)), "{text}");
    assert!(
        text.contains(&format!("process {}", std::process::id())) && text.contains("deep/data"),
        "{text}"
    );
    store.close().await;
    let store = open(&path, quick()).await;
    done(&store, put(key("default", "a"), object("a", 1), Expect::Absent)).await;
    for entry in std::fs::read_dir(&path).expect("a directory") {
        let mode = entry
            .expect("an entry")
            .metadata()
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(
        std::fs::metadata(&path).expect("metadata").permissions().mode() & 0o777,
        0o700
    );
}

#[tokio::test]
async fn places_that_cannot_be_written_are_named() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let error = Embedded::open(file.path().join("below"), quick())
        .await
        .err()
        .expect("no directory");
    assert!(error.to_string().contains(&*file.path().to_string_lossy()), "{error}");
    let error = Embedded::open("/proc/self/store", quick())
        .await
        .err()
        .expect("not writable");
    assert!(error.to_string().contains("/proc/self/store"), "{error}");
}

#[tokio::test]
async fn old_revisions_go_by_themselves() {
    let options = Options {
        keep_revisions: 100,
        ..short_memory()
    };
    let home = home(options).await;
    let store = &home.store;
    let kept = done(store, put(key("default", "kept"), object("a", 1), Expect::Absent))
        .await
        .revision;
    for n in 0..700 {
        done(
            store,
            put(key("default", &format!("n{}", n % 3)), object("a", n), Expect::Anything),
        )
        .await;
    }
    let newest = store.revision().await.expect("a revision");
    let at = |revision| Query {
        at: At::Exactly(revision),
        ..Query::of(services())
    };
    let error = store.list(&at(kept + 1)).await.expect_err("compacted");
    let Error::Compacted { oldest, .. } = error else {
        panic!("{error}")
    };
    assert!(
        (100..=100 + 2 * 256).contains(&(newest - oldest)),
        "{oldest} of {newest}"
    );
    assert_eq!(
        listed(store, &at(newest - 100)).await.len(),
        4,
        "the last hundred are all there"
    );
    assert_eq!(
        store
            .history(&key("default", "kept"), 9)
            .await
            .expect("a history")
            .len(),
        1
    );
    assert_eq!(
        store
            .get(&key("default", "kept"))
            .await
            .expect("read")
            .map(|object| object.revision),
        Some(kept)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_writes_share_the_disk_and_all_are_answered() {
    let home = fresh().await;
    let writers: Vec<_> = (0..200)
        .map(|n| {
            let store = home.store.clone();
            tokio::spawn(async move {
                done(
                    &store,
                    put(key("default", &format!("n{n}")), object("a", n), Expect::Absent),
                )
                .await
                .revision
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.push(writer.await.expect("done"));
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (2..202).collect::<Vec<_>>());
    home.store.close().await;
    assert_eq!(
        listed(&again(home).await.store, &Query::of(services())).await.len(),
        200
    );
}
