//! DNS for pods: CoreDNS, which the suite builds for a test of its own.

use serde_json::{Value, json};
use test_harness::kubernetes::ControlPlane;
use test_harness::run::Result;

use crate::images::DNS;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "dns";

const COREFILE: &str = "\
.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa
}
";

/// Deploys the server. Its image must be there.
pub(crate) async fn deploy(plane: &ControlPlane) -> Result<()> {
    let address = plane.dns().ok_or("the control plane was not started for DNS")?;
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects(&address.to_string())});
    plane.kubectl(&["apply", "--server-side", "-f", "-"], &objects.to_string()).await?;
    Ok(())
}

fn objects(address: &str) -> Vec<Value> {
    let meta = json!({"namespace": NAMESPACE, "name": NAME});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME});
    let may_read = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]});
    let labels = json!({"app": NAME});
    let ports = |key: &str| -> Vec<Value> {
        ["UDP", "TCP"]
            .iter()
            .map(|protocol| json!({"name": protocol.to_lowercase(), key: 53, "protocol": protocol}))
            .collect()
    };
    let pod = json!({
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "containers": [{
            "name": NAME,
            "image": DNS,
            "imagePullPolicy": "Never",
            "args": ["-conf", "/etc/coredns/Corefile"],
            "ports": ports("containerPort"),
            "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        }],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    });
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [
                may_read("", &["endpoints", "services", "pods", "namespaces"]),
                may_read("discovery.k8s.io", &["endpointslices"]),
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": NAME}],
        }),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"Corefile": COREFILE}}),
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"clusterIP": address, "selector": labels, "ports": ports("port")},
        }),
    ]
}
