//! The memory use of a watched pod. A separate program, so that nothing else allocates meanwhile.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

mod fake;

use config::Kind;
use fake::Fake;
use serde_json::{Value, json};
use sources::ChangeSender;
use sources::kubernetes::{self, Options};
use tokio::sync::{mpsc, watch};

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 5_000;
/// The maximum, in bytes of the allocator, which rounds up.
const MOST: usize = 2200;

/// A pod as created by a Deployment, sidecar injection and a network plugin: about 5 KB.
fn pod(number: usize) -> Value {
    let app = format!("shop-{}", number % 200);
    let environment: Vec<Value> =
        (0..15).map(|at| json!({"name": format!("VARIABLE_{at}"), "value": "a value of some length"})).collect();
    let container = |name: &str, port: u16| {
        json!({
            "name": name, "image": format!("registry.example.com/{name}:v1.2.3"), "env": environment,
            "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}],
        })
    };
    let condition = |what: &str| json!({"type": what, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    json!({
        "metadata": {
            "name": format!("{app}-7d9c5b8f6d-{number:05}"), "generateName": format!("{app}-7d9c5b8f6d-"), "namespace": format!("team-{}", number % 20),
            "uid": format!("00000000-0000-0000-0000-{number:012}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": app, "version": "v1", "pod-template-hash": "7d9c5b8f6d", "security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": app},
            "annotations": {"sidecar.istio.io/status": "x".repeat(400), "k8s.v1.cni.cncf.io/network-status": "y".repeat(400)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-7d9c5b8f6d"), "controller": true, "uid": "1"}],
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {"f:spec": "z".repeat(1500)}}],
        },
        "spec": {
            "serviceAccountName": app, "nodeName": format!("node-{}", number % 100),
            "containers": [container("app", 8080), container("istio-proxy", 15090)],
            "initContainers": [container("istio-init", 1)],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "podIP": format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256),
            "podIPs": [{"ip": format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256)}], "hostIP": "192.168.1.1",
            "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "containerStatuses": [{"name": "app", "ready": true, "imageID": "sha256:0123456789"}, {"name": "istio-proxy", "ready": true}],
        },
    })
}

/// The allocated memory of this process, in bytes. Resident memory also has what the allocator keeps for later.
fn allocated() -> usize {
    tikv_jemalloc_ctl::epoch::advance().unwrap();
    tikv_jemalloc_ctl::stats::allocated::read().unwrap()
}

#[tokio::test]
async fn the_memory_of_a_watched_pod_is_bounded() {
    let server = Fake::new();
    {
        let mut state = server.state();
        state.pages_only = true;
        state.page = 100;
    }
    (0..PODS).for_each(|number| server.put("pods", pod(number)));
    server.state().forget();
    let mut options = Options::new(server.client());
    options.kinds = Some([Kind::Pod].into());
    let before = allocated();
    let begun = std::time::Instant::now();
    let (sender, mut changes) = mpsc::channel(1);
    let task = tokio::spawn(kubernetes::follow(options, ChangeSender::new(0, sender), watch::Sender::default()));
    let first = changes.recv().await.unwrap().change;
    let took = begun.elapsed() / PODS as u32;
    assert_eq!(first.upserts.len(), PODS);
    // The receiver keeps the pods, not the change set. The source keeps them, too.
    drop(first);
    let cost = allocated().saturating_sub(before) / PODS;
    println!("{cost} bytes a pod, {took:?} a pod");
    assert!(cost < MOST, "{cost} bytes a pod");
    task.abort();
}
