//! Fields that only the server writes.
#![allow(clippy::unwrap_used)]

use admission::{Stamp, fill_name, mark_deleted, prepare};
use config::Timestamp;
use serde_json::{Value as Json, json};

fn stamp() -> Stamp<'static> {
    Stamp { now: Timestamp::from_unix(1_800_000_000), uid: "new-uid" }
}

const NOW: &str = "2027-01-15T08:00:00Z";

fn route(spec: &Json, meta: &Json) -> Json {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta, "spec": spec})
}

#[test]
fn a_new_object_is_stamped_whatever_it_says() {
    let sent = json!({"name": "x", "uid": "mine", "generation": 7, "creationTimestamp": "2000-01-01T00:00:00Z",
        "deletionTimestamp": "2000-01-01T00:00:00Z", "resourceVersion": "5", "selfLink": "/x", "labels": {"a": "b"}});
    let mut object = route(&json!({}), &sent);
    prepare(None, &mut object, &stamp());
    let expected =
        json!({"name": "x", "uid": "new-uid", "generation": 1, "creationTimestamp": NOW, "labels": {"a": "b"}});
    assert_eq!(object["metadata"], expected);
}

#[test]
fn generations_count_what_is_asked_for() {
    let meta = json!({"name": "x", "uid": "u", "generation": 4, "creationTimestamp": "2026-01-01T00:00:00Z"});
    let old = route(&json!({"a": 1}), &meta);
    for (spec, sent, status, generation) in [
        (json!({"a": 1}), json!({"name": "x", "labels": {"l": "m"}}), json!(null), 4),
        (json!({"a": 1}), json!({"name": "x", "generation": 99, "uid": "other"}), json!({"s": 1}), 4),
        (json!({"a": 2}), json!({"name": "x"}), json!(null), 5),
        (json!(null), json!({"name": "x", "generation": 1}), json!(null), 5),
    ] {
        let mut object = route(&spec, &sent);
        object["status"] = status;
        prepare(Some(&old), &mut object, &stamp());
        assert_eq!(object["metadata"]["generation"], generation, "{spec} {sent}");
        assert_eq!(object["metadata"]["uid"], "u");
        assert_eq!(object["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    }
}

#[test]
fn some_kinds_count_none() {
    for kind in ["Service", "ConfigMap", "Secret", "Namespace"] {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}});
        prepare(None, &mut object, &stamp());
        assert_eq!(object["metadata"].get("generation"), None, "{kind}");
    }
    // A kind of another group may have the same name.
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Service", "metadata": {"name": "x"}});
    prepare(None, &mut object, &stamp());
    assert_eq!(object["metadata"]["generation"], 1);
}

#[test]
fn deletion_waits_for_finalizers() {
    let mut free = route(&json!({}), &json!({"name": "x"}));
    assert!(!mark_deleted(&mut free, stamp().now, 0));
    let mut held = route(&json!({}), &json!({"name": "x", "generation": 2, "finalizers": ["example.com/f"]}));
    assert!(mark_deleted(&mut held, stamp().now, 30));
    let expected = json!({"name": "x", "generation": 3, "finalizers": ["example.com/f"], "deletionTimestamp": NOW,
        "deletionGracePeriodSeconds": 30});
    assert_eq!(held["metadata"], expected);
    // Once more changes nothing; and no client takes the mark away.
    let before = held.clone();
    assert!(mark_deleted(&mut held, Timestamp::from_unix(1_900_000_000), 5));
    assert_eq!(held, before);
    let mut update = route(&json!({}), &json!({"name": "x", "finalizers": ["example.com/f"]}));
    prepare(Some(&held), &mut update, &stamp());
    assert_eq!(update["metadata"]["deletionTimestamp"], NOW);
}

#[test]
fn names_are_made_of_prefixes() {
    let mut object = json!({"metadata": {"generateName": "pre-"}});
    fill_name(&mut object, 12_345_678_901);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("pre-") && name.len() == 9, "{name}");
    fill_name(&mut object, 1);
    assert_eq!(object["metadata"]["name"], name.as_str());
    let mut long = json!({"metadata": {"generateName": "a".repeat(300)}});
    fill_name(&mut long, u64::MAX);
    assert_eq!(long["metadata"]["name"].as_str().unwrap().len(), 63);
    let mut none = json!({"metadata": {}});
    fill_name(&mut none, 1);
    assert_eq!(none, json!({"metadata": {}}));
}
