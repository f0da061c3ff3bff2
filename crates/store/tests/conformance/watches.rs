//! Watches.

use store::{FieldSelector, LabelSelector, Seen};

use super::*;

pub async fn watches_start_after_the_given_revision(backend: Backend) {
    let store = backend.store;
    let mut revisions = Vec::new();
    for n in 0..6 {
        revisions.push(done(&store, put(key("default", "a"), object("a", n), Expect::Anything)).await.revision);
    }
    for (index, revision) in revisions.iter().enumerate() {
        let mut watch = store.watch(&scope_of(services()), *revision).await.expect("a watch");
        let seen = changes(&mut watch, 5 - index).await;
        let numbers: Vec<_> = seen.iter().filter_map(|change| change.after.as_ref().map(number)).collect();
        assert_eq!(numbers, (index as u64 + 1..6).collect::<Vec<_>>());
        assert!(bookmark(&mut watch).await >= revisions[5], "caught up");
    }
}

pub async fn watches_yield_everything_once_in_order(backend: Backend) {
    let store = backend.store;
    let start = store.revision().await.expect("a revision");
    let mut early = store.watch(&scope_of(services()), start).await.expect("a watch");
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut written = Vec::new();
            for n in 0..60 {
                let key = key("default", &format!("n{}", n % 7));
                let operation =
                    if n % 5 == 4 { delete(key, Expect::Anything) } else { put(key, object("a", n), Expect::Anything) };
                let committed = done(&store, operation.clone()).await;
                if matches!(operation, Operation::Put { .. }) || committed.objects[0].is_some() {
                    written.push((committed.revision, operation.key().clone()));
                }
            }
            written
        })
    };
    let first: Vec<_> = changes(&mut early, 10).await;
    let written = writer.await.expect("done");
    let rest = changes(&mut early, written.len() - first.len()).await;
    let mut late = store.watch(&scope_of(services()), start).await.expect("a watch");
    let all = changes(&mut late, written.len()).await;
    let of = |changes: &[Arc<Change>]| changes.iter().map(|c| (c.revision, c.key.clone())).collect::<Vec<_>>();
    assert_eq!(of(&all), written);
    assert_eq!([of(&first), of(&rest)].concat(), written);
    // Each change starts from the object's previous version.
    let mut now = std::collections::HashMap::new();
    for change in &all {
        let before = change.before.as_ref().map(|object| object.json.clone());
        assert_eq!(now.insert(change.key.clone(), change.after.as_ref().map(|o| o.json.clone())).flatten(), before);
        assert!(change.after.as_ref().is_none_or(|object| object.revision == change.revision));
    }
}

pub async fn watches_keep_transactions_whole(backend: Backend) {
    let store = backend.store;
    let start = store.revision().await.expect("a revision");
    let mut watch = store.watch(&scope_of(services()), start).await.expect("a watch");
    const SIZE: usize = 50;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..8 {
                let operations =
                    (0..SIZE).map(|n| put(key("default", &format!("n{n}")), object("a", round), Expect::Anything));
                store.commit(Transaction { operations: operations.collect() }).await.expect("committed");
            }
        })
    };
    let mut seen = 0;
    while seen < 8 * SIZE {
        if let WatchEvent::Changes(changes) = event(&mut watch).await.expect("an event") {
            for batch in changes.chunk_by(|a, b| a.revision == b.revision) {
                assert_eq!(batch.len(), SIZE, "a torn transaction");
            }
            seen += changes.len();
        }
    }
    writer.await.expect("done");
}

pub async fn watches_see_their_scope_only(backend: Backend) {
    let store = backend.store;
    let start = store.revision().await.expect("a revision");
    let pod = |name: &str| Key::new(pods(), "one", name);
    let keys = [key("one", "a"), pod("a"), key("two", "a"), key("one", "b"), pod("b")];
    for (n, key) in keys.iter().enumerate() {
        done(&store, put(key.clone(), object("a", n as u64), Expect::Absent)).await;
    }
    let scope = |resource: Option<GroupResource>, namespace: Option<&str>, name: Option<&str>| Scope {
        resource,
        namespace: namespace.map(Arc::from),
        name: name.map(Arc::from),
    };
    let cases = [
        (Scope::default(), vec![0, 1, 2, 3, 4]),
        (scope(Some(services()), None, None), vec![0, 2, 3]),
        (scope(Some(services()), Some("one"), None), vec![0, 3]),
        (scope(Some(services()), Some("one"), Some("b")), vec![3]),
        (scope(None, Some("one"), None), vec![0, 1, 3, 4]),
        (scope(Some(GroupResource::new("", "none")), None, None), vec![]),
    ];
    for (scope, expected) in cases {
        let mut watch = store.watch(&scope, start).await.expect("a watch");
        let seen = changes(&mut watch, expected.len()).await;
        let numbers: Vec<_> = seen.iter().filter_map(|change| change.after.as_ref().map(number)).collect();
        assert_eq!(numbers, expected, "{scope:?}");
        bookmark(&mut watch).await;
    }
}

