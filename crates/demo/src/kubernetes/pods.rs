//! Pods, as reported by the API.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

/// The observed state of a pod.
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) ip: Option<IpAddr>,
    pub(super) ending: bool,
    /// Its containers that keep running, including sidecars.
    pub(super) containers: BTreeMap<String, Container>,
}

pub(super) struct Container {
    /// The container ID, which changes when the container restarts.
    pub(super) id: String,
    pub(super) restarts: u64,
    pub(super) ready: bool,
}

impl Pod {
    /// Reads a list of pods.
    pub(super) fn list(list: &Value) -> Vec<Pod> {
        list["items"].as_array().into_iter().flatten().map(Pod::read).collect()
    }

    /// Whether the pod is not terminating and all its containers are ready.
    pub(super) fn is_ready(&self) -> bool {
        !self.ending && !self.containers.is_empty() && self.containers.values().all(|container| container.ready)
    }

    fn read(pod: &Value) -> Pod {
        let sidecars = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let sidecars: Vec<&Value> = sidecars
            .filter(|container| container["restartPolicy"] == "Always")
            .map(|container| &container["name"])
            .collect();
        let list = |field: &str| pod["status"][field].as_array().cloned().unwrap_or_default();
        let mut all = list("initContainerStatuses");
        all.retain(|status| sidecars.contains(&&status["name"]));
        all.extend(list("containerStatuses"));
        Pod {
            name: text(&pod["metadata"]["name"]),
            ip: pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok()),
            ending: pod["metadata"]["deletionTimestamp"].is_string(),
            containers: all.iter().map(|status| (text(&status["name"]), container(status))).collect(),
        }
    }
}

fn container(status: &Value) -> Container {
    Container {
        id: text(&status["containerID"]),
        restarts: status["restartCount"].as_u64().unwrap_or_default(),
        ready: status["ready"] == true,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_ready_with_its_sidecar() {
        let mut pod = json!({
            "metadata": { "name": "a" },
            "spec": { "initContainers": [{ "name": "init" }, { "name": "proxy", "restartPolicy": "Always" }] },
            "status": {
                "podIP": "192.0.2.1",
                "initContainerStatuses": [
                    { "name": "init", "ready": false },
                    { "name": "proxy", "ready": true, "restartCount": 1, "containerID": "containerd://p" },
                ],
                "containerStatuses": [{ "name": "app", "ready": true }],
            },
        });
        let read = |pod: &Value| Pod::list(&json!({ "items": [pod] })).pop().unwrap();
        let ready = read(&pod);
        assert!(ready.is_ready());
        assert_eq!(ready.containers.keys().collect::<Vec<_>>(), ["app", "proxy"]);
        assert_eq!(ready.containers["proxy"].restarts, 1);
        pod["status"]["initContainerStatuses"][1]["ready"] = json!(false);
        assert!(!read(&pod).is_ready());
        assert!(!read(&json!({})).is_ready());
    }
}
