//! The test cluster itself: a real control plane that is killed, restarted and restored.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use e2e::cluster::{Namespace, apply_crds, shared, shared_with_crds};
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, Method, Settings};
use test_harness::run::{Result, wait_for};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const PATIENCE: Duration = Duration::from_secs(60);

/// A Service and a pod that it selects on a node, without a running container.
const SERVICE: &str = "\
apiVersion: v1
kind: Node
metadata: { name: nowhere }
---
apiVersion: v1
kind: Service
metadata: { name: reviews }
spec: { selector: { app: reviews }, ports: [{ name: http, port: 80, targetPort: 9080 }] }
---
apiVersion: v1
kind: Pod
metadata: { name: reviews-1, labels: { app: reviews } }
spec: { nodeName: nowhere, containers: [{ name: reviews, image: none, ports: [{ containerPort: 9080 }] }] }
";
const RUNNING: &str = r#"{"status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
  "conditions": [{"type": "Ready", "status": "True"}]}}"#;

/// The addresses of the Service's endpoints.
async fn endpoints(plane: &ControlPlane, space: &Namespace<'_>) -> Result<Vec<String>> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", space.name());
    let slices = plane.request(Method::GET, &path, &Value::Null).await?.json()?;
    let items = slices["items"].as_array().into_iter().flatten();
    let endpoints = items.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    let first = endpoints.filter_map(|endpoint| endpoint["addresses"][0].as_str());
    Ok(first.map(str::to_owned).collect())
}

async fn endpoints_come(plane: &ControlPlane, space: &Namespace<'_>) -> Result<()> {
    space.apply(SERVICE).await?;
    let patch = ["patch", "pod", "reviews-1", "--subresource=status", "--type=merge", "-p", RUNNING];
    space.kubectl(&patch, "").await?;
    let come = || async { (endpoints(plane, space).await.ok()? == ["10.1.2.3"]).then_some(()) };
    wait_for("the endpoints of the Service", PATIENCE, come).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_endpoint_slice_controller_runs() {
    let test = async {
        let plane = shared().await?;
        let space = Namespace::create(plane, "endpoints").await?;
        endpoints_come(plane, &space).await
    };
    test.await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crds_of_rutter_are_served() {
    let test = async {
        let space = Namespace::create(shared_with_crds().await?, "kinds").await?;
        let rule = "\
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: reviews }
spec: { host: reviews }
";
        space.apply(rule).await?;
        let read = space.kubectl(&["get", "destinationrules", "-o", "name"], "").await?;
        assert_eq!(read, "destinationrule.networking.istio.io/reviews\n");
        Result::Ok(())
    };
    test.await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_the_granted_permissions() {
    let test = async {
        let plane = shared().await?;
        let space = Namespace::create(plane, "users").await?;
        let home = tempfile::tempdir()?;
        let file = home.path().join("kubeconfig");
        std::fs::write(&file, plane.user("reader", None)?)?;
        let flag = format!("--kubeconfig={}", file.display());
        let list = [&*flag, "get", "configmaps", "-o", "name"];
        let refused = space.kubectl(&list, "").await.unwrap_err().to_string();
        assert!(refused.contains(r#"User "reader" cannot list resource "configmaps""#), "{refused}");
        space.kubectl(&["create", "role", "reader", "--verb=list", "--resource=configmaps"], "").await?;
        space.kubectl(&["create", "rolebinding", "reader", "--role=reader", "--user=reader"], "").await?;
        let granted = || async { space.kubectl(&list, "").await.ok() };
        let listed = wait_for("the grant", PATIENCE, granted).await?;
        assert_eq!(listed, "configmap/kube-root-ca.crt\n");
        Result::Ok(())
    };
    test.await.unwrap_or_else(|error| panic!("{error}"));
}

async fn names(plane: &ControlPlane) -> Result<String> {
    plane.kubectl(&["get", "configmaps", "-l", "test", "-o", "name"], "").await
}

async fn write(plane: &ControlPlane, name: &str) -> Result<()> {
    let manifest = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, labels: {{ test: here }} }}\n");
    plane.kubectl(&["create", "-f", "-"], &manifest).await?;
    Ok(())
}

async fn over_failures() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    apply_crds(&plane).await?;
    write(&plane, "first").await?;
    let snapshot = plane.snapshot()?;
    write(&plane, "second").await?;

    plane.kill_api_server()?;
    names(&plane).await.unwrap_err();
    plane.begin_api_server().await?;
    assert_eq!(names(&plane).await?, "configmap/first\nconfigmap/second\n");

    plane.kill_etcd()?;
    plane.begin_etcd().await?;
    assert_eq!(names(&plane).await?, "configmap/first\nconfigmap/second\n");

    plane.restore(&snapshot).await?;
    assert_eq!(names(&plane).await?, "configmap/first\n");
    // The controllers continue to work.
    let space = Namespace::create(&plane, "after").await?;
    endpoints_come(&plane, &space).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_test_cluster_recovers_from_failures() {
    over_failures().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Whether a process with this id runs.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|command| !command.is_empty())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_leaves_nothing_behind() {
    let test = async {
        let plane = ControlPlane::start(Settings::default()).await?;
        let (pids, kubeconfig) = (plane.pids(), plane.kubeconfig());
        assert_eq!(pids.len(), 3);
        assert!(pids.iter().all(|pid| runs(*pid)));
        drop(plane);
        assert!(!pids.iter().any(|pid| runs(*pid)));
        assert!(!kubeconfig.parent().unwrap().exists());
        Result::Ok(())
    };
    test.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Named in the environment of a copy of this program: the copy starts a control plane, prints its address, and waits.
const HELD: &str = "RUTTER_TEST_HOLD";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_a_control_plane_for_another_test() {
    if std::env::var_os(HELD).is_none() {
        return;
    }
    let plane = ControlPlane::start(Settings::default()).await.unwrap();
    let pids: Vec<String> = plane.pids().iter().map(u32::to_string).collect();
    println!("\nheld {} {}", plane.kubeconfig().display(), pids.join(" "));
    std::future::pending::<()>().await;
}

async fn over_a_kill() -> Result<()> {
    let mut owner = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "holds_a_control_plane_for_another_test", "--nocapture"])
        .env(HELD, "1")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let held = loop {
        let line = lines.next_line().await?.ok_or("the other process ended")?;
        if let Some(held) = line.strip_prefix("held ") {
            break held.to_owned();
        }
    };
    let (kubeconfig, pids) = held.split_once(' ').unwrap();
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.len() == 3 && pids.iter().all(|pid| runs(*pid)), "{held}");
    owner.kill().await?;
    let directory = Path::new(kubeconfig).parent().unwrap();
    let gone = || async { (!directory.exists() && !pids.iter().any(|pid| runs(*pid))).then_some(()) };
    wait_for("everything to be gone", PATIENCE, gone).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_ends_when_the_test_is_killed() {
    over_a_kill().await.unwrap_or_else(|error| panic!("{error}"));
}
