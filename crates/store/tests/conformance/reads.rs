//! Lists.

use store::{At, Continue, FieldSelector, LabelSelector, List};

use super::*;

/// Creates objects `a0`, `b1`, `a2`, ... in two namespaces, with the letter as `app`, in one transaction. Returns its
/// revision.
async fn filled(store: &Arc<dyn Store>, count: u64) -> Revision {
    let object = |n: u64| {
        let (app, namespace) = (["a", "b"][(n % 2) as usize], ["one", "two"][(n % 3 / 2) as usize]);
        put(key(namespace, &format!("{app}{n:03}")), object(app, n), Expect::Absent)
    };
    let operations = (0..count).map(object).collect();
    store.commit(Transaction { operations }).await.expect("committed").revision
}

pub async fn lists_are_sorted_and_scoped(backend: Backend) {
    let store = backend.store;
    assert!(listed(&store, &Query::of(services())).await.is_empty());
    let resources = [services(), pods(), GroupResource::new("", "pod"), GroupResource::new("", "podsx")];
    for (n, resource) in resources.into_iter().enumerate() {
        for (namespace, name) in [("b", "a"), ("a", "z"), ("a", "b-c"), ("a", "b.c"), ("ab", "a"), ("", "cluster")] {
            let key = Key::new(resource.clone(), namespace, name);
            done(&store, put(key, object("a", n as u64), Expect::Absent)).await;
        }
    }
    let row = |namespace: &str, name: &str, number| (namespace.to_owned(), name.to_owned(), number);
    let all = listed(&store, &Query::of(pods())).await;
    let expected = [("", "cluster"), ("a", "b-c"), ("a", "b.c"), ("a", "z"), ("ab", "a"), ("b", "a")];
    assert_eq!(all, expected.map(|(namespace, name)| row(namespace, name, 1)));
    let query = Query { namespace: Some("a".into()), ..Query::of(services()) };
    assert_eq!(listed(&store, &query).await, [row("a", "b-c", 0), row("a", "b.c", 0), row("a", "z", 0)]);
    let query = Query { namespace: Some("none".into()), ..Query::of(services()) };
    assert!(listed(&store, &query).await.is_empty());
    assert!(listed(&store, &Query::of(GroupResource::new("x", "none"))).await.is_empty());
}

pub async fn lists_select(backend: Backend) {
    let store = backend.store;
    filled(&store, 12).await;
    let labels = |text: &str| LabelSelector::parse(text).expect("a selector");
    let fields = |text: &str| FieldSelector::parse(text).expect("a selector");
    let query = Query { labels: labels("app=b"), ..Query::of(services()) };
    let numbers: Vec<u64> = listed(&store, &query).await.into_iter().map(|row| row.2).collect();
    assert_eq!(numbers, [1, 3, 7, 9, 5, 11]);
    let query = Query { labels: labels("app!=b"), fields: fields("spec.number=4"), ..Query::of(services()) };
    assert_eq!(listed(&store, &query).await.len(), 1);
    let query = Query { fields: fields("metadata.name=a002,metadata.namespace=two"), ..Query::of(services()) };
    assert_eq!(listed(&store, &query).await.len(), 1);
    // Pages with selectors are full, and the last one has no token.
    let query = Query { labels: labels("app=b"), limit: 3, ..Query::of(services()) };
    let first = store.list(&query).await.expect("a list");
    assert_eq!((first.items.len(), first.remaining), (3, None));
    let second = store.list(&Query { after: first.next, ..query }).await.expect("a list");
    assert_eq!(rows(&second.items).into_iter().map(|row| row.2).collect::<Vec<_>>(), [9, 5, 11]);
    assert!(second.next.is_none());
}

/// All pages of a query.
async fn pages(store: &Arc<dyn Store>, mut query: Query) -> Vec<List> {
    let mut pages = vec![store.list(&query).await.expect("a list")];
    while let Some(next) = pages.last().and_then(|page| page.next.clone()) {
        let token = Continue::decode(&next.encode()).expect("a token");
        assert_eq!(token, next);
        query.after = Some(token);
        pages.push(store.list(&query).await.expect("a list"));
        assert!(pages.len() < 100, "pages without end");
    }
    pages
}

