//! The tables are complete, and some fields are compared with the OpenAPI document of Kubernetes.

use crate::schema::{ListKind, Schema, Shape, find};

fn at<'s>(mut schema: &'s Schema, path: &str) -> &'s Schema {
    for step in path.split('.') {
        schema = match step {
            "[]" => schema.items().unwrap(),
            name => schema.field(name).unwrap_or_else(|| panic!("{path}: no {name}")),
        };
    }
    schema
}

#[test]
fn the_tables_are_clear() {
    let mut table = super::read();
    for row in super::rows() {
        super::definition(row, &mut table);
    }
    assert!(table.faults.is_empty(), "{:#?}", table.faults);
}

#[test]
fn keys_of_lists() {
    let pod = &find("", "pods").unwrap().schema;
    let deployment = &find("apps", "deployments").unwrap().schema;
    let service = &find("", "services").unwrap().schema;
    for (schema, path, keys, patch_key) in [
        (service, "spec.ports", &["port", "protocol"][..], Some("port")),
        (pod, "spec.containers", &["name"], Some("name")),
        (pod, "spec.containers.[].ports", &["containerPort", "protocol"], Some("containerPort")),
        (pod, "spec.containers.[].resources.claims", &["name"], None),
        (deployment, "spec.template.spec.volumes", &["name"], Some("name")),
        (deployment, "status.conditions", &["type"], Some("type")),
        (pod, "metadata.ownerReferences", &["uid"], Some("uid")),
    ] {
        let keys = keys.to_vec();
        let Shape::List(_, kind, _) = &at(schema, path).shape else {
            panic!("{path} is no list");
        };
        assert_eq!(*kind, ListKind::Map { keys, patch_key }, "{path}");
    }
    assert!(at(deployment, "spec.template.spec.volumes").retain_keys);
    assert!(at(deployment, "spec.strategy").retain_keys);
    assert!(at(service, "spec.selector").atomic);
    assert!(at(deployment, "spec.selector").atomic);
}

#[test]
fn defaults() {
    let pod = &find("", "pods").unwrap().schema;
    let service = &find("", "services").unwrap().schema;
    let deployment = &find("apps", "deployments").unwrap().schema;
    for (schema, path, value) in [
        (service, "spec.type", serde_json::json!("ClusterIP")),
        (service, "spec.ports.[].protocol", serde_json::json!("TCP")),
        (pod, "spec.terminationGracePeriodSeconds", serde_json::json!(30)),
        (pod, "spec.containers.[].livenessProbe.periodSeconds", serde_json::json!(10)),
        (deployment, "spec.template.spec.restartPolicy", serde_json::json!("Always")),
        (deployment, "spec.replicas", serde_json::json!(1)),
    ] {
        assert_eq!(at(schema, path).default.as_ref(), Some(&value), "{path}");
    }
}
