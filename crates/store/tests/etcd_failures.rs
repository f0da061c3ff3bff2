//! The etcd backend during failures of a real etcd: restarts, killed members, compaction, lost locks.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use store::etcd::{Compaction, Etcd, Login, Options};
use store::{
    At, Change, Error, Expect, GroupResource, Key, Operation, Query, Revision, Scope, Store, Transaction, Watch,
    WatchEvent,
};
use test_harness::etcd::{Cluster, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

const WRITERS: usize = 4;

async fn cluster(members: usize) -> Cluster {
    let binary = test_harness::etcd::program(&mut |_| {}).unwrap();
    Cluster::start(&binary, members, Settings::default()).await.unwrap()
}

async fn open(cluster: &Cluster) -> Etcd {
    Etcd::open(Options::new(cluster.endpoints())).await.unwrap()
}

fn kind() -> GroupResource {
    GroupResource::new("test.rutter.io", "things")
}

fn thing(name: &str) -> Key {
    Key::new(kind(), "default", name)
}

fn put(key: &Key, number: u64, expect: Expect) -> Transaction {
    let value = json!({"kind": "Thing", "metadata": {"namespace": &*key.namespace, "name": &*key.name}, "spec": {"number": number}});
    Transaction::one(Operation::Put { key: key.clone(), value, expect })
}

fn number(value: &Value) -> u64 {
    value["spec"]["number"].as_u64().unwrap()
}

/// Writes 1, 2, 3… into an object until `stop`. Returns the revisions of the acknowledged writes, by number.
async fn write(store: Etcd, key: Key, stop: watch::Receiver<bool>) -> BTreeMap<u64, Revision> {
    let mut answered = BTreeMap::new();
    let (mut next, mut expect) = (1, Expect::Absent);
    while !*stop.borrow() {
        match store.commit(put(&key, next, expect)).await {
            Ok(committed) => {
                answered.insert(next, committed.revision);
                (next, expect) = (next + 1, Expect::Revision(committed.revision));
            }
            // Nothing was written.
            Err(Error::Unavailable(_)) => {}
            Err(Error::Unknown(_) | Error::Conflict { .. } | Error::Exists { .. }) => {
                // Only this task writes the object, so its number shows whether the write happened.
                let now = loop {
                    match store.get(&key).await {
                        Ok(now) => break now,
                        Err(Error::Unavailable(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                if let Some(now) = now {
                    (next, expect) = (number(&now.value()) + 1, Expect::Revision(now.revision));
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    answered
}

/// Collects changes until one of `last` arrives. Reports the number of changes so far.
async fn follow(mut watch: Watch, last: Key, count: watch::Sender<usize>) -> Vec<Arc<Change>> {
    let mut all = Vec::new();
    loop {
        match watch.next().await.unwrap() {
            WatchEvent::Changes(changes) => all.extend(changes),
            WatchEvent::Bookmark(revision) => {
                assert!(all.last().is_none_or(|c: &Arc<Change>| c.revision <= revision), "a bookmark goes backwards");
            }
        }
        count.send_replace(all.len());
        if all.last().is_some_and(|change| change.key == last) {
            return all;
        }
    }
}

/// Checks that every change was seen once and in order, each starting from the previous version, including every
/// acknowledged write.
fn check(changes: &[Arc<Change>], answered: &[(Key, BTreeMap<u64, Revision>)]) {
    let revisions: Vec<Revision> = changes.iter().map(|change| change.revision).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b), "duplicate or out of order");
    let mut last: BTreeMap<&Key, (Revision, u64)> = BTreeMap::new();
    for change in changes {
        let after = change.after.as_ref().unwrap();
        let before = change.before.as_ref().map(|b| (b.revision, number(&b.value())));
        assert_eq!(before, last.get(&change.key).copied(), "a change of {} is missing", change.key);
        last.insert(&change.key, (after.revision, number(&after.value())));
    }
    for (key, writes) in answered {
        assert!(writes.len() > 10, "too few writes of {key}");
        for (number_, revision) in writes {
            let seen = changes.iter().find(|change| change.revision == *revision).unwrap();
            assert_eq!((&seen.key, number(&seen.after.as_ref().unwrap().value())), (key, *number_));
        }
    }
}

/// Runs writers and a watch while `trouble` happens. It receives the number of changes so far.
async fn under_load(store: &Etcd, trouble: impl AsyncFnOnce(watch::Receiver<usize>)) {
    let after = store.revision().await.unwrap();
    let scope = Scope { resource: Some(kind()), ..Scope::default() };
    let (count, counted) = watch::channel(0);
    let end = thing("the-end");
    let watch = store.watch(&scope, after).await.unwrap();
    let follower = tokio::spawn(follow(watch, end.clone(), count));
    let (stop, stopping) = watch::channel(false);
    let writers: Vec<_> = (0..WRITERS)
        .map(|i| {
            let key = thing(&format!("w{i}"));
            (key.clone(), tokio::spawn(write(store.clone(), key, stopping.clone())))
        })
        .collect();
    trouble(counted).await;
    stop.send_replace(true);
    let mut answered = Vec::new();
    for (key, writer) in writers {
        answered.push((key, writer.await.unwrap()));
    }
    store.commit(put(&end, 0, Expect::Anything)).await.unwrap();
    let changes = tokio::time::timeout(Duration::from_secs(60), follower).await.unwrap().unwrap();
    check(&changes, &answered);
    for (key, _) in &answered {
        let now = store.get(key).await.unwrap().unwrap();
        let last = changes.iter().rfind(|change| change.key == *key).unwrap();
        assert_eq!(now.revision, last.revision, "the watch has not seen the last write of {key}");
    }
}

/// Waits for this many more changes.
async fn more(counted: &mut watch::Receiver<usize>, more: usize) {
    let wanted = *counted.borrow() + more;
    let waited = tokio::time::timeout(Duration::from_secs(60), counted.wait_for(|count| *count >= wanted)).await;
    waited.expect("changes stopped coming").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_and_writers_survive_restarts_of_etcd() {
    let mut cluster = cluster(1).await;
    let store = open(&cluster).await;
    under_load(&store, async |mut counted| {
        for _ in 0..3 {
            more(&mut counted, 100).await;
            // Stopped rather than killed: a single etcd before 3.5.5 reports writes that it loses in a crash (etcd
            // issue 14370).
            cluster.end(0).await.unwrap();
            cluster.begin(0).await.unwrap();
        }
        more(&mut counted, 100).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_and_writers_survive_the_loss_of_each_member_of_three() {
    let mut cluster = cluster(3).await;
    let store = open(&cluster).await;
    under_load(&store, async |mut counted| {
        for member in 0..cluster.size() {
            more(&mut counted, 100).await;
            cluster.kill(member).await.unwrap();
            // Two of three members continue.
            more(&mut counted, 100).await;
            cluster.begin(member).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_watch_detects_that_etcd_was_restored() {
    let mut cluster = cluster(1).await;
    let mut options = Options::new(cluster.endpoints());
    options.timeout = Duration::from_secs(4);
    let store = Etcd::open(options).await.unwrap();
    let after = store.revision().await.unwrap();
    let mut watch = store.watch(&Scope::default(), after).await.unwrap();
    for number in 0..5 {
        store.commit(put(&thing("a"), number, Expect::Anything)).await.unwrap();
    }
    let mut seen = 0;
    while seen < 5 {
        if let WatchEvent::Changes(changes) = watch.next().await.unwrap() {
            seen += changes.len();
        }
    }
    cluster.lose(0).await.unwrap();
    cluster.begin(0).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            if let Err(error) = watch.next().await {
                return error;
            }
        }
    });
    let error = ended.await.unwrap();
    assert!(matches!(error, Error::Compacted { requested, .. } if requested >= after + 5), "{error}");
}

#[tokio::test]
async fn an_answer_from_before_a_known_revision_is_not_used() {
    // Two members that share nothing: one of them is behind for as long as this test runs.
    let (mut ahead, mut behind) = (cluster(1).await, cluster(1).await);
    let mut options = Options::new(vec![ahead.endpoints().remove(0), behind.endpoints().remove(0)]);
    options.timeout = Duration::from_secs(60);
    let store = Etcd::open(options).await.unwrap();
    let key = thing("a");
    open(&ahead).await.commit(put(&key, 1, Expect::Absent)).await.unwrap();
    behind.end(0).await.unwrap();
    assert!(store.get(&key).await.unwrap().is_some());
    behind.begin(0).await.unwrap();
    ahead.end(0).await.unwrap();
    let (read, begun) = tokio::join!(store.get(&key), async { ahead.begin(0).await });
    begun.unwrap();
    assert_eq!(number(&read.unwrap().unwrap().value()), 1);
}

#[tokio::test]
async fn without_a_majority_calls_time_out_with_the_right_errors() {
    let mut cluster = cluster(3).await;
    let mut options = Options::new(cluster.endpoints());
    options.timeout = Duration::from_secs(3);
    let store = Etcd::open(options).await.unwrap();
    let key = thing("a");
    let first = store.commit(put(&key, 1, Expect::Absent)).await.unwrap();
    cluster.kill(0).await.unwrap();
    cluster.kill(1).await.unwrap();
    let begun = std::time::Instant::now();
    let write = store.commit(put(&key, 2, Expect::Revision(first.revision))).await.unwrap_err();
    assert!(matches!(write, Error::Unknown(_) | Error::Unavailable(_)), "{write}");
    let read = store.get(&key).await.unwrap_err();
    assert!(matches!(read, Error::Unavailable(_)), "{read}");
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    // A read that may be stale needs no majority.
    let old = Query { at: At::NotOlderThan(first.revision), ..Query::of(kind()) };
    assert_eq!(store.list(&old).await.unwrap().items.len(), 1);
    cluster.begin(0).await.unwrap();
    let now = store.get(&key).await.unwrap().unwrap();
    let number = number(&now.value());
    assert!(number == 1 || matches!(write, Error::Unknown(_)), "the outcome of the write was unknown");
}

#[tokio::test]
async fn unreachable_and_missing_endpoints_are_errors() {
    let port = test_harness::run::free_port();
    let mut options = Options::new([format!("http://127.0.0.1:{port}")]);
    options.timeout = Duration::from_millis(500);
    assert!(matches!(Etcd::open(options).await, Err(Error::Unavailable(_))));
    assert!(matches!(Etcd::open(Options::new(Vec::<String>::new())).await, Err(Error::Invalid(_))));
    assert!(matches!(Etcd::open(Options::new(["http://not an address"])).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn periodic_compaction_removes_old_revisions() {
    let cluster = cluster(1).await;
    let mut options = Options::new(cluster.endpoints());
    options.compaction = Some(Compaction { every: Duration::from_millis(20), keep: Duration::from_millis(40) });
    let store = Etcd::open(options).await.unwrap();
    let key = thing("a");
    let first = store.commit(put(&key, 1, Expect::Absent)).await.unwrap().revision;
    store.commit(put(&key, 2, Expect::Present)).await.unwrap();
    let compacted = async || {
        let at = Query { at: At::Exactly(first), ..Query::of(kind()) };
        matches!(store.list(&at).await, Err(Error::Compacted { .. })).then_some(())
    };
    test_harness::run::wait_for("the compaction", Duration::from_secs(20), compacted).await.unwrap();
    assert_eq!(store.history(&key, 9).await.unwrap().len(), 1);
    assert_eq!(number(&store.get(&key).await.unwrap().unwrap().value()), 2);
}

#[tokio::test]
async fn tombstones_are_kept_as_long_as_history() {
    let cluster = cluster(1).await;
    let store = open(&cluster).await;
    let key = thing("a");
    for round in 0..2 {
        store.commit(put(&key, round, Expect::Absent)).await.unwrap();
        let gone = Operation::Delete { key: key.clone(), expect: Expect::Present };
        store.commit(Transaction::one(gone)).await.unwrap();
    }
    let history = store.history(&key, 9).await.unwrap();
    let shape: Vec<bool> = history.iter().map(|version| version.object.is_some()).collect();
    assert_eq!(shape, [false, true, false, true]);
    assert!(history[0].time.is_some(), "a deletion's time is kept");
    let newest = store.revision().await.unwrap();
    store.compact(newest).await.unwrap();
    assert!(store.history(&key, 9).await.unwrap().is_empty());
    // All traces of the deleted object are removed.
    store.compact(store.revision().await.unwrap()).await.unwrap();
    let tombstones = store.snapshot(&Scope::default()).await.unwrap();
    assert!(tombstones.items.is_empty());
}

#[tokio::test]
async fn users_can_log_in_and_wrong_passwords_are_errors() {
    let cluster = cluster(1).await;
    let endpoint = cluster.endpoints().remove(0);
    enable_auth(&endpoint, "root", "sesame").await;
    let options = |login: Option<(&str, &str)>| Options {
        login: login.map(|(user, password)| Login { user: user.into(), password: password.into() }),
        timeout: Duration::from_secs(3),
        ..Options::new(cluster.endpoints())
    };
    let store = Etcd::open(options(Some(("root", "sesame")))).await.unwrap();
    store.commit(put(&thing("a"), 1, Expect::Absent)).await.unwrap();
    let mut watch = store.watch(&Scope::default(), 1).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changes(_)));
    let wrong = Etcd::open(options(Some(("root", "guess")))).await.err().unwrap();
    assert!(wrong.to_string().contains("root") && !wrong.to_string().contains("guess"), "{wrong}");
    assert!(Etcd::open(options(None)).await.is_err());
    assert!(!format!("{:?}", options(Some(("root", "sesame")))).contains("sesame"));
}

/// Enables authentication through etcd's JSON gateway, since the store has no such call.
async fn enable_auth(endpoint: &str, user: &str, password: &str) {
    let calls = [
        ("user/add", json!({"name": user, "password": password})),
        ("role/add", json!({"name": "root"})),
        ("user/grant", json!({"user": user, "role": "root"})),
        ("enable", json!({})),
    ];
    for (path, body) in calls {
        let answer = post(endpoint.trim_start_matches("http://"), &format!("/v3/auth/{path}"), &body.to_string()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}

async fn post(address: &str, path: &str, body: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
