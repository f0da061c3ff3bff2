//! `rutter serve --store kubernetes` with a real Kubernetes API server: the objects that it reads and writes, and its
//! reports about missing permissions.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter, entry};
use test_harness::run::{Result, wait_for};

fn route(hosts: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: route }}\nspec:\n  hosts: {hosts}\n  \
         http: [{{ route: [{{ destination: {{ host: a.example.com }} }}] }}]\n"
    )
}

/// An applied object takes effect, and `kubectl describe` shows its status.
async fn read_and_told() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "told").await?;
    let rutter = Rutter::start(plane, space.name()).await?;
    space.apply(&entry("entry", "a.example.com")).await?;
    space.apply(&route("[a.example.com]")).await?;
    rutter.shows("/debug/registryz", "a.example.com", true).await?;
    let described = |wanted: &'static str| {
        let space = &space;
        let told = move || async move {
            let text = space.kubectl(&["describe", "virtualservice", "route"], "").await.ok()?;
            text.contains(wanted).then_some(text)
        };
        async move { wait_for(&format!("`{wanted}` in the status"), PATIENCE, told).await }
    };
    let text = described("the object is valid").await?;
    // kubectl aligns its output.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let told = |what: &str| assert!(words.contains(what), "{what}: {text}");
    ["Reason: Accepted", "Observed Generation: 1", "Running: 0"].iter().for_each(|what| told(what));
    space.kubectl(&["delete", "serviceentry", "entry"], "").await?;
    rutter.shows("/debug/registryz", "a.example.com", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_read_and_statuses_written() {
    read_and_told().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The mesh configuration in the ConfigMap, an invalid one, and the namespaces that it selects.
async fn settings() -> Result<()> {
    let plane = shared_with_crds().await?;
    let home = Namespace::create(plane, "home").await?;
    let seen = Namespace::create_with(plane, "seen", &[("mesh", "yes")]).await?;
    let rutter = Rutter::start(plane, home.name()).await?;
    seen.apply(&entry("entry", "selected.example.com")).await?;
    home.apply(&entry("entry", "passed.example.com")).await?;
    rutter.shows("/debug/registryz", "passed.example.com", true).await?;
    let map = |mesh: &str| {
        let text = serde_json::Value::from(mesh);
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: istio }}\ndata: {{ mesh: {text} }}\n")
    };
    let selective = "trustDomain: ours\ndiscoverySelectors: [{ matchLabels: { mesh: \"yes\" } }]\n";
    // A ConfigMap of this name in another namespace is nothing.
    seen.apply(&map("trustDomain: theirs")).await?;
    home.apply(&map(selective)).await?;
    rutter.shows("/debug/mesh", "\"ours\"", true).await?;
    rutter.shows("/debug/registryz", "passed.example.com", false).await?;
    rutter.shows("/debug/registryz", "selected.example.com", true).await?;
    home.apply(&map("trustDomain: [")).await?;
    rutter.says("the mesh configuration is invalid", true).await?;
    assert_eq!(rutter.control.metric("rutter_mesh_config_rejected", "").await?, 1.0);
    rutter.shows("/debug/mesh", "\"ours\"", true).await?;
    plane.kubectl(&["label", "namespace", home.name(), "mesh=yes"], "").await?;
    rutter.shows("/debug/registryz", "passed.example.com", true).await?;
    home.kubectl(&["delete", "configmap", "istio"], "").await?;
    rutter.shows("/debug/mesh", "\"ours\"", false).await?;
    rutter.shows("/debug/mesh", "\"theirs\"", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_config_map_istio_is_the_mesh_configuration() {
    settings().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Permissions for all kinds that are read except pods.
const RIGHTS: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: without-pods }
rules:
- { apiGroups: [''], resources: [services, nodes, namespaces, configmaps, secrets], verbs: [get, list, watch] }
- { apiGroups: [discovery.k8s.io, networking.istio.io, security.istio.io, telemetry.istio.io, extensions.istio.io, \
gateway.networking.k8s.io, gateway.networking.x-k8s.io, inference.networking.k8s.io, mesh.istio.io, \
apiextensions.k8s.io, admissionregistration.k8s.io, networking.k8s.io, multicluster.x-k8s.io], resources: ['*'], verbs: [get, list, watch] }
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: without-pods }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: without-pods }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: without-pods }]
";

/// A kind without permission blocks neither other kinds nor readiness, and is read as soon as the permission is
/// granted.
async fn denied() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "denied").await?;
    plane.kubectl(&["apply", "-f", "-"], RIGHTS).await?;
    let user = plane.user("without-pods", None)?;
    let mut rutter = Rutter::idle(plane, space.name(), Some(&user), &[])?;
    rutter.control.begin().await?;
    rutter.says("access denied to pods", true).await?;
    assert_eq!(rutter.control.metric("rutter_kubernetes_denied", "pods").await?, 1.0);
    space.apply(&entry("entry", "meanwhile.example.com")).await?;
    rutter.shows("/debug/registryz", "meanwhile.example.com", true).await?;
    let grant = RIGHTS.replace("[services,", "[pods, services,");
    plane.kubectl(&["apply", "-f", "-"], &grant).await?;
    let granted = || async { (rutter.control.metric("rutter_kubernetes_denied", "").await.ok()? == 0.0).then_some(()) };
    rutter.explained(wait_for("the grant", PATIENCE, granted).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_without_permission_does_not_block_the_start() {
    denied().await.unwrap_or_else(|error| panic!("{error}"));
}
