//! Waits until an installation serves, and tries it.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

use super::plan::{Plan, optional};
use super::text;
use crate::failure::{StatusError, TimedOut};
use crate::io::Io;
use crate::server::{Request, Server, encode};

/// The time between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(500);
/// The time in which a webhook must work after everything is ready.
const SETTLING: Duration = Duration::from_secs(15);
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Waits until the Deployment is rolled out and the webhooks can be called; reports what is missing when that changes.
pub(super) async fn wait(server: &Server, plan: &Plan, timeout: Duration, io: &mut Io) -> Result<()> {
    let until = Instant::now() + timeout;
    let mut last = String::new();
    loop {
        let missing = missing(server, plan).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let now = missing.join("; ");
        if Instant::now() >= until {
            return Err(TimedOut(format!("Rutter is not ready: {now}")).into());
        }
        if now != last {
            io.eprint(format!("waiting: {now}"));
            last = now;
        }
        sleep(PAUSE).await;
    }
}

/// What is not ready, with the reasons that the cluster has.
async fn missing(server: &Server, plan: &Plan) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for (object, _) in &plan.objects {
        let name = text(object, "/metadata/name");
        match text(object, "/kind") {
            "Deployment" => {
                let path = format!("/apis/apps/v1/namespaces/{}/deployments/{}", encode(&plan.namespace), encode(name));
                let found = optional(server, &path).await?.unwrap_or_default();
                if let Some(why) = unfinished(&found) {
                    let reasons = reasons(server, plan, &found).await?;
                    missing.push(format!("Deployment {name}: {why}{reasons}"));
                }
            }
            kind @ ("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
                let found =
                    optional(server, &format!("{REGISTRATION}/{}s/{}", kind.to_lowercase(), encode(name))).await?;
                let webhooks = found.unwrap_or_default()["webhooks"].as_array().cloned().unwrap_or_default();
                let has = |webhook: &Json| {
                    let client = &webhook["clientConfig"];
                    client["service"].is_null() || client["caBundle"].as_str().is_some_and(|it| !it.is_empty())
                };
                if !webhooks.iter().all(has) {
                    missing.push(format!("{kind} {name} has no CA bundle yet"));
                } else if kind.starts_with('V') && webhooks.iter().any(|webhook| webhook["failurePolicy"] != "Fail") {
                    missing.push(format!("{kind} {name}: the control plane has not tried it yet"));
                }
            }
            _ => {}
        }
    }
    Ok(missing)
}

/// Why a Deployment is not rolled out.
fn unfinished(found: &Json) -> Option<String> {
    let status = |field: &str| found["status"][field].as_u64().unwrap_or(0);
    let wanted = found["spec"]["replicas"].as_u64().unwrap_or(1);
    let seen = found["metadata"]["generation"].as_u64().unwrap_or(1) <= status("observedGeneration");
    let (updated, ready, all) = (status("updatedReplicas"), status("readyReplicas"), status("replicas"));
    match () {
        () if !seen => Some("the change has not been seen yet".to_owned()),
        () if updated < wanted => Some(format!("{updated} of {wanted} pods are of this version")),
        () if ready < wanted => Some(format!("{ready} of {wanted} pods are ready")),
        () if all > updated => Some(format!("{} earlier pods have not ended", all - updated)),
        () => None,
    }
}

/// The reasons of pods that are not ready, and of a Deployment that cannot create pods.
async fn reasons(server: &Server, plan: &Plan, deployment: &Json) -> Result<String> {
    let mut reasons: Vec<String> = Vec::new();
    let mut note = |why: String| {
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    };
    for condition in deployment["status"]["conditions"].as_array().into_iter().flatten() {
        if condition["type"] == "ReplicaFailure" && condition["status"] == "True" {
            note(text(condition, "/message").to_owned());
        }
    }
    let labels = deployment["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let pods = format!("/api/v1/namespaces/{}/pods", encode(&plan.namespace));
    let pods = server.list(Request::get(pods).with("labelSelector", labels.join(","))).await?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        for condition in pod["status"]["conditions"].as_array().into_iter().flatten() {
            if condition["reason"] == "Unschedulable" {
                note(format!("pod {}: {}", text(pod, "/metadata/name"), text(condition, "/message")));
            }
        }
        for container in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
            let state = &container["state"]["waiting"];
            if !state.is_null() && state["reason"] != "ContainerCreating" {
                let (reason, message) = (text(state, "/reason"), text(state, "/message"));
                note(format!("pod {}: {reason} {message}", text(pod, "/metadata/name")));
            }
        }
    }
    Ok(reasons.iter().map(|why| format!(" ({})", why.trim())).collect())
}

/// Tries the injection webhook. It may fail for some seconds, until the nodes have learnt the address of a new pod.
pub(super) async fn trial(server: &Server, plan: &Plan) -> Result<Result<&'static str, String>> {
    let until = Instant::now() + SETTLING;
    loop {
        let tried = try_webhook(server, plan).await?;
        if tried.is_ok() || Instant::now() >= until {
            return Ok(tried);
        }
        sleep(PAUSE).await;
    }
}

/// Lets the API server call the injection webhook for a pod that it does not store. Returns what was tried, or what failed.
async fn try_webhook(server: &Server, plan: &Plan) -> Result<Result<&'static str, String>> {
    let namespace = server.get(&format!("/api/v1/namespaces/{}", encode(&plan.namespace))).await?;
    let labels = &namespace["metadata"]["labels"];
    if !plan.injects() || !labels["istio-injection"].is_null() || !labels["istio.io/rev"].is_null() {
        return Ok(Ok(""));
    }
    let selects = match plan.revision.as_str() {
        "default" => json!({"sidecar.istio.io/inject": "true"}),
        revision => json!({"istio.io/rev": revision}),
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"generateName": "rutter-trial-", "labels": selects},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    });
    let path = format!("/api/v1/namespaces/{}/pods", encode(&plan.namespace));
    let made = server.send::<Json>(Request::post(path, &pod).with("dryRun", "All")).await;
    Ok(match made {
        Ok(made) => match made.to_string().contains("\"istio-proxy\"") {
            true => Ok("; a pod got a sidecar (dry run)"),
            false => {
                Err("a pod that its webhook selects got no sidecar (dry run): see `rutter check-inject`".to_owned())
            }
        },
        // The namespace may not allow such pods, and its service account may be missing yet.
        Err(error) if error.downcast_ref::<StatusError>().is_some_and(|error| error.status.code == 403) => Ok(""),
        Err(error) => {
            let error = error.to_string();
            Err(format!("its injection webhook fails: {}", error.lines().next().unwrap_or_default()))
        }
    })
}