pub async fn quiet_watches_get_bookmarks(backend: Backend) {
    let store = backend.store;
    let start = done(&store, put(key("default", "a"), object("a", 1), Expect::Absent)).await.revision;
    let mut watch = store.watch(&scope_of(pods()), start).await.expect("a watch");
    assert!(bookmark(&mut watch).await >= start, "at once: caught up");
    let newest = done(&store, put(key("default", "a"), object("a", 2), Expect::Present)).await.revision;
    while bookmark(&mut watch).await < newest {}
}

pub async fn watches_are_cancel_safe(backend: Backend) {
    let store = backend.store;
    let start = store.revision().await.expect("a revision");
    let mut watch = store.watch(&scope_of(services()), start).await.expect("a watch");
    bookmark(&mut watch).await;
    let mut seen = Vec::new();
    let mut written = 0;
    while seen.len() < 40 {
        // Polls once and drops the future, with all its progress.
        let poll = std::future::poll_fn(|cx| {
            let mut next = std::pin::pin!(watch.next());
            std::task::Poll::Ready(match next.as_mut().poll(cx) {
                std::task::Poll::Ready(moment) => Some(moment),
                std::task::Poll::Pending => None,
            })
        });
        match poll.await {
            Some(Ok(WatchEvent::Changes(changes))) => seen.extend(changes),
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Err(error)) => panic!("{error}"),
            None if written < 40 => {
                done(&store, put(key("default", &format!("n{}", written % 3)), object("a", written), Expect::Anything))
                    .await;
                written += 1;
            }
            // All writes are done: wait for the remaining events.
            None => seen.extend(changes(&mut watch, 1).await),
        }
    }
    let numbers: Vec<_> = seen.iter().filter_map(|change| change.after.as_ref().map(number)).collect();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
}

pub async fn watches_of_future_revisions_are_rejected(backend: Backend) {
    let store = backend.store;
    let newest = store.revision().await.expect("a revision");
    let error = match store.watch(&Scope::default(), newest + 1000).await {
        Err(error) => error,
        Ok(_) => panic!("a watch of the future"),
    };
    assert!(matches!(error, Error::Future { requested, .. } if requested == newest + 1000), "{error}");
}

pub async fn many_watches_see_every_event(backend: Backend) {
    const WATCHES: usize = 50;
    const WRITES: u64 = 20;
    let store = backend.store;
    let start = store.revision().await.expect("a revision");
    let mut readers = Vec::new();
    for _ in 0..WATCHES {
        let mut watch = store.watch(&scope_of(services()), start).await.expect("a watch");
        readers.push(tokio::spawn(async move {
            let seen = changes(&mut watch, WRITES as usize).await;
            seen.iter().filter_map(|change| change.after.as_ref().map(number)).collect::<Vec<_>>()
        }));
    }
    for n in 0..WRITES {
        done(&store, put(key("default", &format!("n{n}")), object("a", n), Expect::Absent)).await;
    }
    for reader in readers {
        assert_eq!(reader.await.expect("done"), (0..WRITES).collect::<Vec<_>>());
    }
}

pub async fn watches_with_selectors_see_objects_start_and_stop_matching(backend: Backend) {
    let store = backend.store;
    let query = Query {
        labels: LabelSelector::parse("app=a").expect("a selector"),
        fields: FieldSelector::parse("spec.number!=3").expect("a selector"),
        namespace: Some("default".into()),
        ..Query::of(services())
    };
    let start = store.revision().await.expect("a revision");
    let states = [
        Some(("a", 1)),
        Some(("a", 2)),
        Some(("b", 2)),
        Some(("b", 4)),
        Some(("a", 5)),
        Some(("a", 3)),
        Some(("a", 6)),
        None,
    ];
    for state in states {
        let operation = match state {
            Some((app, number)) => put(key("default", "x"), object(app, number), Expect::Anything),
            None => delete(key("default", "x"), Expect::Present),
        };
        done(&store, operation).await;
    }
    done(&store, put(key("other", "x"), object("a", 1), Expect::Absent)).await;
    let mut watch = store.watch(&query.scope(), start).await.expect("a watch");
    let all = changes(&mut watch, states.len()).await;
    let seen: Vec<_> = all
        .iter()
        .filter_map(|change| {
            let seen = query.sees(change)?;
            let (kind, object) = match seen {
                Seen::Added(object) => ("added", object),
                Seen::Modified(object) => ("modified", object),
                Seen::Deleted(object) => ("deleted", object),
            };
            assert_eq!(object.revision, change.revision, "{kind}");
            assert_eq!(object.value()["metadata"]["resourceVersion"], json!(change.revision.to_string()));
            Some((kind, number(object)))
        })
        .collect();
    let expected =
        [("added", 1), ("modified", 2), ("deleted", 2), ("added", 5), ("deleted", 5), ("added", 6), ("deleted", 6)];
    assert_eq!(seen, expected);
}
