//! The taint is removed from nodes on which the CNI agent is ready.

use controllers::{Body, Controller, SeenNode, TAINT, Untaint};
use serde_json::{Value, json};

fn node(version: &str, taints: Value) -> Option<SeenNode> {
    Some(SeenNode { uid: "u".into(), version: version.into(), taints: taints.as_array().cloned().unwrap_or_default() })
}

#[test]
fn only_the_agents_taint_is_removed_when_it_is_ready() {
    let mut controller = Untaint::default();
    let other = json!({"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
    controller.node("n1", node("1", json!([other, {"key": TAINT, "effect": "NoSchedule"}])));
    controller.node("n2", node("1", json!([{"key": TAINT, "effect": "NoExecute"}])));
    assert!(controller.plan().is_empty(), "no agent is ready");
    controller.agent("cni-1", Some("n1"));
    controller.agent("cni-9", Some("gone"));
    let writes = controller.plan();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0].target.to_string(), "Node n1");
    let Body::Merge { patch, version } = &writes[0].body else {
        panic!("{writes:?}");
    };
    assert_eq!((patch, &**version), (&json!({"spec": {"taints": [other]}}), "1"));
    controller.agent("cni-1", Some("n1"));
    assert!(controller.plan().is_empty(), "the write is in flight");
    // Another client wrote the node meanwhile: the patch for the old version was rejected, and a new one is planned.
    controller.node("n1", node("2", json!([other, {"key": TAINT, "effect": "NoSchedule"}])));
    assert_eq!(controller.plan().len(), 1);
    controller.node("n1", node("3", json!([other])));
    assert!(controller.plan().is_empty());

    controller.agent("cni-2", Some("n2"));
    let Body::Merge { patch, .. } = &controller.plan()[0].body else {
        panic!("not a merge patch");
    };
    assert_eq!(patch, &json!({"spec": {"taints": null}}));
    // The agent is no longer ready: the taint is not added back.
    controller.node("n2", node("2", json!([])));
    controller.agent("cni-2", None);
    assert!(controller.plan().is_empty());
}

#[test]
fn a_new_leader_plans_writes_that_were_lost() {
    let mut controller = Untaint::default();
    controller.node("n", node("1", json!([{"key": TAINT}])));
    controller.agent("cni", Some("n"));
    let planned = controller.plan();
    controller.restart();
    assert_eq!(controller.plan(), planned);
}
