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

const GATEWAY: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: edge }\n\
                       spec: { gatewayClassName: istio, listeners: [{ name: http, port: 80, protocol: HTTP }] }\n";

/// An HTTPRoute that refers to this Gateway.
fn http_route(parent: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: web }}\n\
         spec: {{ parentRefs: [{{ name: {parent} }}], rules: [{{ backendRefs: [{{ name: gone, port: 80 }}] }}] }}\n"
    )
}

/// The statuses of a Gateway and a route, beside the entry of another controller.
async fn gateways_told() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "gateways").await?;
    space.apply(GATEWAY).await?;
    space.apply(&http_route("edge")).await?;
    let theirs = serde_json::json!({
        "controllerName": "example.com/gateways", "parentRef": { "name": "theirs" },
        "conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let patch = serde_json::json!({ "status": { "parents": [theirs] } }).to_string();
    space.kubectl(&["patch", "httproute", "web", "--subresource=status", "--type=merge", "-p", &patch], "").await?;
    let _rutter = Rutter::start(plane, space.name()).await?;
    let status = |object: &'static str, wanted: &'static str| {
        let space = &space;
        let told = move || async move {
            let text = space.kubectl(&["get", object, "-o", "jsonpath={.status}"], "").await.ok()?;
            text.contains(wanted).then_some(text)
        };
        async move { wait_for(&format!("`{wanted}` in the status of {object}"), PATIENCE, told).await }
    };
    let gateway = status("gtw/edge", "no connected proxy serves it").await?;
    let gateway: serde_json::Value = serde_json::from_str(&gateway)?;
    let listener = &gateway["listeners"][0];
    assert_eq!(
        (&listener["name"], &listener["attachedRoutes"], &listener["supportedKinds"][0]["kind"]),
        (&"http".into(), &1.into(), &"HTTPRoute".into()),
        "{gateway}"
    );
    let parents = |text: &str| -> Result<Vec<(String, String)>> {
        let status: serde_json::Value = serde_json::from_str(text)?;
        let name = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let all = status["parents"].as_array().map_or(&[][..], |list| list).iter();
        Ok(all.map(|one| (name(&one["controllerName"]), name(&one["parentRef"]["name"]))).collect())
    };
    let theirs = || ("example.com/gateways".to_owned(), "theirs".to_owned());
    let ours = ("istio.io/gateway-controller".to_owned(), "edge".to_owned());
    assert_eq!(parents(&status("httproute/web", "BackendNotFound").await?)?, [theirs(), ours]);

    space.apply(&http_route("theirs")).await?;
    let removed = || async {
        let text = space.kubectl(&["get", "httproute/web", "-o", "jsonpath={.status}"], "").await.ok()?;
        (parents(&text).ok()? == [theirs()]).then_some(())
    };
    wait_for("the removal of our entry", PATIENCE, removed).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_of_the_gateway_api_are_written_beside_those_of_others() {
    gateways_told().await.unwrap_or_else(|error| panic!("{error}"));
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
