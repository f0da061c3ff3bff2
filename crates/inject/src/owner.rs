//! The workload that a pod belongs to, from its owner reference and labels.

use serde_json::Value;

use crate::pod::label;

/// A workload: what the sidecar reports as its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// The owner of a pod; the pod itself if it has none.
pub(crate) fn owner(pod: &Value) -> Owner {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut owner = Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: text(&pod["metadata"]["name"]),
        namespace: text(&pod["metadata"]["namespace"]),
    };
    // A pod with a name of its own was not made from a template.
    if text(&pod["metadata"]["generateName"]).is_empty() {
        return owner;
    }
    let references = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let Some(controller) = references.into_iter().find(|reference| reference["controller"] == true) else {
        return owner;
    };
    owner.api_version = text(&controller["apiVersion"]);
    owner.kind = text(&controller["kind"]);
    let name = text(&controller["name"]);
    let without_hash = |hash: &str| {
        let hash = label(pod, hash).filter(|hash| !hash.is_empty())?;
        name.strip_suffix(hash).map(|name| name.strip_suffix('-').unwrap_or(name).to_owned())
    };
    let cron_job = || {
        let (name, time) = name.rsplit_once('-')?;
        let is_time = (8..=10).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
        (is_time && !name.is_empty()).then(|| name.to_owned())
    };
    let found = match owner.kind.as_str() {
        "ReplicaSet" => match (without_hash("pod-template-hash"), without_hash("rollouts-pod-template-hash")) {
            (Some(name), _) => Some(("Deployment", None, name)),
            // Argo Rollouts has no version in its labels.
            (None, Some(name)) => Some(("Rollout", Some("v1alpha1"), name)),
            (None, None) => None,
        },
        "ReplicationController" => label(pod, "deploymentconfig")
            .filter(|name| !name.is_empty())
            .map(|name| ("DeploymentConfig", None, name.to_owned())),
        "Job" => cron_job().map(|name| ("CronJob", Some("batch/v1"), name)),
        _ => None,
    };
    match found {
        Some((kind, version, name)) => {
            owner.kind = kind.to_owned();
            owner.name = name;
            if let Some(version) = version {
                owner.api_version = version.to_owned();
            }
        }
        None => owner.name = name,
    }
    owner
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, version: &str, name: &str, labels: Value) -> String {
        let owner = owner(&json!({"metadata": {
            "generateName": "x-", "namespace": "shop", "labels": labels,
            "ownerReferences": [{"kind": kind, "apiVersion": version, "name": name, "controller": true}],
        }}));
        format!("{} {}/{}", owner.api_version, owner.kind, owner.name)
    }

    #[test]
    fn owners() {
        let hash = |name: &str| json!({name: "7d9f"});
        assert_eq!(of("ReplicaSet", "apps/v1", "web-7d9f", hash("pod-template-hash")), "apps/v1 Deployment/web");
        assert_eq!(of("ReplicaSet", "apps/v1", "web-7d9f", json!({})), "apps/v1 ReplicaSet/web-7d9f");
        assert_eq!(of("ReplicaSet", "apps/v1", "web-7d9f", hash("rollouts-pod-template-hash")), "v1alpha1 Rollout/web");
        assert_eq!(of("Job", "batch/v1", "tidy-28754130", json!({})), "batch/v1 CronJob/tidy");
        assert_eq!(of("Job", "batch/v1", "tidy-1", json!({})), "batch/v1 Job/tidy-1");
        assert_eq!(
            of("ReplicationController", "v1", "cart-3", json!({"deploymentconfig": "cart"})),
            "v1 DeploymentConfig/cart"
        );
        assert_eq!(of("StatefulSet", "apps/v1", "db", json!({})), "apps/v1 StatefulSet/db");
        let alone = owner(&json!({"metadata": {"name": "one", "namespace": "shop"}}));
        assert_eq!((alone.kind.as_str(), alone.name.as_str()), ("Pod", "one"));
    }
}
