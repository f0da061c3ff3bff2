//! Statuses in a real API server: of objects that Kubernetes stored although they are invalid, and of objects to which
//! other writers add conditions.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter};
use serde_json::{Value, json};
use test_harness::kubernetes::ControlPlane;
use test_harness::run::{Result, wait_for};

/// Removes the schema of a kind, so that the server accepts every object, as with the CRDs of other meshes.
async fn relax(plane: &ControlPlane, crd: &str) -> Result<()> {
    let text = plane.kubectl(&["get", "crd", crd, "-o", "json"], "").await?;
    let definition: Value = serde_json::from_str(&text)?;
    let mut versions = definition["spec"]["versions"].clone();
    let lax = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    for version in versions.as_array_mut().into_iter().flatten() {
        version["schema"] = lax.clone();
    }
    let patch = json!({"spec": {"versions": versions}}).to_string();
    plane.kubectl(&["patch", "crd", crd, "--type=merge", "-p", &patch], "").await?;
    Ok(())
}

/// Waits until the output of `kubectl describe` contains all of these words in order.
async fn described(space: &Namespace<'_>, object: &[&str], wanted: &[&str]) -> Result<String> {
    let told = || async {
        let text = space.kubectl(&[&["describe"], object].concat(), "").await.ok()?;
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        wanted.iter().all(|wanted| words.contains(wanted)).then_some(words)
    };
    wait_for(&format!("{wanted:?} of {object:?}"), PATIENCE, told).await
}

fn sidecar(egress: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{ name: lax }}\nspec: {{ egress: {egress} }}\n"
    )
}

/// The status of an invalid object names the invalid field and the generation in effect.
async fn invalid() -> Result<()> {
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "invalid").await?;
    relax(plane, "sidecars.networking.istio.io").await?;
    let rutter = Rutter::start(plane, space.name()).await?;
    // The server takes some time to drop the schema.
    let taken = || async { space.apply(&sidecar("\"everything\"")).await.ok() };
    wait_for("a lax server", PATIENCE, taken).await?;
    let object = ["sidecar.networking.istio.io", "lax"];
    let never = ["Reason: Invalid", "spec.egress", "Observed Generation: 1", "Type: Accepted"];
    rutter.explained(described(&space, &object, &never).await)?;
    space.apply(&sidecar("[{ hosts: [\"./*\"] }]")).await?;
    described(&space, &object, &["Reason: Accepted", "Observed Generation: 2"]).await?;
    rutter.shows("/debug/configz", "./*", true).await?;
    space.apply(&sidecar("[{ hosts: [nonsense] }]")).await?;
    let again = ["Reason: Invalid", "spec.egress[0].hosts[0]", "Observed Generation: 3"];
    let words = described(&space, &object, &again).await?;
    assert!(words.contains("generation 2"), "generation in effect: {words}");
    rutter.shows("/debug/configz", "./*", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_object_gets_a_status() {
    invalid().await.unwrap_or_else(|error| panic!("{error}"));
}

/// Conditions of other writers are kept, whether the schema lists conditions by type or as one atomic value, and the
/// server records the owners of the fields.
async fn shared(kind: &str, lax: bool) -> Result<()> {
    let plane = shared_with_crds().await?;
    let plural = if kind == "WorkloadEntry" { "workloadentries" } else { "workloadgroups" };
    let resource = format!("{plural}.networking.istio.io");
    if lax {
        relax(plane, &resource).await?;
    }
    let space = Namespace::create(plane, plural).await?;
    let rutter = Rutter::start(plane, space.name()).await?;
    let spec = |address: &str| match kind {
        "WorkloadEntry" => format!("{{ address: {address} }}"),
        _ => format!("{{ template: {{ serviceAccount: a{} }} }}", address.len()),
    };
    let manifest = |address: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{ name: both }}\nspec: {}\n",
            spec(address)
        )
    };
    space.apply(&manifest("10.0.0.1")).await?;
    let object = || async {
        let text = space.kubectl(&["get", &resource, "both", "-o", "json", "--show-managed-fields"], "").await;
        let object: Option<Value> = serde_json::from_str(&text.ok()?).ok();
        object
    };
    let accepted = |generation: i64| {
        move |object: &Value| {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let holds = |one: &Value| one["type"] == "Accepted" && one["observedGeneration"] == generation;
            conditions.iter().any(holds).then_some(conditions)
        }
    };
    let first = || async { accepted(1)(&object().await?) };
    let mut conditions = rutter.explained(wait_for("a status", PATIENCE, first).await)?;
    conditions.push(json!({"type": "Theirs", "status": "True", "reason": "Told", "message": "by another controller",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    let patch = json!({"status": {"conditions": conditions}}).to_string();
    let theirs =
        ["patch", &resource, "both", "--subresource=status", "--type=merge", "--field-manager=other", "-p", &patch];
    space.kubectl(&theirs, "").await?;
    space.apply(&manifest("10.0.0.22")).await?;
    let second = || async {
        let object = object().await?;
        accepted(2)(&object).map(|conditions| (object, conditions))
    };
    let (object, conditions) = rutter.explained(wait_for("a second status", PATIENCE, second).await)?;
    let names: Vec<&str> = conditions.iter().filter_map(|one| one["type"].as_str()).collect();
    assert!(names.contains(&"Theirs") && names.contains(&"Programmed") && names.len() == 3, "{names:?}");
    let managed = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let ours = managed
        .iter()
        .find(|one| one["manager"] == "rutter" && one["operation"] == "Apply" && one["subresource"] == "status");
    let ours = ours.ok_or_else(|| format!("nothing was applied: {managed:?}"))?;
    let by_type = ours["fieldsV1"]["f:status"]["f:conditions"].get("k:{\"type\":\"Accepted\"}");
    assert_eq!(by_type.is_some(), !lax, "{ours}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_of_other_writers_are_kept() {
    shared("WorkloadEntry", false).await.unwrap_or_else(|error| panic!("{error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_of_other_writers_are_kept_in_atomic_lists() {
    shared("WorkloadGroup", true).await.unwrap_or_else(|error| panic!("{error}"));
}
