//! Nodes whose CNI agent is ready take pods.

use std::sync::Arc;

use config::MeshConfig;
use serde_json::Value;
use status::controllers::{Controller as _, SeenNode, Untaint, Write};

use super::{Driver, Watched, id};

/// The label of the agent's pods.
const AGENT: &str = "k8s-app=istio-cni-node";

pub(super) struct UntaintDriver {
    namespace: Arc<str>,
    machine: Untaint,
}

impl UntaintDriver {
    pub(super) fn new(namespace: &Arc<str>) -> UntaintDriver {
        UntaintDriver {
            namespace: namespace.clone(),
            machine: Untaint::default(),
        }
    }
}

impl Driver for UntaintDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![
            Watched::all("", "Node", "nodes"),
            Watched::all("", "Pod", "pods").within(&self.namespace).labelled(AGENT),
        ]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (_, name) = id(object);
        match place {
            0 => self.machine.node(name, there.then(|| node(object))),
            _ => self
                .machine
                .agent(name, node_of(object).filter(|_| there && is_ready(object))),
        }
    }

    fn mesh(&mut self, _: &MeshConfig) {}

    fn restart(&mut self) {
        self.machine.restart();
    }

    fn plan(&mut self) -> Vec<Write> {
        self.machine.plan()
    }
}

fn node(object: &Value) -> SeenNode {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().into();
    SeenNode {
        uid: text("uid"),
        version: text("resourceVersion"),
        taints: object["spec"]["taints"].as_array().cloned().unwrap_or_default(),
    }
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let going = pod["metadata"].get("deletionTimestamp").is_some();
    !going
        && conditions
            .into_iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_takes_pods_when_its_agent_is_ready() {
        let mut driver = UntaintDriver::new(&"istio-system".into());
        let taints = json!([{"key": "cni.istio.io/not-ready", "effect": "NoSchedule"}]);
        driver.see(
            0,
            &json!({"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {"taints": taints}}),
            true,
        );
        let pod = |ready: &str| {
            json!({
                "metadata": {"name": "istio-cni-node-x"},
                "spec": {"nodeName": "n"},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        driver.see(1, &pod("False"), true);
        assert!(driver.plan().is_empty());
        driver.see(1, &pod("True"), true);
        assert_eq!(driver.plan().len(), 1);
    }
}
