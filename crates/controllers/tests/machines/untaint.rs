//! Nodes take pods when the CNI's agent is ready.

use controllers::{Body, Controller, SeenNode, TAINT, Untaint};
use serde_json::{Value, json};

fn node(version: &str, taints: Value) -> Option<SeenNode> {
    Some(SeenNode {
        uid: "u".into(),
        version: version.into(),
        taints: taints.as_array().cloned().unwrap_or_default(),
    })
}

#[test]
fn the_taint_goes_when_the_agent_is_ready_and_others_stay() {
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
    assert!(controller.plan().is_empty(), "it is under way");
    // Somebody else wrote the node meanwhile: the patch for the old version was refused, and the new one is planned.
    controller.node("n1", node("2", json!([other, {"key": TAINT, "effect": "NoSchedule"}])));
    assert_eq!(controller.plan().len(), 1);
    controller.node("n1", node("3", json!([other])));
    assert!(controller.plan().is_empty());

    controller.agent("cni-2", Some("n2"));
    let Body::Merge { patch, .. } = &controller.plan()[0].body else {
        panic!("no merge");
    };
    assert_eq!(patch, &json!({"spec": {"taints": null}}));
    // The agent is not ready any more: nobody gives the taint back.
    controller.node("n2", node("2", json!([])));
    controller.agent("cni-2", None);
    assert!(controller.plan().is_empty());
}

#[test]
fn a_new_leader_plans_what_the_old_one_did_not_write() {
    let mut controller = Untaint::default();
    controller.node("n", node("1", json!([{"key": TAINT}])));
    controller.agent("cni", Some("n"));
    let planned = controller.plan();
    controller.restart();
    assert_eq!(controller.plan(), planned);
}
