//! Nodes whose CNI agent is ready take pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::controllers::{Body, Controller, Ledger, Target, Write};

/// The taint that whoever makes nodes gives them, and that goes when the agent is ready.
pub const TAINT: &str = "cni.istio.io/not-ready";

/// A node as it is.
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

/// Removes the taint from nodes on which the agent's pod is ready. It gives no taint to any.
#[derive(Default, Debug)]
pub struct Untaint {
    nodes: BTreeMap<Arc<str>, SeenNode>,
    /// The agent's ready pods: the node of each.
    ready: BTreeMap<Arc<str>, Arc<str>>,
    dirty: BTreeSet<Arc<str>>,
    ledger: Ledger,
}

impl Untaint {
    /// A node is so, or is gone.
    pub fn node(&mut self, name: &str, node: Option<SeenNode>) {
        let before = match &node {
            Some(node) => self.nodes.insert(name.into(), node.clone()),
            None => self.nodes.remove(name),
        };
        if before != node {
            self.ledger.forget(&target(name));
            self.dirty.insert(name.into());
        }
    }

    /// A pod of the agent is ready on this node; none: it is not, or it is gone.
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
            body: Body::Merge {
                patch: json!({"spec": {"taints": taints}}),
                version: node.version.clone(),
            },
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
    Target {
        group: "",
        version: "v1",
        kind: "Node",
        plural: "nodes",
        subresource: "",
        namespace: "".into(),
        name: name.into(),
    }
}
