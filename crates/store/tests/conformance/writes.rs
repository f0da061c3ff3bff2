//! Writes.

use super::*;

pub async fn objects_are_created_read_updated_and_deleted(backend: Backend) {
    let store = backend.store;
    let key = key("default", "reviews");
    assert!(store.get(&key).await.expect("read").is_none());
    let created = done(&store, put(key.clone(), object("a", 1), Expect::Absent)).await;
    let now = store.get(&key).await.expect("read").expect("there");
    assert_eq!((number(&now), now.revision), (1, created.revision));
    assert_eq!(&*now.labels["app"], "a");
    assert_eq!(created.objects[0].as_ref().map(|object| &object.json), Some(&now.json));

    let updated = done(&store, put(key.clone(), object("b", 2), Expect::Revision(created.revision))).await;
    assert!(updated.revision > created.revision);
    let now = store.get(&key).await.expect("read").expect("there");
    assert_eq!((number(&now), &*now.labels["app"]), (2, "b"));

    let deleted = done(&store, delete(key.clone(), Expect::Revision(updated.revision))).await;
    assert!(deleted.revision > updated.revision);
    assert_eq!(deleted.objects[0].as_ref().map(number), Some(2), "a deletion returns the deleted object");
    assert!(store.get(&key).await.expect("read").is_none());
    let again = done(&store, put(key.clone(), object("a", 3), Expect::Absent)).await;
    assert!(again.revision > deleted.revision);
}

pub async fn preconditions_are_checked(backend: Backend) {
    let store = backend.store;
    let (there, absent) = (key("default", "there"), key("default", "absent"));
    let first = done(&store, put(there.clone(), object("a", 1), Expect::Anything)).await.revision;
    let second = done(&store, put(there.clone(), object("a", 2), Expect::Present)).await.revision;

    let exists = Error::Exists { key: there.clone() };
    let missing = Error::NotFound { key: absent.clone() };
    let conflict = Error::Conflict { key: there.clone(), expected: first, actual: second };
    assert_eq!(refused(&store, put(there.clone(), object("a", 3), Expect::Absent)).await, exists);
    assert_eq!(refused(&store, put(there.clone(), object("a", 3), Expect::Revision(first))).await, conflict);
    assert_eq!(refused(&store, delete(there.clone(), Expect::Revision(first))).await, conflict);
    assert_eq!(refused(&store, put(absent.clone(), object("a", 3), Expect::Present)).await, missing);
    assert_eq!(refused(&store, put(absent.clone(), object("a", 3), Expect::Revision(second))).await, missing);
    assert_eq!(refused(&store, delete(absent.clone(), Expect::Present)).await, missing);
    let check = |key: &Key, expect| Operation::Check { key: key.clone(), expect };
    assert_eq!(refused(&store, check(&there, Expect::Absent)).await, exists);
    assert_eq!(refused(&store, check(&absent, Expect::Present)).await, missing);
    assert_eq!(refused(&store, check(&there, Expect::Revision(first))).await, conflict);
    let checked = done(&store, check(&there, Expect::Revision(second))).await;
    assert_eq!(checked.objects[0].as_ref().map(number), Some(2));
    assert_eq!(store.get(&there).await.expect("read").map(|object| object.revision), Some(second));
}

pub async fn transactions_are_atomic(backend: Backend) {
    let store = backend.store;
    let keys: Vec<Key> = (0..4).map(|n| key("default", &format!("n{n}"))).collect();
    let first = done(&store, put(keys[0].clone(), object("a", 0), Expect::Absent)).await;
    let batch = |number, expect| Transaction {
        operations: vec![
            put(keys[1].clone(), object("a", number), Expect::Absent),
            delete(keys[0].clone(), Expect::Present),
            put(keys[2].clone(), object("a", number), Expect::Anything),
            Operation::Check { key: keys[3].clone(), expect },
        ],
    };
    let error = store.commit(batch(1, Expect::Present)).await.expect_err("refused");
    assert_eq!(error, Error::NotFound { key: keys[3].clone() });
    let rows = listed(&store, &Query::of(services())).await;
    assert_eq!(rows, [("default".to_owned(), "n0".to_owned(), 0)], "no part of it was applied");

    let committed = store.commit(batch(2, Expect::Absent)).await.expect("committed");
    assert!(committed.revision > first.revision);
    let revisions: Vec<_> = committed.objects.iter().map(|o| o.as_ref().map(|object| object.revision)).collect();
    let revision = Some(committed.revision);
    assert_eq!(revisions, [revision, Some(first.revision), revision, None]);
    let rows = listed(&store, &Query::of(services())).await;
    assert_eq!(rows.iter().map(|row| &*row.1).collect::<Vec<_>>(), ["n1", "n2"]);
}

