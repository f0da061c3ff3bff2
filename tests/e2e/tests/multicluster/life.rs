//! Clusters are added, changed and removed, and fail.

use e2e::home::Rutter;
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Result, free_port};

use super::mesh::{HOME, MESH, admin, apply, cart, cluster, has, is_as_new, secret, stands};

/// Clusters are added, changed, unavailable, available again and removed at runtime.
async fn life() -> Result<()> {
    let (home, east, west) = tokio::try_join!(cluster(), cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    cart(&west, "10.3.0.1").await?;
    let mut rutter = Rutter::idle(&home, MESH, None, HOME)?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    stands(&rutter, "home", Some("synced")).await?;

    secret(&home, "east", &[("east", &admin(&east)?)]).await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1"]).await?;
    secret(&home, "west", &[("west", &admin(&west)?)]).await?;
    let all = ["east 10.2.0.1", "home 10.1.0.1", "west 10.3.0.1"];
    has(&rutter, &all).await?;
    stands(&rutter, "west", Some("synced")).await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    is_as_new(&rutter, &home).await?;

    refused(&rutter, &home, &east).await?;
    changed(&rutter, &home, &east, &west).await?;

    // Unavailable, changed in the meantime, and available again.
    cart(&east, "10.2.0.1").await?;
    has(&rutter, &all).await?;
    east.kill_api_server()?;
    rutter.says("cluster east: its API does not answer for", true).await?;
    has(&rutter, &all).await?;
    cart(&west, "10.3.0.2").await?;
    has(&rutter, &["east 10.2.0.1", "home 10.1.0.1", "west 10.3.0.2"]).await?;
    east.begin_api_server().await?;
    cart(&east, "10.2.0.3").await?;
    has(&rutter, &["east 10.2.0.3", "home 10.1.0.1", "west 10.3.0.2"]).await?;

    // `discoverySelectors` apply in all clusters, by the labels of each.
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: istio, namespace: mesh }\ndata: { mesh: \"discoverySelectors: [{ \
               matchLabels: { seen: 'yes' } }]\" }\n";
    west.kubectl(&["label", "namespace", "shop", "seen=yes"], "").await?;
    apply(&home, map).await?;
    has(&rutter, &["west 10.3.0.2"]).await?;
    east.kubectl(&["label", "namespace", "shop", "seen=yes"], "").await?;
    has(&rutter, &["east 10.2.0.3", "west 10.3.0.2"]).await?;
    is_as_new(&rutter, &home).await?;
    home.kubectl(&["delete", "configmap", "istio", "-n", MESH], "").await?;
    has(&rutter, &["east 10.2.0.3", "home 10.1.0.1", "west 10.3.0.2"]).await?;

    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(&rutter, &["home 10.1.0.1", "west 10.3.0.2"]).await?;
    stands(&rutter, "east", None).await?;
    assert_eq!(rutter.control.metric("istiod_managed_clusters", "cluster_type=\"remote\"").await?, 1.0);
    is_as_new(&rutter, &home).await
}

/// An error in a Secret is reported without its content and removes no cluster.
async fn refused(rutter: &Rutter, home: &ControlPlane, east: &ControlPlane) -> Result<()> {
    let good = admin(east)?;
    let with = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{ name: c, context: {{ cluster: k, user: u }} }}]\nclusters: \
             [{{ name: k, cluster: {{ server: \"{}\" }} }}]\nusers: [{{ name: u, user: {{ {user} }} }}]\n",
            east.url()
        )
    };
    let exec = with("exec: { apiVersion: client.authentication.k8s.io/v1, command: hush-hush }");
    let file = with("tokenFile: /hush-hush");
    let bad = [("east", exec.as_str()), ("other", file.as_str()), ("none", "hush-hush: ["), ("home", &good)];
    secret(home, "east", &bad).await?;
    for text in [
        "Secret mesh/east: error: data[\"east\"].users[0].user.exec: a program is not allowed",
        "data[\"other\"].users[0].user.tokenFile: a file of this machine is not allowed",
        "data[\"none\"]: it is no kubeconfig",
        "data[\"home\"]: this is the config cluster, which is already read",
    ] {
        rutter.says(text, true).await?;
    }
    has(rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    stands(rutter, "other", None).await?;
    for page in ["/debug/clusterz", "/debug/configz", "/metrics"] {
        assert!(!rutter.control.debug(page).await?.text().contains("hush-hush"), "{page}");
    }
    assert!(!rutter.control.readiness().await?.text().contains("hush-hush"));
    assert!(!rutter.control.log()?.contains("hush-hush"));
    assert_eq!(rutter.control.metric("rutter_cluster_secrets_wrong", "").await?, 1.0);

    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(rutter, &["home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await?;
    has(rutter, &["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"]).await
}

/// Another kubeconfig of the same cluster, one that cannot connect, and one of another cluster.
async fn changed(rutter: &Rutter, home: &ControlPlane, east: &ControlPlane, west: &ControlPlane) -> Result<()> {
    let all = ["east 10.2.0.2", "home 10.1.0.1", "west 10.3.0.1"];
    let good = admin(east)?;
    let nowhere = good.replace(&east.url(), &format!("https://127.0.0.1:{}", free_port()));
    secret(home, "east", &[("east", &nowhere)]).await?;
    rutter
        .says("cluster east was not read by the new kubeconfig of Secret mesh/east yet: what it had stays", true)
        .await?;
    has(rutter, &all).await?;
    // The previous connection is used until the new one has read everything.
    cart(east, "10.2.0.9").await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    // A client without permissions does not report an empty cluster.
    secret(home, "east", &[("east", &west.user("nobody", None)?)]).await?;
    rutter.says("what it had stays: we may not read", true).await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &admin(west)?)]).await?;
    has(rutter, &["east 10.3.0.1", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await?;
    has(rutter, &["east 10.2.0.9", "home 10.1.0.1", "west 10.3.0.1"]).await?;

    // A second Secret with the same id is used after the first is deleted.
    secret(home, "second", &[("east", &admin(west)?)]).await?;
    rutter.says("Secret mesh/second: warning: data[\"east\"]: Secret mesh/east names this cluster, too", true).await?;
    home.kubectl(&["delete", "secret", "east", "-n", MESH], "").await?;
    has(rutter, &["east 10.3.0.1", "home 10.1.0.1", "west 10.3.0.1"]).await?;
    home.kubectl(&["delete", "secret", "second", "-n", MESH], "").await?;
    has(rutter, &["home 10.1.0.1", "west 10.3.0.1"]).await?;
    secret(home, "east", &[("east", &good)]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_added_changed_and_removed_at_runtime() {
    life().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Clusters from kubeconfigs in a directory, which are added and removed like Secrets.
async fn files() -> Result<()> {
    let (home, east) = tokio::try_join!(cluster(), cluster())?;
    cart(&home, "10.1.0.1").await?;
    cart(&east, "10.2.0.1").await?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().display().to_string();
    let flags = [HOME, &["--multicluster-kubeconfig-path", &path]].concat();
    let mut rutter = Rutter::idle(&home, MESH, None, &flags)?;
    rutter.control.begin().await?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    // The id is the cluster of the current context.
    std::fs::write(directory.path().join("east.yaml"), admin(&east)?)?;
    has(&rutter, &["cluster 10.2.0.1", "home 10.1.0.1"]).await?;
    std::fs::write(directory.path().join("other.yaml"), "hush-hush: [")?;
    rutter.says("other.yaml: error: data[\"other.yaml\"]: it is no kubeconfig", true).await?;
    std::fs::write(directory.path().join("east.yaml"), "hush-hush: [")?;
    rutter.says("east.yaml: error: data[\"cluster\"]: it is no kubeconfig", true).await?;
    cart(&east, "10.2.0.2").await?;
    has(&rutter, &["cluster 10.2.0.2", "home 10.1.0.1"]).await?;
    std::fs::remove_file(directory.path().join("east.yaml"))?;
    has(&rutter, &["home 10.1.0.1"]).await?;
    assert!(!rutter.control.log()?.contains("hush-hush"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_can_be_read_from_a_directory() {
    files().await.unwrap_or_else(|error| panic!("{error}"));
}