pub async fn pages_of_a_list_have_one_revision(backend: Backend) {
    let store = backend.store;
    let revision = filled(&store, 10).await;
    let expected = listed(&store, &Query::of(services())).await;
    let mut query = Query { limit: 4, ..Query::of(services()) };
    let first = store.list(&query).await.expect("a list");
    assert_eq!((first.items.len(), first.remaining), (4, Some(6)));
    assert!(first.revision >= revision);
    // Changes between two pages are not visible.
    let Key { namespace, name, .. } = first.items[0].key.clone();
    done(&store, delete(key(&namespace, &name), Expect::Present)).await;
    done(&store, put(key("two", "zzz"), object("a", 99), Expect::Absent)).await;
    done(&store, put(key("one", "a004"), object("a", 77), Expect::Anything)).await;
    done(&store, delete(key("two", "b005"), Expect::Present)).await;
    query.after = first.next.clone();
    let rest = pages(&store, query).await;
    assert_eq!(
        rest.iter().map(|page| (page.items.len(), page.remaining)).collect::<Vec<_>>(),
        [(4, Some(2)), (2, None)]
    );
    assert!(rest.iter().all(|page| page.revision == first.revision));
    let items: Vec<Stored> = [first].into_iter().chain(rest).flat_map(|page| page.items).collect();
    assert_eq!(rows(&items), expected);
    for limit in [1, 3, 5, 10, 11] {
        let query = Query { limit, namespace: Some("one".into()), at: At::Exactly(revision), ..Query::of(services()) };
        let items: Vec<Stored> = pages(&store, query).await.into_iter().flat_map(|page| page.items).collect();
        let wanted: Vec<_> = expected.iter().filter(|row| row.0 == "one").cloned().collect();
        assert_eq!(rows(&items), wanted, "limit {limit}");
    }
}

pub async fn lists_show_the_requested_revision(backend: Backend) {
    let store = backend.store;
    let mut expected = Vec::new();
    for n in 0..12 {
        let key = key("default", &format!("n{}", n % 5));
        let operation = match n % 4 {
            3 => delete(key, Expect::Anything),
            _ => put(key, object("a", n), Expect::Anything),
        };
        let revision = done(&store, operation).await.revision;
        expected.push((revision, listed(&store, &Query::of(services())).await));
    }
    let newest = store.revision().await.expect("a revision");
    for (revision, rows) in &expected {
        let query = Query { at: At::Exactly(*revision), ..Query::of(services()) };
        let list = store.list(&query).await.expect("a list");
        assert_eq!((list.revision, &super::rows(&list.items)), (*revision, rows));
        let query = Query { at: At::NotOlderThan(*revision), ..query };
        let list = store.list(&query).await.expect("a list");
        assert!(list.revision >= *revision);
    }
    for at in [At::Exactly(newest + 1000), At::NotOlderThan(newest + 1000)] {
        let error = store.list(&Query { at, ..Query::of(services()) }).await.expect_err("refused");
        assert!(
            matches!(error, Error::Future { requested, newest: n } if requested == newest + 1000 && n >= newest),
            "{error}"
        );
    }
}

pub async fn snapshots_hold_all_types(backend: Backend) {
    let store = backend.store;
    filled(&store, 3).await;
    let pod = Key::new(pods(), "one", "pod");
    let revision = done(&store, put(pod.clone(), object("a", 9), Expect::Absent)).await.revision;
    let all = store.snapshot(&Scope::default()).await.expect("a snapshot");
    assert!(all.revision >= revision && all.next.is_none());
    assert_eq!(all.items.len(), 4);
    assert!(all.items.is_sorted_by(|a, b| a.key < b.key), "ascending by key");
    let of_type = store.snapshot(&scope_of(pods())).await.expect("a snapshot");
    assert_eq!(of_type.items.iter().map(|object| &object.key).collect::<Vec<_>>(), [&pod]);
    let scope = Scope { namespace: Some("two".into()), ..Scope::default() };
    assert_eq!(store.snapshot(&scope).await.expect("a snapshot").items.len(), 1);
}
