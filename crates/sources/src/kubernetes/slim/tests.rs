//! The fields of objects that are kept.

use serde_json::json;

use super::*;

fn slim(kind: Kind, value: &Value) -> Value {
    let text = value.to_string();
    Keep::of(kind).deserialize(&mut serde_json::Deserializer::from_str(&text)).unwrap()
}

#[test]
fn a_pod_keeps_the_fields_of_its_type() {
    let pod = json!({
        "metadata": {
            "name": "a", "namespace": "x", "uid": "1", "resourceVersion": "7", "managedFields": [{"manager": "m"}],
            "labels": {"app": "a"},
            "annotations": {"proxy.istio.io/config": "{}", "k8s.v1.cni.cncf.io/network-status": "[]", "sidecar.istio.io/status": "{}"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "a-1", "controller": true, "uid": "2"}],
        },
        "spec": {
            "serviceAccountName": "sa", "nodeName": "n", "volumes": [{"name": "v"}],
            "containers": [{"name": "c", "image": "i", "env": [{"name": "A"}], "ports": [{"containerPort": 80, "name": "http"}]}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable", "containerStatuses": [{"name": "c"}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    });
    let wanted = json!({
        "metadata": {
            "name": "a", "namespace": "x", "uid": "1", "resourceVersion": "7", "labels": {"app": "a"},
            "annotations": {"proxy.istio.io/config": "{}"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "a-1", "controller": true}],
        },
        "spec": {
            "serviceAccountName": "sa", "nodeName": "n",
            "containers": [{"name": "c", "ports": [{"containerPort": 80, "name": "http"}]}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert_eq!(slim(Kind::Pod, &pod), wanted);
}

#[test]
fn other_core_kinds_keep_the_fields_of_their_types() {
    let node = json!({
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}], "images": [{"names": ["i"]}]},
    });
    let kept = slim(Kind::Node, &node);
    assert_eq!(kept["status"], json!({"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}));
    let slice = json!({
        "metadata": {"name": "s", "namespace": "x", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["1.1.1.1"], "targetRef": {"kind": "Pod", "name": "p", "uid": "u"}}],
        "ports": [{"port": 80}],
    });
    let kept = slim(Kind::EndpointSlice, &slice);
    assert_eq!((&kept["addressType"], &kept["ports"]), (&slice["addressType"], &slice["ports"]));
    assert_eq!(kept["endpoints"][0]["addresses"], json!(["1.1.1.1"]));
    let namespace =
        json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
    assert_eq!(slim(Kind::Namespace, &namespace)["status"], json!({"phase": "Active"}));
}

#[test]
fn configuration_is_kept_completely() {
    let object = json!({
        "metadata": {"name": "v", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"}, "managedFields": []},
        "spec": {"hosts": ["a"], "http": [{"route": [{"destination": {"host": "a"}}]}]},
        "status": {"conditions": []},
    });
    let mut wanted = object.clone();
    wanted["metadata"] = json!({"name": "v", "annotations": {"mine": "1"}});
    assert_eq!(slim(Kind::VirtualService, &object), wanted);
}
