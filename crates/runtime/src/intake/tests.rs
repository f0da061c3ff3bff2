//! The conditions for the first commit, and objects that validation refuses.

use config::{Kind, ParseOptions};
use registry::inputs::MeshSettings;
use serde_json::{Value, json};
use server::Pace;
use status::Intent;
use world::World;
use xds::Limits;

use super::*;

fn source(name: &str, remote: bool) -> Source {
    Source { name: name.into(), remote }
}

fn pilot() -> WorldHandle {
    WorldHandle::start(World::new(MeshSettings::default(), 1), Limits::default(), Pace::UNLIMITED).unwrap()
}

fn begin(sources: &[Source], patience: Duration) -> (Vec<ChangeSender>, watch::Receiver<Progress>) {
    let pilot = pilot();
    let options = Options { pilot, patience };
    start(sources.to_vec(), options)
}

async fn until(progress: &mut watch::Receiver<Progress>, wanted: impl FnMut(&Progress) -> bool) -> Progress {
    let reached = tokio::time::timeout(Duration::from_secs(30), progress.wait_for(wanted)).await;
    reached.unwrap().unwrap().clone()
}

#[tokio::test]
async fn the_first_commit_waits_for_all_sources() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::ZERO);
    assert_eq!(progress.borrow().awaited.len(), 2);
    senders[0].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.awaited.len() == 1).await;
    assert_eq!((&*now.awaited[0], now.begun), ("far", false));
    senders[1].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.begun).await;
    assert!(now.awaited.is_empty());
}

#[tokio::test]
async fn a_late_remote_source_does_not_delay_the_first_commit() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[0].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.begun).await;
    assert_eq!(now.awaited.len(), 1);
    senders[1].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.awaited.is_empty()).await;
}

#[tokio::test]
async fn the_first_commit_always_waits_for_the_store() {
    let sources = [source("store", false), source("far", true)];
    let (senders, mut progress) = begin(&sources, Duration::from_millis(1));
    senders[1].send(ChangeSet::default()).await.unwrap();
    let now = until(&mut progress, |now| now.awaited.len() == 1).await;
    assert_eq!((&*now.awaited[0], now.begun), ("store", false));
    senders[0].send(ChangeSet::default()).await.unwrap();
    until(&mut progress, |now| now.begun).await;
}

/// The change set of a source that observes an object, valid or not.
fn seen(kind: Kind, generation: i64, spec: &Value) -> ChangeSet {
    let (meta, api_version) = (json!({"name": "a", "namespace": "x", "generation": generation}), kind.api_version());
    let object = json!({"apiVersion": api_version, "kind": kind.name(), "metadata": meta, "spec": spec});
    let read = config::read_object(&object, &ParseOptions::default().degrading());
    let mut change: ChangeSet = read.object.into_iter().collect();
    change.observe(Observed {
        key: ObjectKey::new(kind, "x", "a"),
        uid: "u".into(),
        generation,
        diagnostics: read.diagnostics,
        assigned: false,
        parents: config::parents_of(kind, &object),
        status: None,
        original: None,
    });
    change
}

/// The conditions of the next status of an object: `TYPE=STATUS/REASON`.
async fn conditions(statuses: &mut mpsc::Receiver<Vec<Intent>>, kind: Kind) -> String {
    loop {
        let batch = tokio::time::timeout(Duration::from_secs(30), statuses.recv()).await.unwrap().unwrap();
        let Some(intent) = batch.into_iter().find(|intent| intent.key.kind == kind) else { continue };
        let status = intent.status.to_json();
        let of = status["parents"].get(0).or_else(|| status["ancestors"].get(0)).unwrap_or(&status).clone();
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let all = of["conditions"].as_array().into_iter().flatten();
        let all = all.map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason")));
        return all.collect::<Vec<_>>().join(" ");
    }
}

#[tokio::test]
async fn refused_objects_have_a_status_and_valid_ones_theirs() {
    let pilot = pilot();
    let fast = Duration::from_millis(1);
    let settings = status::Settings { interval: fast, grace: fast, floor: fast, ..status::Settings::default() };
    let mut statuses = pilot.feedback(settings).await.unwrap();
    pilot.lead(true).await.unwrap();
    let options = Options { pilot: pilot.clone(), patience: Duration::ZERO };
    let (senders, mut progress) = start(vec![source("store", false)], options);
    let send = async |change: ChangeSet| senders[0].send(change).await.unwrap();
    let gateway = json!({"gatewayClassName": "istio", "listeners": [{"name": "a", "port": 80, "protocol": "HTTP"}]});
    let route = |hostname: &str| json!({"parentRefs": [{"name": "a"}], "hostnames": [hostname]});

    send(seen(Kind::HttpRoute, 1, &route("?"))).await;
    until(&mut progress, |now| now.begun).await;
    send(seen(Kind::KubeGateway, 1, &gateway)).await;
    let refused = "Accepted=False/UnsupportedValue Programmed=False/Invalid";
    assert_eq!(conditions(&mut statuses, Kind::HttpRoute).await, refused, "when its Gateway is known");
    send(seen(Kind::HttpRoute, 2, &route("a.com"))).await;
    assert!(conditions(&mut statuses, Kind::HttpRoute).await.starts_with("Accepted=True/Accepted"));
    // Its last valid version stays in effect, and the status says so.
    send(seen(Kind::HttpRoute, 3, &route("?"))).await;
    assert!(conditions(&mut statuses, Kind::HttpRoute).await.starts_with("Accepted=False/UnsupportedValue"));

    let validation = |hostname: Value| json!({"hostname": hostname, "wellKnownCACertificates": "System"});
    let policy = |hostname: Value| json!({"targetRefs": [{"group": "", "kind": "Service", "name": "web"}], "validation": validation(hostname)});
    send(seen(Kind::BackendTlsPolicy, 1, &policy(3.into()))).await;
    assert_eq!(conditions(&mut statuses, Kind::BackendTlsPolicy).await, "Accepted=False/Invalid");
    send(seen(Kind::BackendTlsPolicy, 2, &policy("web".into()))).await;
    assert!(conditions(&mut statuses, Kind::BackendTlsPolicy).await.contains("Accepted=False/TargetNotFound"));

    send(seen(Kind::ListenerSet, 1, &json!({"parentRef": {"name": "a"}, "listeners": 3}))).await;
    assert_eq!(conditions(&mut statuses, Kind::ListenerSet).await, "Accepted=False/Invalid Programmed=False/Invalid");
}
