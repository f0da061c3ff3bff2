//! What becomes of `rutter serve --store kubernetes` when the real API server fails: each time the world is that of a fresh
//! list.

use std::fs;

use e2e::cluster::{Namespace, apply_crds};
use e2e::home::{PATIENCE, Rutter, entry};
use parts::kubernetes::{ControlPlane, Settings};
use parts::run::{Result, wait_for};

/// The server killed, its data put back, a definition taken away and made again: each time the world is that of a fresh
/// list.
async fn faults() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    apply_crds(&plane).await?;
    let space = Namespace::create(&plane, "faults").await?;
    let rutter = Rutter::start(&plane, space.name()).await?;
    space.apply(&entry("first", "first.example.com")).await?;
    rutter.shows("/debug/registryz", "first.example.com", true).await?;

    plane.kill_api_server()?;
    rutter.says("the Kubernetes API does not answer", true).await?;
    rutter.shows("/debug/registryz", "first.example.com", true).await?;
    plane.begin_api_server().await?;
    space.apply(&entry("second", "second.example.com")).await?;
    rutter.shows("/debug/registryz", "second.example.com", true).await?;
    rutter.is_as_new(&plane, space.name()).await?;

    let snapshot = plane.snapshot()?;
    space.apply(&entry("third", "third.example.com")).await?;
    space.apply(&entry("first", "other.example.com")).await?;
    space.kubectl(&["delete", "serviceentry", "second"], "").await?;
    rutter.shows("/debug/registryz", "other.example.com", true).await?;
    rutter.shows("/debug/registryz", "second.example.com", false).await?;
    plane.restore(&snapshot).await?;
    rutter.shows("/debug/registryz", "third.example.com", false).await?;
    rutter.shows("/debug/registryz", "second.example.com", true).await?;
    rutter.shows("/debug/registryz", "first.example.com", true).await?;
    rutter.is_as_new(&plane, space.name()).await?;

    let crd = "serviceentries.networking.istio.io";
    plane.kubectl(&["delete", "crd", crd], "").await?;
    rutter.shows("/debug/registryz", "first.example.com", false).await?;
    apply_crds(&plane).await?;
    space.apply(&entry("again", "again.example.com")).await?;
    rutter.shows("/debug/registryz", "again.example.com", true).await?;
    rutter.is_as_new(&plane, space.name()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_fault_the_world_is_that_of_a_fresh_list() {
    faults().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A replica that starts while the server is away serves what an earlier run read.
async fn without_server() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    apply_crds(&plane).await?;
    let space = Namespace::create(&plane, "snapshot").await?;
    let mut rutter = Rutter::start(&plane, space.name()).await?;
    space.apply(&entry("kept", "kept.example.com")).await?;
    rutter.shows("/debug/registryz", "kept.example.com", true).await?;
    let file = rutter.data().join("kubernetes.snapshot");
    let kept = || async {
        let bytes = fs::read(&file).ok()?;
        String::from_utf8_lossy(&bytes)
            .contains("kept.example.com")
            .then_some(())
    };
    wait_for("the snapshot", PATIENCE, kept).await?;
    rutter.control.stop().await?;
    plane.kill_api_server()?;
    rutter.control.begin().await?;
    rutter.says("serving the snapshot", true).await?;
    rutter.shows("/debug/registryz", "kept.example.com", true).await?;
    assert_eq!(rutter.control.metric("rutter_kubernetes_from_snapshot", "").await?, 1.0);
    plane.begin_api_server().await?;
    space.apply(&entry("new", "new.example.com")).await?;
    rutter.shows("/debug/registryz", "new.example.com", true).await?;
    assert_eq!(rutter.control.metric("rutter_kubernetes_from_snapshot", "").await?, 0.0);
    rutter.is_as_new(&plane, space.name()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_served_while_the_server_is_away() {
    without_server().await.unwrap_or_else(|error| panic!("{error}"));
}
