//! Removes a taint from nodes on which the CNI agent is ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id, put};

/// The taint that keeps pods off a new node until the CNI agent is ready.
pub const TAINT: &str = "cni.istio.io/not-ready";

/// The observed state of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct SeenNode {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
    /// `spec.taints`, each with its `key`.
    pub taints: Vec<Value>,
}

impl SeenNode {
    fn is_tainted(&self) -> bool {
        self.taints.iter().any(is_ours)
    }
}

fn is_ours(taint: &Value) -> bool {
    taint["key"] == TAINT
}

/// Removes the taint from nodes on which the agent's pod is ready. It never adds a taint.
#[derive(Default, Debug)]
pub struct Untaint {
    nodes: BTreeMap<Arc<str>, SeenNode>,
    /// The nodes of the agent's ready pods.
    ready: BTreeMap<Arc<str>, Arc<str>>,
    dirty: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl Untaint {
    /// Sets the state of a node; `None` if it was deleted.
    pub fn node(&mut self, name: &str, node: Option<SeenNode>) {
        let before = put(&mut self.nodes, name, node.clone());
        if before != node {
            self.ledger.forget(&target(name));
            self.dirty.insert(name.into());
        }
    }

    /// Sets the node on which a pod of the agent is ready; `None` if it is not ready or was deleted.
    pub fn agent(&mut self, pod: &str, node: Option<&str>) {
        match node {
            Some(node) => {
                self.ready.insert(pod.into(), node.into());
                self.dirty.insert(node.into());
            }
            None => drop(self.ready.remove(pod)),
        }
    }

    fn wanted(&self, name: &str) -> Option<Write> {
        let node = self.nodes.get(name)?;
        let is_ready = self.ready.values().any(|at| &**at == name);
        if !is_ready || !node.is_tainted() {
            return None;
        }
        let kept: Vec<&Value> = node.taints.iter().filter(|taint| !is_ours(taint)).collect();
        let taints = match kept.is_empty() {
            true => Value::Null,
            false => json!(kept),
        };
        Some(Write {
            target: target(name),
            uid: node.uid.clone(),
            body: Body::Merge { patch: json!({"spec": {"taints": taints}}), version: node.version.clone() },
        })
    }
}

impl Controller for Untaint {
    fn plan(&mut self) -> Vec<Write> {
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |name: &Arc<str>| {
            let wanted = self.wanted(name);
            self.ledger.settle(&target(name), wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.dirty.extend(self.nodes.keys().cloned());
    }
}

fn target(name: &str) -> Target {
    Target::new(Resource::NODE, "", name)
}

/// The label selector of the agent's pods.
const AGENT: &str = "k8s-app=istio-cni-node";

/// Feeds the controller with the objects that it watches.
pub struct UntaintDriver {
    namespace: Arc<str>,
    machine: Untaint,
}

impl UntaintDriver {
    /// A driver that has seen no objects yet.
    pub fn new(namespace: &Arc<str>) -> UntaintDriver {
        UntaintDriver { namespace: namespace.clone(), machine: Untaint::default() }
    }
}

impl Driver for UntaintDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(Resource::NODE), Watched::all(Resource::POD).within(&self.namespace).labelled(AGENT)]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (_, name) = id(object);
        match place {
            0 => self.machine.node(name, there.then(|| node(object))),
            _ => self.machine.agent(name, node_of(object).filter(|_| there && is_ready(object))),
        }
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.machine
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
    !going && conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_loses_the_taint_when_its_agent_is_ready() {
        let mut driver = UntaintDriver::new(&"istio-system".into());
        let taints = json!([{"key": "cni.istio.io/not-ready", "effect": "NoSchedule"}]);
        driver.see(0, &json!({"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {"taints": taints}}), true);
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
