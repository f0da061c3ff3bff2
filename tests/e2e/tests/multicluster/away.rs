//! Clusters that are unavailable at startup.

use e2e::home::{PATIENCE, Rutter};
use test_harness::run::{Result, wait_for};

use super::mesh::{HOME, MESH, admin, cart, cluster, has, is_as_new, secret, stands};

/// A cluster that is unavailable at startup delays the start for a limited time only. If there is a snapshot, its
/// objects are served, even if the Secrets cannot be read.
async fn away() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    east.kill_api_server()?;
    let mut rutter = Rutter::idle(&home, MESH, None, &[HOME, &["--remote-cluster-timeout", "2s"]].concat())?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    rutter.says("cluster east (Secret mesh/east) was not read yet: its API does not answer", true).await?;
    stands(&rutter, "east", Some("timeout")).await?;
    rutter.control.wait_for_log("the others are served without it").await?;
    east.begin_api_server().await?;
    let both = ["east 10.2.0.1", "home 10.1.0.1"];
    has(&rutter, &both).await?;
    stands(&rutter, "east", Some("synced")).await?;
    is_as_new(&rutter, &home).await?;

    let file = rutter.data().join("cluster-east.snapshot");
    let kept = || async { std::fs::metadata(&file).ok().map(drop) };
    wait_for("the snapshot of the other cluster", PATIENCE, kept).await?;
    rutter.control.stop().await?;
    let text = String::from_utf8_lossy(&std::fs::read(&file)?).into_owned();
    assert!(text.contains("10.2.0.1") && !text.contains("certificate") && !text.contains("token"));

    east.kill_api_server()?;
    rutter.control.begin().await?;
    has(&rutter, &both).await?;
    rutter.says("cluster east (Secret mesh/east): serving the snapshot of an earlier run", true).await?;
    rutter.control.stop().await?;
    home.kill_api_server()?;
    rutter.control.begin().await?;
    has(&rutter, &both).await?;
    rutter.says("serving snapshots of an earlier run of the clusters east", true).await?;
    home.begin_api_server().await?;
    east.begin_api_server().await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["east 10.2.0.2", "home 10.1.0.1"]).await?;
    is_as_new(&rutter, &home).await?;
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    let gone = || async { (!file.exists()).then_some(()) };
    wait_for("the snapshot to go with the cluster", PATIENCE, gone).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_cluster_delays_the_start_for_a_limited_time() {
    away().await.unwrap_or_else(|error| panic!("{error}"));
}