pub async fn invalid_transactions_are_rejected(backend: Backend) {
    let store = backend.store;
    let twice = Transaction {
        operations: vec![
            put(key("default", "a"), object("a", 1), Expect::Anything),
            delete(key("default", "a"), Expect::Anything),
        ],
    };
    assert!(matches!(store.commit(twice).await, Err(Error::Invalid(_))));
    let senseless = [
        put(key("default", "a"), json!("text"), Expect::Anything),
        put(key("default", "a"), json!({"metadata": 1}), Expect::Anything),
        put(key("default", ""), object("a", 1), Expect::Anything),
        put(key("default", "a\0b"), object("a", 1), Expect::Anything),
        put(key("default", "a\nb"), object("a", 1), Expect::Anything),
        delete(key(&"n".repeat(1000), "a"), Expect::Anything),
    ];
    for operation in senseless {
        let error = refused(&store, operation.clone()).await;
        assert!(matches!(error, Error::Invalid(_)), "{operation:?}: {error}");
    }
    let large = json!({"metadata": {}, "spec": "x".repeat(4 << 20)});
    let error = refused(&store, put(key("default", "large"), large, Expect::Anything)).await;
    assert!(matches!(error, Error::TooLarge { bytes, limit, .. } if bytes > 4 << 20 && limit < bytes), "{error}");
    let odd = key("Ünïcode", "a b/..%2f");
    done(&store, put(odd.clone(), object("a", 1), Expect::Absent)).await;
    assert_eq!(store.get(&odd).await.expect("read").map(|object| object.key), Some(odd));
}

pub async fn no_op_transactions_create_no_revision(backend: Backend) {
    let store = backend.store;
    let there = key("default", "there");
    let revision = done(&store, put(there.clone(), object("a", 1), Expect::Absent)).await.revision;
    let gone = done(&store, delete(key("default", "absent"), Expect::Anything)).await;
    assert!(gone.revision >= revision && gone.objects[0].is_none());
    let check = Operation::Check { key: there.clone(), expect: Expect::Present };
    done(&store, check).await;
    assert_eq!(store.commit(Transaction::default()).await.expect("nothing").objects.len(), 0);
    assert_eq!(store.get(&there).await.expect("read").map(|object| object.revision), Some(revision));
    let mut watch = store.watch(&scope_of(services()), revision).await.expect("a watch");
    done(&store, put(there.clone(), object("a", 2), Expect::Present)).await;
    assert_eq!(summary(&changes(&mut watch, 1).await[0]), ("there".to_owned(), Some(1), Some(2)));
}

pub async fn revisions_ascend_and_are_resource_versions(backend: Backend) {
    let store = backend.store;
    let mut last = store.revision().await.expect("a revision");
    assert!(last >= 1, "0 is before everything");
    for n in 0..20 {
        let committed =
            done(&store, put(key("default", &format!("n{}", n % 3)), object("a", n), Expect::Anything)).await;
        assert!(committed.revision > last);
        last = committed.revision;
        let object = committed.objects[0].clone().expect("the object");
        assert_eq!(object.revision, last);
        assert_eq!(object.value()["metadata"]["resourceVersion"], json!(last.to_string()));
        let read = store.get(&object.key).await.expect("read").expect("there");
        assert_eq!((read.json, read.labels, read.revision), (object.json, object.labels, object.revision));
        assert!(store.revision().await.expect("a revision") >= last);
    }
}

pub async fn concurrent_writers_lose_nothing(backend: Backend) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 20;
    let store = backend.store;
    let key = key("default", "counter");
    let before = done(&store, put(key.clone(), object("a", 0), Expect::Absent)).await.revision;
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                for _ in 0..EACH {
                    loop {
                        let now = store.get(&key).await.expect("read").expect("there");
                        let next = put(key.clone(), object("a", number(&now) + 1), Expect::Revision(now.revision));
                        match store.commit(Transaction::one(next)).await {
                            Ok(_) => break,
                            Err(Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("done");
    }
    assert_eq!(store.get(&key).await.expect("read").map(|object| number(&object)), Some(WRITERS * EACH));
    let mut watch = store.watch(&scope_of(services()), before).await.expect("a watch");
    let seen = changes(&mut watch, usize::try_from(WRITERS * EACH).expect("small")).await;
    let numbers: Vec<u64> = seen.iter().filter_map(|change| change.after.as_ref().map(number)).collect();
    assert_eq!(numbers, (1..=WRITERS * EACH).collect::<Vec<_>>(), "each write once, in the order of revisions");
}

pub async fn racing_creations_have_one_winner(backend: Backend) {
    let store = backend.store;
    for round in 0..10 {
        let key = key("default", &format!("r{round}"));
        let racers: Vec<_> = (0..4)
            .map(|n| {
                let (store, key) = (store.clone(), key.clone());
                tokio::spawn(
                    async move { store.commit(Transaction::one(put(key, object("a", n), Expect::Absent))).await },
                )
            })
            .collect();
        let mut winner = None;
        for (n, racer) in racers.into_iter().enumerate() {
            match racer.await.expect("done") {
                Ok(_) => assert_eq!(winner.replace(n as u64), None, "two winners"),
                Err(error) => assert_eq!(error, Error::Exists { key: key.clone() }),
            }
        }
        let there = store.get(&key).await.expect("read").expect("there");
        assert_eq!(Some(number(&there)), winner);
    }
}

pub async fn a_closed_store_returns_closed(backend: Backend) {
    let store = backend.store;
    let revision = done(&store, put(key("default", "a"), object("a", 1), Expect::Absent)).await.revision;
    let mut watch = store.watch(&scope_of(services()), revision).await.expect("a watch");
    bookmark(&mut watch).await;
    let waiting = tokio::spawn(async move { watch.next().await.map(|_| ()) });
    store.close().await;
    assert_eq!(waiting.await.expect("done"), Err(Error::Closed));
    assert_eq!(refused(&store, delete(key("default", "a"), Expect::Anything)).await, Error::Closed);
    assert_eq!(store.get(&key("default", "a")).await.map(|_| ()), Err(Error::Closed));
    store.close().await;
}
