//! Bodies that are not read as objects of their kind, and what is said of them.

#![allow(clippy::unwrap_used)]

use admission::{Rejection, check_types};
use config::schema::find;
use serde_json::{Value as Json, json};

fn said(group: &str, plural: &str, sent: Json) -> Option<String> {
    match check_types(find(group, plural).unwrap(), "v1", &sent) {
        Ok(()) => None,
        Err(Rejection::BadRequest(text)) => {
            let (head, text) = text.split_once(" cannot be handled as a ").unwrap();
            assert!(head.ends_with(" in version \"v1\""), "{head}");
            Some(text.split_once(": ").unwrap().1.to_owned())
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn type_errors_match_kubernetes() {
    let field = "json: cannot unmarshal";
    for (plural, sent, text) in [
        (
            "configmaps",
            json!({"data": ["a"]}),
            format!("{field} array into Go struct field ConfigMap.data of type map[string]string"),
        ),
        (
            "configmaps",
            json!({"data": {"a": true}}),
            format!("{field} bool into Go struct field ConfigMap.data of type string"),
        ),
        (
            "configmaps",
            json!({"metadata": "x"}),
            format!("{field} string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
        ),
        (
            "configmaps",
            json!({"metadata": {"name": 7}}),
            format!("{field} number into Go struct field ObjectMeta.metadata.name of type string"),
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": "http"}]}}),
            format!("{field} string into Go struct field ServicePort.spec.ports.port of type int32"),
        ),
        (
            "services",
            json!({"spec": {"ports": {}}}),
            format!("{field} object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort"),
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": 99_999_999_999_i64}]}}),
            format!("{field} number 99999999999 into Go struct field ServicePort.spec.ports.port of type int32"),
        ),
        (
            "services",
            json!({"spec": {"ports": [{"targetPort": true}]}}),
            format!("{field} bool into Go struct field ServicePort.spec.ports.targetPort of type int32"),
        ),
        ("secrets", json!({"data": {"k": "not base64!"}}), "illegal base64 data at input byte 3".to_owned()),
        ("secrets", json!({"data": {"k": "abc"}}), "illegal base64 data at input byte 3".to_owned()),
    ] {
        assert_eq!(said("", plural, sent), Some(text));
    }
    let gateway = |sent| said("networking.istio.io", "gateways", sent);
    let text = format!("{field} string into Go value of type v1.ObjectMeta");
    assert_eq!(gateway(json!({"metadata": "x"})), Some(text));
    let text = format!("{field} number into Go struct field ObjectMeta.labels of type string");
    assert_eq!(gateway(json!({"metadata": {"labels": {"a": 7}}})), Some(text));
}

#[test]
fn correct_types_and_other_kinds_pass() {
    let pod = json!({
        "kind": "Pod",
        "metadata": {"name": "a", "labels": null, "creationTimestamp": null},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}], "priority": 2.0},
        "unknown": {"a": 1},
    });
    assert_eq!(said("", "pods", pod), None);
    assert_eq!(said("", "pods", json!({"kind": "Secret", "metadata": 1})), None);
    assert_eq!(said("", "secrets", json!({"data": {"k": "dg==", "e": ""}})), None);
    assert_eq!(said("networking.istio.io", "gateways", json!({"spec": 7})), None);
}
