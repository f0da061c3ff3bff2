//! Histories and compaction.

use store::At;

use super::*;

pub async fn histories_are_kept(backend: Backend) {
    let store = backend.store;
    let key = key("default", "a");
    if !backend.history {
        assert!(matches!(store.history(&key, 10).await, Err(Error::Unsupported(_))));
        return;
    }
    assert!(store.history(&key, 10).await.expect("a history").is_empty());
    let mut revisions = Vec::new();
    for n in 0..3 {
        revisions.push(done(&store, put(key.clone(), object("a", n), Expect::Anything)).await.revision);
        done(&store, put(super::key("default", "ab"), object("a", 100 + n), Expect::Anything)).await;
    }
    revisions.push(done(&store, delete(key.clone(), Expect::Present)).await.revision);
    revisions.push(done(&store, put(key.clone(), object("a", 4), Expect::Absent)).await.revision);
    revisions.reverse();
    let versions = store.history(&key, 10).await.expect("a history");
    let seen: Vec<_> = versions.iter().map(|version| (version.revision, version.object.as_ref().map(number))).collect();
    let numbers = [Some(4), None, Some(2), Some(1), Some(0)];
    assert_eq!(seen, revisions.iter().copied().zip(numbers).collect::<Vec<_>>(), "newest first");
    assert!(versions.iter().all(|version| version.object.as_ref().is_none_or(|o| o.revision == version.revision)));
    let some = store.history(&key, 2).await.expect("a history");
    assert_eq!(some.iter().map(|version| version.revision).collect::<Vec<_>>(), revisions[..2]);
}

pub async fn compacted_revisions_are_rejected(backend: Backend) {
    let store = backend.store;
    let mut revisions = Vec::new();
    for n in 0..10 {
        revisions.push(
            done(&store, put(key("default", &format!("n{}", n % 3)), object("a", n), Expect::Anything)).await.revision,
        );
    }
    let upto = revisions[5];
    store.compact(upto).await.expect("compacted");
    store.compact(revisions[2]).await.expect("compacting less has no effect");
    let query = Query { at: At::Exactly(revisions[2]), ..Query::of(services()) };
    let error = store.list(&query).await.expect_err("refused");
    assert!(
        matches!(error, Error::Compacted { requested, oldest } if requested == revisions[2] && oldest > requested),
        "{error}"
    );
    let started = store.watch(&scope_of(services()), revisions[2]).await;
    let error = match started {
        Err(error) => error,
        // Some backends report it only on the first read.
        Ok(mut watch) => event(&mut watch).await.expect_err("refused"),
    };
    assert!(matches!(error, Error::Compacted { .. }), "{error}");
    let query = Query { at: At::Exactly(upto), ..Query::of(services()) };
    assert_eq!(listed(&store, &query).await.into_iter().map(|row| row.2).collect::<Vec<_>>(), [3, 4, 5]);
    let mut watch = store.watch(&scope_of(services()), upto).await.expect("a watch");
    let seen: Vec<_> = changes(&mut watch, 4).await.iter().map(|change| summary(change)).collect();
    assert_eq!(seen[0], ("n0".to_owned(), Some(3), Some(6)));
    assert_eq!(seen[3], ("n0".to_owned(), Some(6), Some(9)));
    let newest = store.revision().await.expect("a revision");
    assert!(matches!(store.compact(newest + 1000).await, Err(Error::Future { .. })));
}

pub async fn compaction_keeps_current_objects(backend: Backend) {
    let store = backend.store;
    let (kept, gone) = (key("default", "kept"), key("default", "gone"));
    let first = done(&store, put(kept.clone(), object("a", 1), Expect::Absent)).await.revision;
    done(&store, put(gone.clone(), object("a", 2), Expect::Absent)).await;
    done(&store, delete(gone.clone(), Expect::Present)).await;
    let newest = done(&store, put(key("default", "other"), object("a", 3), Expect::Absent)).await.revision;
    store.compact(newest).await.expect("compacted");
    assert_eq!(listed(&store, &Query::of(services())).await.into_iter().map(|row| row.2).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(store.get(&kept).await.expect("read").map(|object| object.revision), Some(first));
    if backend.history {
        let versions = store.history(&kept, 10).await.expect("a history");
        assert_eq!(versions.iter().map(|version| version.revision).collect::<Vec<_>>(), [first]);
        assert!(store.history(&gone, 10).await.expect("a history").is_empty());
    }
    let updated = done(&store, put(kept.clone(), object("a", 4), Expect::Revision(first))).await.revision;
    let mut watch = store.watch(&scope_of(services()), newest).await.expect("a watch");
    let seen = changes(&mut watch, 1).await;
    assert_eq!((summary(&seen[0]), seen[0].revision), (("kept".to_owned(), Some(1), Some(4)), updated));
}
