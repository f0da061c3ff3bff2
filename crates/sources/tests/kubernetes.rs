//! The Kubernetes source against a server with all known faults. After each fault the objects equal those of a fresh
//! list, and no partial state was emitted.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use config::{AnyObject, ChangeSet, Kind, MeshConfig, ObjectKey};
use fake::{Fake, PATIENCE};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};
use sources::kubernetes::{self, MeshOptions, Options, Report};
use sources::{ChangeSender, SourceChange};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const ENTRIES: &str = "serviceentries";
const GROUP: &str = "networking.istio.io";

fn entry(name: &str, host: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "x", "uid": name, "generation": 1},
        "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
    })
}

fn pod(name: &str, ip: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "x"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running", "podIP": ip}})
}

/// A receiver and the objects that it received.
struct Listener {
    changes: mpsc::Receiver<SourceChange>,
    report: watch::Receiver<Report>,
    task: JoinHandle<()>,
    received: BTreeMap<ObjectKey, AnyObject>,
    seen: BTreeMap<String, Option<Value>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    fn start(server: &Fake, change: impl FnOnce(&mut Options)) -> Listener {
        let mut options = Options::new(server.client());
        options.kinds = Some([Kind::Pod, Kind::ServiceEntry, Kind::Sidecar].into());
        change(&mut options);
        let (sender, changes) = mpsc::channel(1);
        let (report, reported) = watch::channel(Report::default());
        Listener {
            changes,
            report: reported,
            task: tokio::spawn(kubernetes::follow(options, ChangeSender::new(0, sender), report)),
            received: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    async fn next(&mut self) -> ChangeSet {
        let change = timeout(PATIENCE, self.changes.recv())
            .await
            .expect("a change in time")
            .expect("the source is running")
            .change;
        for key in &change.deletes {
            self.received.remove(key);
        }
        self.received.extend(change.upserts.clone());
        for seen in change.observed.values().flatten() {
            self.seen.insert(seen.key.name.to_string(), seen.status.clone());
        }
        change
    }

    fn names(&self, kind: Kind) -> BTreeSet<String> {
        let of = self.received.keys().filter(|key| key.kind == kind);
        of.map(|key| format!("{}/{}", key.namespace, key.name)).collect()
    }

    fn host(&self, name: &str) -> Option<String> {
        match self.received.get(&ObjectKey::new(Kind::ServiceEntry, "x", name))? {
            AnyObject::ServiceEntry(entry) => Some(entry.spec.hosts[0].to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// Receives changes until the condition holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Listener) -> bool) {
        while !holds(self) {
            let change = timeout(PATIENCE, self.next()).await;
            assert!(change.is_ok(), "timed out: {what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_change_set_is_complete() {
    for (pages_only, no_progress) in [(false, false), (true, false), (false, true)] {
        let server = Fake::new();
        server.state().page = 2;
        server.state().pages_only = pages_only;
        server.state().no_progress = no_progress;
        server.define(GROUP, ENTRIES, &["v1"]);
        (0..5).for_each(|number| server.put(ENTRIES, entry(&format!("e{number}"), "a.com")));
        (0..3).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.1")));
        let mut listener = Listener::start(&server, |_| {});
        let first = listener.next().await;
        assert_eq!((first.upserts.len(), first.observed.len()), (8, 5), "pages only: {pages_only}");
        // Sidecars are not served, so the source does not wait for them.
        assert!(listener.report.borrow().waiting.is_empty());
        server.put(ENTRIES, entry("late", "b.com"));
        listener.until("a change", |l| l.host("late").as_deref() == Some("b.com")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_kind_delays_nothing_and_is_added_when_permitted() {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    server.put(ENTRIES, entry("e", "a.com"));
    server.put("pods", pod("p", "10.0.0.1"));
    server.state().denied.insert("pods".into());
    let mut listener = Listener::start(&server, |_| {});
    listener.next().await;
    assert_eq!(listener.names(Kind::ServiceEntry).len(), 1);
    assert!(listener.names(Kind::Pod).is_empty());
    let report = listener.report.borrow().clone();
    assert!(report.synced && report.denied["pods"].contains("no such right"), "{report:?}");
    server.state().denied.clear();
    listener.until("the pods", |l| l.names(Kind::Pod).len() == 1).await;
    assert!(listener.report.borrow().denied.is_empty());
}

/// Access to a kind is denied for a while: its objects are kept, other kinds continue at once, and the missed changes
/// are emitted together.
#[tokio::test(start_paused = true)]
async fn changes_during_a_denial_are_emitted_together() {
    for denied_for in [1, 10, 300] {
        let server = Fake::new();
        server.define(GROUP, ENTRIES, &["v1"]);
        server.put(ENTRIES, entry("e", "old.com"));
        (0..4).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.1")));
        let mut listener = Listener::start(&server, |_| {});
        listener.next().await;
        server.state().denied.insert("pods".into());
        server.cut();
        let denied = |report: &Report| report.denied.contains_key("pods");
        timeout(PATIENCE, listener.report.clone().wait_for(denied)).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(denied_for)).await;
        let lists = listener.report.borrow().lists;
        server.put(ENTRIES, entry("e", "new.com"));
        let begun = tokio::time::Instant::now();
        listener.until("the entry", |l| l.host("e").as_deref() == Some("new.com")).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "pods must not delay the entry");
        assert_eq!(listener.names(Kind::Pod).len(), 4, "existing objects are kept");
        (0..4).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.2")));
        server.delete("pods", "x", "p3");
        server.state().denied.clear();
        let change = listener.next().await;
        let counts = (change.upserts.len(), change.deletes.len());
        assert_eq!(counts, (3, 1), "denied for {denied_for} s: {change:?}");
        assert!(listener.report.borrow().lists > lists, "the kind must be relisted");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_fails_for_long_is_skipped_and_added_when_it_recovers() {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    server.define(GROUP, "sidecars", &["v1"]);
    server.put(ENTRIES, entry("e", "a.com"));
    server.put("pods", pod("p", "10.0.0.1"));
    server.state().failing.insert(ENTRIES.into());
    let begun = tokio::time::Instant::now();
    let mut listener = Listener::start(&server, |_| {});
    listener.next().await;
    assert!(begun.elapsed() >= Duration::from_secs(30), "the source waits initially");
    assert_eq!((listener.names(Kind::ServiceEntry).len(), listener.names(Kind::Pod).len()), (0, 1));
    let report = listener.report.borrow().clone();
    let without: Vec<&str> = report.without.iter().map(String::as_str).collect();
    assert_eq!(without, ["serviceentries.networking.istio.io"], "{report:?}");
    assert!(report.synced && report.failing["serviceentries.networking.istio.io"].contains("500"));
    server.state().failing.clear();
    listener.until("the entries", |l| l.host("e").is_some()).await;
    assert!(listener.report.borrow().without.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_source_waits_for_a_server_that_fails_for_all_kinds() {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    server.put(ENTRIES, entry("e", "a.com"));
    server.put("pods", pod("p", "10.0.0.1"));
    server.state().failing.extend([ENTRIES.into(), "pods".into()]);
    let mut listener = Listener::start(&server, |_| {});
    assert!(
        timeout(Duration::from_secs(300), listener.changes.recv()).await.is_err(),
        "no partial state may be emitted"
    );
    server.state().failing.clear();
    listener.next().await;
    assert_eq!((listener.names(Kind::ServiceEntry).len(), listener.names(Kind::Pod).len()), (1, 1));
}

/// Two kinds change while the server is unavailable. The changes are emitted together when it is back, however long
/// that took.
#[tokio::test(start_paused = true)]
async fn changes_during_an_outage_are_emitted_together() {
    for away in [1, 10, 300, 1000] {
        let server = Fake::new();
        server.define(GROUP, ENTRIES, &["v1"]);
        server.put(ENTRIES, entry("e", "old.com"));
        server.put("pods", pod("p", "10.0.0.1"));
        let mut listener = Listener::start(&server, |_| {});
        listener.next().await;
        server.cut();
        server.state().down = true;
        tokio::time::sleep(Duration::from_secs(away)).await;
        server.put(ENTRIES, entry("e", "new.com"));
        (0..4).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.2")));
        server.delete("pods", "x", "p");
        server.state().down = false;
        let change = listener.next().await;
        assert_eq!((change.upserts.len(), change.deletes.len()), (5, 1), "away for {away} s: {change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_added_and_removed_with_its_definition() {
    let server = Fake::new();
    server.put(ENTRIES, entry("e", "a.com"));
    let mut listener = Listener::start(&server, |_| {});
    assert!(listener.next().await.upserts.is_empty(), "the kind is not defined");
    server.define(GROUP, ENTRIES, &["v1alpha3", "v1"]);
    listener.until("the kind", |l| l.host("e").is_some()).await;
    server.delete("customresourcedefinitions", "", "serviceentries.networking.istio.io");
    listener.until("its end", |l| l.host("e").is_none()).await;
    server.define(GROUP, ENTRIES, &["v1"]);
    server.put(ENTRIES, entry("e", "b.com"));
    listener.until("the kind again", |l| l.host("e").as_deref() == Some("b.com")).await;
}

#[tokio::test(start_paused = true)]
async fn discovery_is_used_if_definitions_cannot_be_read() {
    let server = Fake::new();
    server.state().denied.insert("customresourcedefinitions".into());
    server.put("pods", pod("p", "10.0.0.1"));
    let mut listener = Listener::start(&server, |options| options.kinds = Some([Kind::Pod].into()));
    listener.next().await;
    assert_eq!(listener.names(Kind::Pod).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_wait_as_long_as_the_server_requests() {
    let server = Fake::new();
    server.put("pods", pod("p", "10.0.0.1"));
    server.state().busy = 20;
    let mut listener = Listener::start(&server, |_| {});
    listener.next().await;
    assert_eq!(listener.names(Kind::Pod).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_are_selected_by_revision_and_by_moving_tags() {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    let labelled = |name: &str, label: &str| {
        let mut entry = entry(name, "a.com");
        entry["metadata"]["labels"] = json!({"istio.io/rev": label});
        entry
    };
    let webhook = |revision: &str| json!({"metadata": {"name": "istio-revision-tag-prod", "labels": {"istio.io/tag": "prod", "istio.io/rev": revision}}});
    server.put(ENTRIES, entry("all", "a.com"));
    server.put(ENTRIES, labelled("ours", "canary"));
    server.put(ENTRIES, labelled("theirs", "stable"));
    server.put(ENTRIES, labelled("tagged", "prod"));
    server.put("mutatingwebhookconfigurations", webhook("stable"));
    let mut listener = Listener::start(&server, |options| options.revision = Some("canary".into()));
    listener.until("the first", |l| !l.received.is_empty()).await;
    let names = |l: &Listener| l.names(Kind::ServiceEntry).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names(&listener), "x/all x/ours");
    server.put("mutatingwebhookconfigurations", webhook("canary"));
    listener.until("the tagged", |l| l.host("tagged").is_some()).await;
    assert_eq!(names(&listener), "x/all x/ours x/tagged");
    // A Service may define a tag too.
    let service = json!({"metadata": {
        "name": "istiod-revision-tag-prod", "namespace": "istio-system", "labels": {"istio.io/tag": "prod", "istio.io/rev": "canary"},
    }});
    server.put("services", service);
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.delete("mutatingwebhookconfigurations", "", "istio-revision-tag-prod");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&listener), "x/all x/ours x/tagged");
    assert_eq!(listener.report.borrow().default_revision, None);
    server.put(
        "mutatingwebhookconfigurations",
        json!({"metadata": {"name": "istio-revision-tag-default", "labels": {"istio.io/tag": "default", "istio.io/rev": "canary"}}}),
    );
    let named = |report: &Report| report.default_revision.as_deref() == Some("canary");
    listener.report.wait_for(named).await.unwrap();
    server.delete("services", "istio-system", "istiod-revision-tag-prod");
    listener.until("its end", |l| l.host("tagged").is_none()).await;
}

/// A namespace with a revision, or without one.
fn namespace(name: &str, revision: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"istio.io/rev": revision}}})
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_route_is_left_to_the_revision_of_its_namespace() {
    let server = Fake::new();
    server.define("gateway.networking.k8s.io", "tcproutes", &["v1alpha2"]);
    let route = |namespace: &str| {
        json!({
            "metadata": {"name": namespace, "namespace": namespace, "uid": namespace, "generation": 1},
            "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]},
        })
    };
    for (name, revision) in [("ours", "canary"), ("theirs", "stable"), ("tagged", "prod"), ("plain", "")] {
        server.put("namespaces", namespace(name, revision));
        server.put("tcproutes", route(name));
    }
    let mut listener = Listener::start(&server, |options| {
        options.kinds = Some([Kind::Namespace, Kind::TcpRoute].into());
        options.revision = Some("canary".into());
    });
    let ours = |change: &ChangeSet| -> Vec<(String, bool)> {
        change.observed.iter().map(|(key, observed)| (key.name.to_string(), observed.is_some())).collect()
    };
    let all = |change: &ChangeSet| change.upserts.keys().filter(|key| key.kind == Kind::TcpRoute).count();
    let first = listener.next().await;
    let expected = [("ours", true), ("plain", true), ("tagged", false), ("theirs", false)];
    assert_eq!((all(&first), ours(&first)), (4, expected.map(|(name, is_ours)| (name.to_owned(), is_ours)).to_vec()));
    // The routes are known and unchanged; who writes their status is not.
    let mut change = async |what: &str, expected: (&str, bool)| loop {
        let change = timeout(PATIENCE, listener.next()).await.unwrap_or_else(|_| panic!("timed out: {what}"));
        assert_eq!(all(&change), 0, "{what}");
        if ours(&change).contains(&(expected.0.to_owned(), expected.1)) {
            return;
        }
    };
    server.put("namespaces", namespace("theirs", "canary"));
    change("a namespace moved here", ("theirs", true)).await;
    server.put("namespaces", namespace("plain", "stable"));
    change("a namespace moved away", ("plain", false)).await;
    let labels = json!({"istio.io/tag": "prod", "istio.io/rev": "canary"});
    server.put("mutatingwebhookconfigurations", json!({"metadata": {"name": "prod", "labels": labels}}));
    change("a tag moved here", ("tagged", true)).await;
}

#[tokio::test(start_paused = true)]
async fn the_mesh_configuration_is_read_from_config_maps() {
    let server = Fake::new();
    let map = |name: &str, text: &str| json!({"metadata": {"name": name, "namespace": "istio-system"}, "data": {"mesh": text}});
    server.put("configmaps", map("istio", "trustDomain: own"));
    server.put("configmaps", map("shared", "rootNamespace: roots\ntrustDomain: shared"));
    let mut listener = Listener::start(&server, |options| {
        options.mesh = Some(MeshOptions {
            namespace: "istio-system".into(),
            name: "istio".into(),
            shared: Some("shared".into()),
            file: None,
        });
    });
    let config = |l: &Listener| match l.received.get(&MeshConfig::key()) {
        Some(AnyObject::MeshConfig(config)) => format!("{} {}", config.spec.trust_domain, config.spec.root_namespace),
        _ => String::new(),
    };
    listener.next().await;
    assert_eq!(config(&listener), "own roots");
    server.put("configmaps", map("istio", "trustDomain: ["));
    let rejected = async {
        loop {
            tokio::select! {
                _ = listener.report.changed() => {}
                change = listener.changes.recv() => assert!(change.unwrap().change.upserts.is_empty()),
            }
            if listener.report.borrow().mesh_rejected {
                return;
            }
        }
    };
    timeout(PATIENCE, rejected).await.unwrap();
    assert_eq!(config(&listener), "own roots");
    server.delete("configmaps", "istio-system", "istio");
    listener.until("the shared", |l| config(l) == "shared roots").await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_restored_server_takes_effect() {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    server.put(ENTRIES, entry("old", "a.com"));
    let backup = server.backup();
    server.put(ENTRIES, entry("new", "a.com"));
    server.put(ENTRIES, entry("old", "b.com"));
    let mut listener = Listener::start(&server, |_| {});
    listener.next().await;
    assert_eq!(listener.host("old").as_deref(), Some("b.com"));
    server.state().down = true;
    server.restore(&backup);
    // It passes the version that we saw, with another history.
    (0..9).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.1")));
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.state().down = false;
    listener.until("the past", |l| l.host("old").as_deref() == Some("a.com") && l.host("new").is_none()).await;
    assert_eq!(listener.names(Kind::ServiceEntry), server.names(ENTRIES));
}

/// An event of the server.
#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Cut,
    Expire,
    Away,
    Back,
    Restore,
    Backup,
    Pages(bool),
    NoProgress(bool),
    Busy(u8),
    Undefine,
    Define,
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..5u8, 0..3u8).prop_map(|(name, host)| Step::Put(name, host)),
        3 => (0..5u8).prop_map(Step::Delete),
        2 => Just(Step::Cut),
        1 => Just(Step::Expire),
        1 => Just(Step::Away),
        2 => Just(Step::Back),
        1 => Just(Step::Restore),
        1 => Just(Step::Backup),
        1 => any::<bool>().prop_map(Step::Pages),
        1 => any::<bool>().prop_map(Step::NoProgress),
        1 => (1..4u8).prop_map(Step::Busy),
        1 => Just(Step::Undefine),
        2 => Just(Step::Define),
        4 => (0..50u8).prop_map(Step::Wait),
    ]
}

async fn survive(steps: Vec<Step>) {
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    let mut backup = server.backup();
    let mut listener = Listener::start(&server, |_| {});
    for step in steps {
        match step {
            Step::Put(name, host) => {
                server.put(ENTRIES, entry(&format!("e{name}"), &format!("h{host}.com")));
                server.put("pods", pod(&format!("p{name}"), &format!("10.0.0.{host}")));
            }
            Step::Delete(name) => {
                server.delete(ENTRIES, "x", &format!("e{name}"));
                server.delete("pods", "x", &format!("p{name}"));
            }
            Step::Cut => server.cut(),
            Step::Expire => server.expire(),
            Step::Away => {
                server.cut();
                server.state().down = true;
            }
            Step::Back => server.state().down = false,
            // The server is restored while it is unavailable, and events are missed.
            Step::Restore => {
                server.state().down = true;
                server.restore(&backup);
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            Step::Backup => backup = server.backup(),
            Step::Pages(only) => server.state().pages_only = only,
            Step::NoProgress(fails) => server.state().no_progress = fails,
            Step::Busy(times) => server.state().busy = times.into(),
            Step::Undefine => server.delete("customresourcedefinitions", "", "serviceentries.networking.istio.io"),
            Step::Define => server.define(GROUP, ENTRIES, &["v1"]),
            Step::Wait(tenths) => {
                let end = tokio::time::sleep(Duration::from_millis(u64::from(tenths) * 100));
                tokio::pin!(end);
                loop {
                    tokio::select! {
                        _ = listener.next() => {}
                        () = &mut end => break,
                    }
                }
            }
        }
    }
    server.state().down = false;
    let defined = !server.names("customresourcedefinitions").is_empty();
    let entries = if defined { server.names(ENTRIES) } else { BTreeSet::new() };
    let pods = server.names("pods");
    let state = |l: &Listener| {
        let hosts = entries.iter().all(|name| {
            let name = name.trim_start_matches("x/");
            let state = server.backup();
            l.host(name) == state.field(ENTRIES, name, "/spec/hosts/0")
        });
        l.names(Kind::ServiceEntry) == entries && l.names(Kind::Pod) == pods && hosts
    };
    listener.until("the state of the server", state).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn after_every_fault_the_state_equals_a_fresh_list(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(survive(steps));
    }
}

/// Options for a snapshot in this directory.
fn kept_in(directory: &std::path::Path) -> impl Fn(&mut Options) {
    let file = directory.join("snapshot");
    move |options| {
        options.snapshot = Some(kubernetes::SnapshotOptions {
            file: file.clone(),
            of: "the fake".into(),
            interval: Duration::from_secs(1),
            patience: Duration::from_secs(3),
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_used_while_the_server_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let keep = kept_in(directory.path());
    let server = Fake::new();
    server.define(GROUP, ENTRIES, &["v1"]);
    (0..3).for_each(|number| server.put(ENTRIES, entry(&format!("e{number}"), "a.com")));
    server.put("pods", pod("p", "10.0.0.1"));
    let mut first = Listener::start(&server, &keep);
    first.next().await;
    server.put(ENTRIES, entry("e1", "b.com"));
    first.until("a change", |l| l.host("e1").as_deref() == Some("b.com")).await;
    // Another thread writes the snapshot, for which the paused clock does not wait.
    let written = || {
        let bytes = std::fs::read(directory.path().join("snapshot")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains("b.com")
    };
    while !written() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::spawn_blocking(std::thread::yield_now).await.unwrap();
    }
    drop(first);

    server.state().down = true;
    let mut second = Listener::start(&server, &keep);
    let recalled = second.next().await;
    assert_eq!((recalled.upserts.len(), recalled.deletes.len()), (4, 0));
    assert_eq!(second.host("e1").as_deref(), Some("b.com"));
    second.report.wait_for(|report| report.from_snapshot).await.unwrap();

    // Only the changes since the snapshot are emitted, at once.
    server.delete(ENTRIES, "x", "e0");
    server.put(ENTRIES, entry("e2", "c.com"));
    server.state().down = false;
    let change = second.next().await;
    assert_eq!((change.upserts.len(), change.deletes.len()), (1, 1), "{change:?}");
    assert_eq!(second.host("e2").as_deref(), Some("c.com"));
    let report = second.report.wait_for(|report| report.synced).await.unwrap().clone();
    assert!(!report.from_snapshot);
}

/// A source ends after the snapshot that it writes. Otherwise, the file could appear after its removal.
#[tokio::test]
async fn a_source_ends_after_the_snapshot_that_it_writes() {
    let directory = tempfile::tempdir().unwrap();
    // A pipe holds less than the snapshot, so writing lasts until somebody reads.
    let pipe = directory.path().join("snapshot.new");
    let (fifo, owner) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, owner, 0).unwrap();
    let server = Fake::new();
    (0..1000).for_each(|number| server.put("pods", pod(&format!("p{number}"), "10.0.0.1")));
    let mut listener = Listener::start(&server, kept_in(directory.path()));
    listener.next().await;
    let opened = tokio::task::spawn_blocking(|| std::fs::File::open(pipe));
    let mut reader = timeout(PATIENCE, opened).await.unwrap().unwrap().unwrap();

    listener.changes.close();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!listener.task.is_finished());
    let read = tokio::task::spawn_blocking(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert!(timeout(PATIENCE, read).await.unwrap().unwrap().unwrap() > 1 << 16);
    timeout(PATIENCE, &mut listener.task).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_damaged_snapshot_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("snapshot"), b"rutter snapshot 1\nnonsense").unwrap();
    let server = Fake::new();
    server.put("pods", pod("p", "10.0.0.1"));
    server.state().down = true;
    let mut listener = Listener::start(&server, kept_in(directory.path()));
    assert!(timeout(Duration::from_secs(60), listener.changes.recv()).await.is_err());
    server.state().down = false;
    listener.next().await;
    assert_eq!(listener.names(Kind::Pod).len(), 1);
}
