//! Clusters, their objects, and helpers to inspect a control plane.

use e2e::home::{PATIENCE, Rutter};
use e2e::rutter_binary;
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, Settings};
use test_harness::run::{Result, wait_for};

/// The namespace of the control plane.
pub(super) const MESH: &str = "mesh";
pub(super) const HOME: &[&str] = &["--cluster-id", "home"];

/// A cluster with the namespaces of the mesh and of the shop.
pub(super) async fn cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start(Settings::default()).await?;
    let text = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {MESH} }}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{ name: shop \
         }}\n"
    );
    apply(&plane, &text).await?;
    Ok(plane)
}

pub(super) async fn apply(plane: &ControlPlane, text: &str) -> Result<()> {
    let flags = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    plane.kubectl(&flags, text).await.map(drop)
}

/// The service `cart` with an endpoint at this address.
pub(super) async fn cart(plane: &ControlPlane, ip: &str) -> Result<()> {
    endpoint(plane, "cart", ip, 80, 8080).await
}

pub(super) async fn endpoint(plane: &ControlPlane, name: &str, ip: &str, port: u16, target: u16) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: shop }}\nspec: {{ ports: [{{ name: http, port: {port} \
         }}] }}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{ name: {name}-1, namespace: shop, labels: {{ \
         kubernetes.io/service-name: {name} }} }}\naddressType: IPv4\nports: [{{ name: http, port: {target} }}]\nendpoints: [{{ \
         addresses: [{ip}], conditions: {{ ready: true }} }}]\n"
    );
    apply(plane, &text).await
}

/// A Secret of the home cluster with these cluster ids and texts.
pub(super) async fn secret(home: &ControlPlane, name: &str, texts: &[(&str, &str)]) -> Result<()> {
    let data: serde_json::Map<String, Value> =
        texts.iter().map(|(id, text)| ((*id).to_owned(), (*text).into())).collect();
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": MESH, "labels": {"istio/multiCluster": "true"}},
        "stringData": data,
    });
    apply(home, &secret.to_string()).await
}

pub(super) fn admin(plane: &ControlPlane) -> Result<String> {
    plane.user("reader", Some("system:masters"))
}

/// The endpoints of a service, as `CLUSTER ADDRESS`.
pub(super) async fn endpoints(rutter: &Rutter, service: &str) -> Result<Vec<String>> {
    let page: Value = serde_json::from_str(&rutter.control.debug("/debug/endpointz").await?.text())?;
    let services = page.as_array().ok_or("no list")?.iter();
    let of_service = services.filter(|one| one["service"] == format!("{service}.shop.svc.cluster.local"));
    let each = of_service.flat_map(|one| one["endpoints"].as_array().unwrap());
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let mut all: Vec<String> = each.map(|one| format!("{} {}", text(one, "cluster"), text(one, "address"))).collect();
    all.sort();
    Ok(all)
}

/// Waits until the service `cart` has these endpoints.
pub(super) async fn has(rutter: &Rutter, wanted: &[&str]) -> Result<()> {
    let reached = || async {
        let found = endpoints(rutter, "cart").await.ok()?;
        (found == wanted).then_some(())
    };
    let result = rutter.explained(wait_for(&format!("the endpoints {wanted:?}"), PATIENCE, reached).await);
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error}\nthere are {:?}", endpoints(rutter, "cart").await?).into()),
    }
}

/// Waits until `/debug/clusterz` has this status for a cluster; `None` if it is not listed.
pub(super) async fn stands(rutter: &Rutter, cluster: &str, status: Option<&str>) -> Result<()> {
    let reached = || async {
        let page: Value = serde_json::from_str(&rutter.control.debug("/debug/clusterz").await.ok()?.text()).ok()?;
        let found = page.as_array()?.iter().find(|one| one["id"] == cluster);
        (found.and_then(|one| one["syncStatus"].as_str()) == status).then_some(())
    };
    rutter.explained(wait_for(&format!("cluster {cluster} to be {status:?}"), PATIENCE, reached).await)
}

/// Waits until services and endpoints equal those of a newly started control plane and a recomputation.
pub(super) async fn is_as_new(rutter: &Rutter, home: &ControlPlane) -> Result<()> {
    let mut fresh = Rutter::idle(home, MESH, None, HOME)?;
    fresh.control.begin().await?;
    for page in ["/debug/registryz", "/debug/endpointz", "/debug/clusterz"] {
        let same = || async {
            let ours = rutter.control.debug(page).await.ok()?.text();
            (ours == fresh.control.debug(page).await.ok()?.text()).then_some(())
        };
        rutter.explained(wait_for(&format!("the {page} of a fresh start"), PATIENCE, same).await)?;
    }
    let agrees = rutter.control.debug("/debug/recompute").await?;
    assert!(agrees.status.is_success(), "{}", agrees.text());
    Ok(())
}

/// A cluster with the objects of the chart, rendered with these values.
pub(super) async fn installed(set: &[&str]) -> Result<ControlPlane> {
    let plane = cluster().await?;
    let mut command = std::process::Command::new(rutter_binary());
    command.args(["manifest", "--create-namespace", "--in-place-of-istiod"]);
    for set in set {
        command.args(["--set-string", set]);
    }
    let manifest = command.output()?;
    assert!(manifest.status.success(), "{}", String::from_utf8_lossy(&manifest.stderr));
    apply(&plane, &String::from_utf8(manifest.stdout)?).await?;
    let established = ["wait", "--for=condition=established", "crd", "--all", "--timeout=60s"];
    plane.kubectl(&established, "").await?;
    Ok(plane)
}

/// Creates the Secret for one cluster with the command line, and applies it in another cluster.
pub(super) async fn join(home: &ControlPlane, other: &ControlPlane, name: &str) -> Result<()> {
    let made = std::process::Command::new(rutter_binary())
        .args(["create-remote-secret", "--name", name, "--kubeconfig"])
        .arg(other.kubeconfig())
        .output()?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    apply(home, &String::from_utf8(made.stdout)?).await
}

/// The output of `kubectl get` for an object; null if it does not exist.
pub(super) async fn found(plane: &ControlPlane, object: &[&str]) -> Value {
    let text = plane.kubectl(&[&["get", "-o", "json"], object].concat(), "").await;
    text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Waits until an object fulfills a condition.
pub(super) async fn fits(plane: &ControlPlane, object: &[&str], test: impl Fn(&Value) -> bool) -> Result<()> {
    let test = &test;
    let reached = || async move {
        let found = found(plane, object).await;
        test(&found).then_some(())
    };
    wait_for(&format!("{object:?} to be as it should"), PATIENCE, reached).await
}
