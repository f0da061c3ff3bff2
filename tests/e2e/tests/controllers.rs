//! The controllers that write to Kubernetes, with a real API server and exactly the permissions of the chart.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use e2e::rutter_binary;
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, Settings};
use test_harness::run::{Control, Result, wait_for};

/// The maximum time for a change on a busy machine. A released Lease is noticed within 7.5 seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The Lease of the root certificate controller.
const NAMESPACES: &str = "istio-namespace-controller-election";

/// A cluster with the chart installed, and the kubeconfig of its service account.
async fn installed(directory: &Path) -> Result<(ControlPlane, std::path::PathBuf)> {
    let plane = ControlPlane::start(Settings::default()).await?;
    let manifest = std::process::Command::new(rutter_binary())
        .args(["manifest", "--create-namespace", "--in-place-of-istiod", "--set", "taint.enabled=true"])
        .output()?;
    let text = String::from_utf8(manifest.stdout)?;
    plane.kubectl(&["apply", "--server-side", "-f", "-"], &text).await?;
    let established = ["wait", "--for=condition=established", "crd", "--all", "--timeout=60s"];
    plane.kubectl(&established, "").await?;
    let kubeconfig = directory.join("kubeconfig");
    std::fs::write(&kubeconfig, plane.service_account("istio-system", "istiod").await?)?;
    Ok((plane, kubeconfig))
}

async fn replica(kubeconfig: &Path, name: &str) -> Result<Control> {
    let kubeconfig = kubeconfig.to_string_lossy();
    let flags = [
        "--store=kubernetes",
        "--namespace=istio-system",
        "--node-untaint=on",
        "--kubeconfig",
        &kubeconfig,
        "--pod-name",
        name,
    ];
    let mut control = Control::idle(rutter_binary(), &flags, &[])?;
    control.begin().await?;
    Ok(control)
}

/// Waits until a field of an object has the wanted value, and returns it.
async fn field(plane: &ControlPlane, object: &[&str], path: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
    let what = format!("{object:?} {path}");
    let mut arguments = vec!["get", "-o", "json"];
    arguments.extend(object);
    let (arguments, fits) = (&arguments, &fits);
    wait_for(&what, PATIENCE, || async move {
        let text = plane.kubectl(arguments, "").await.ok()?;
        let object: Value = serde_json::from_str(&text).ok()?;
        let found = object.pointer(path).cloned().unwrap_or_default();
        fits(&found).then_some(found)
    })
    .await
}

#[tokio::test]
async fn controllers_write_with_the_permissions_of_the_chart_under_one_leader() {
    let directory = tempfile::tempdir().unwrap();
    let (plane, kubeconfig) = installed(directory.path()).await.unwrap();
    let mut first = replica(&kubeconfig, "one").await.unwrap();

    let holder = |name: &'static str| move |found: &Value| found.as_str().is_some_and(|text| text.starts_with(name));
    let lease = ["lease", NAMESPACES, "-n", "istio-system"];
    field(&plane, &lease, "/spec/holderIdentity", holder("one_")).await.unwrap();
    let second = replica(&kubeconfig, "two").await.unwrap();

    root_certificates(&plane).await.unwrap();
    addresses(&plane).await.unwrap();
    ingress(&plane).await.unwrap();
    untaint(&plane).await.unwrap();

    // The first replica stops and releases its Leases; the other one continues.
    assert!(first.stop().await.unwrap(), "it stops gracefully");
    field(&plane, &lease, "/spec/holderIdentity", holder("two_")).await.unwrap();
    plane.kubectl(&["delete", "configmap", "istio-ca-root-cert", "-n", "shop"], "").await.unwrap();
    root_certificate(&plane, "shop").await.unwrap();

    for log in [first.log().unwrap(), second.log().unwrap()] {
        for trouble in ["cannot read what it needs", "was rejected", "forbidden", "panicked"] {
            assert!(!log.contains(trouble), "{trouble}: {log}");
        }
    }
}

#[tokio::test]
async fn gateways_are_deployed_with_the_permissions_of_the_chart() {
    let directory = tempfile::tempdir().unwrap();
    let (plane, kubeconfig) = installed(directory.path()).await.unwrap();
    plane.kubectl(&["create", "namespace", "edge"], "").await.unwrap();
    // An object of this name that is not the controller's.
    let taken = ["create", "service", "clusterip", "taken-istio", "--tcp=1:1", "-n", "edge"];
    plane.kubectl(&taken, "").await.unwrap();
    let replica = replica(&kubeconfig, "one").await.unwrap();

    classes(&plane).await.unwrap();
    deployed(&plane).await.unwrap();
    repaired(&plane).await.unwrap();
    plane.kubectl(&["apply", "-f", "-"], &gateway("taken", 80, "")).await.unwrap();
    field(&plane, &["deployment", "taken-istio", "-n", "edge"], "/spec/replicas", Value::is_number).await.unwrap();
    let service = ["service", "taken-istio", "-n", "edge"];
    field(&plane, &service, "/spec/ports/0/port", |port| *port == 1).await.unwrap();
    plane.kubectl(&["delete", "gateway", "front", "-n", "edge"], "").await.unwrap();
    let gone = || async {
        let left = plane.kubectl(&["get", "deploy,svc,sa,hpa", "-n", "edge", "-o", "name"], "").await.ok()?;
        (!left.contains("/front-istio")).then_some(())
    };
    wait_for("Kubernetes to delete the objects of the Gateway", PATIENCE, gone).await.unwrap();

    let log = replica.log().unwrap();
    assert!(log.contains("Service edge/taken-istio") && log.contains("is left unchanged"), "{log}");
    for trouble in ["cannot read", "forbidden", "panicked"] {
        assert!(!log.contains(trouble), "{trouble}: {log}");
    }
    let rejected: Vec<&str> = log.lines().filter(|line| line.contains("was rejected")).collect();
    assert!(rejected.iter().all(|line| line.contains("edge/taken-istio")), "{rejected:?}");
}

fn gateway(name: &str, port: u16, infrastructure: &str) -> String {
    format!(
        "{{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {{name: {name}, namespace: edge}}, spec: \
         {{gatewayClassName: istio, infrastructure: {{{infrastructure}}}, listeners: [{{name: http, port: {port}, protocol: HTTP}}]}}}}\n"
    )
}

async fn classes(plane: &ControlPlane) -> Result<()> {
    for (class, controller) in
        [("istio", "istio.io/gateway-controller"), ("istio-remote", "istio.io/unmanaged-gateway")]
    {
        field(plane, &["gatewayclass", class], "/spec/controllerName", |found| found == controller).await?;
    }
    let deleted = field(plane, &["gatewayclass", "istio"], "/metadata/uid", Value::is_string).await?;
    plane.kubectl(&["delete", "gatewayclass", "istio"], "").await?;
    field(plane, &["gatewayclass", "istio"], "/metadata/uid", |uid| uid.is_string() && *uid != deleted).await?;
    Ok(())
}

async fn deployed(plane: &ControlPlane) -> Result<()> {
    let parameters = "
apiVersion: v1
kind: ConfigMap
metadata: {name: tuned, namespace: edge}
data:
  deployment: |
    spec: {replicas: 2, template: {spec: {containers: [{name: istio-proxy, resources: {requests: {cpu: 5m}}}]}}}
  horizontalPodAutoscaler: |
    spec: {minReplicas: 2, maxReplicas: 3}
---
";
    let infrastructure = "labels: {team: web}, parametersRef: {group: '', kind: ConfigMap, name: tuned}";
    plane.kubectl(&["apply", "-f", "-"], &format!("{parameters}{}", gateway("front", 80, infrastructure))).await?;
    let of = |kind: &'static str| [kind, "front-istio", "-n", "edge"];
    field(plane, &of("deployment"), "/spec/replicas", |found| *found == 2).await?;
    let container = "/spec/template/spec/containers/0";
    field(plane, &of("deployment"), &format!("{container}/resources/requests/cpu"), |found| found == "5m").await?;
    field(plane, &of("deployment"), "/spec/template/metadata/labels/team", |found| found == "web").await?;
    field(plane, &of("service"), "/spec/type", |found| found == "LoadBalancer").await?;
    field(plane, &of("service"), "/spec/ports/0/name", |found| found == "status-port").await?;
    field(plane, &of("service"), "/spec/ports/1/port", |found| *found == 80).await?;
    field(plane, &of("hpa"), "/spec/maxReplicas", |found| *found == 3).await?;
    let uid = field(plane, &["gateway", "front", "-n", "edge"], "/metadata/uid", Value::is_string).await?;
    for kind in ["deployment", "service", "serviceaccount", "hpa"] {
        field(plane, &of(kind), "/metadata/ownerReferences/0/uid", |found| *found == uid).await?;
    }
    Ok(())
}

async fn repaired(plane: &ControlPlane) -> Result<()> {
    let patch = r#"[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"wrong"}]"#;
    plane.kubectl(&["patch", "deployment", "front-istio", "-n", "edge", "--type=json", "-p", patch], "").await?;
    let image = "/spec/template/spec/containers/0/image";
    let right = |found: &Value| found.as_str().is_some_and(|image| image.contains("proxyv2"));
    field(plane, &["deployment", "front-istio", "-n", "edge"], image, right).await?;
    plane.kubectl(&["delete", "service", "front-istio", "-n", "edge"], "").await?;
    field(plane, &["service", "front-istio", "-n", "edge"], "/spec/ports/1/port", |found| *found == 80).await?;
    let patch = r#"{"spec":{"listeners":[{"name":"http","port":81,"protocol":"HTTP"}]}}"#;
    plane.kubectl(&["patch", "gateway", "front", "-n", "edge", "--type=merge", "-p", patch], "").await?;
    field(plane, &["service", "front-istio", "-n", "edge"], "/spec/ports/1/port", |found| *found == 81).await?;
    // Labels of others stay, and labels that are not wanted any more go.
    plane.kubectl(&["label", "deployment", "front-istio", "-n", "edge", "mine=yes"], "").await?;
    let patch = r#"{"spec":{"infrastructure":{"labels":{"team":"shop"}}}}"#;
    plane.kubectl(&["patch", "gateway", "front", "-n", "edge", "--type=merge", "-p", patch], "").await?;
    let labels = |found: &Value| found["team"] == "shop" && found["mine"] == "yes";
    field(plane, &["deployment", "front-istio", "-n", "edge"], "/metadata/labels", labels).await?;
    Ok(())
}

async fn root_certificate(plane: &ControlPlane, namespace: &str) -> Result<()> {
    let secret = ["get", "secret", "istio-ca-secret", "-n", "istio-system", "-o"];
    let template = "go-template={{index .data \"root-cert.pem\" | base64decode}}";
    let pem = plane.kubectl(&[&secret[..], &[template]].concat(), "").await?;
    let map = ["configmap", "istio-ca-root-cert", "-n", namespace];
    field(plane, &map, "/data/root-cert.pem", |found| found.as_str().is_some_and(|found| found.trim() == pem.trim()))
        .await?;
    field(plane, &map, "/metadata/labels/istio.io~1config", |found| found == "true").await?;
    Ok(())
}

async fn root_certificates(plane: &ControlPlane) -> Result<()> {
    for namespace in ["default", "kube-system"] {
        root_certificate(plane, namespace).await?;
    }
    plane.kubectl(&["create", "namespace", "shop"], "").await?;
    root_certificate(plane, "shop").await?;
    let patch = r#"{"data":{"root-cert.pem":"other"},"metadata":{"labels":null}}"#;
    plane.kubectl(&["patch", "configmap", "istio-ca-root-cert", "-n", "shop", "--type=merge", "-p", patch], "").await?;
    root_certificate(plane, "shop").await?;
    let public = plane.kubectl(&["get", "configmap", "-n", "kube-public", "-o", "name"], "").await?;
    assert!(!public.contains("istio-ca-root-cert"), "{public}");
    Ok(())
}

async fn addresses(plane: &ControlPlane) -> Result<()> {
    let entry = |name: &str| {
        format!(
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: {name}, namespace: shop}}, spec: \
             {{hosts: [{name}.example], resolution: DNS, ports: [{{number: 443, name: tls, protocol: TLS}}]}}}}\n"
        )
    };
    let both = format!("{}---\n{}", entry("a"), entry("b"));
    plane.kubectl(&["apply", "-f", "-"], &both).await?;
    let mut seen = Vec::new();
    for name in ["a", "b"] {
        let object = ["serviceentry", name, "-n", "shop"];
        let given =
            field(plane, &object, "/status/addresses", |found| found.as_array().is_some_and(|found| found.len() == 2))
                .await?;
        assert!(given[0]["value"].as_str().is_some_and(|text| text.starts_with("240.240.")), "{given}");
        assert!(given[1]["value"].as_str().is_some_and(|text| text.starts_with("2001:2:")), "{given}");
        assert_eq!(given[0]["host"], format!("{name}.example"));
        seen.push(given);
        // Status fields of other writers are kept.
        field(plane, &object, "/status/conditions", Value::is_array).await?;
        field(plane, &object, "/status/addresses", |found| *found == seen[seen.len() - 1]).await?;
    }
    assert_ne!(seen[0][0]["value"], seen[1][0]["value"]);
    Ok(())
}

async fn ingress(plane: &ControlPlane) -> Result<()> {
    let text = "
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: mesh}
spec: {controller: istio.io/ingress-controller}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  ingressClassName: mesh
  rules: [{host: shop.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec: {type: LoadBalancer, externalIPs: [192.0.2.7], ports: [{name: http, port: 80}]}
";
    plane.kubectl(&["apply", "-f", "-"], text).await?;
    let object = ["ingress", "web", "-n", "shop"];
    field(plane, &object, "/status/loadBalancer/ingress/0/ip", |found| found == "192.0.2.7").await?;
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"hostname":"lb.example"}]}}}"#;
    let service = ["service", "istio-ingressgateway", "-n", "istio-system"];
    let mut patch = vec!["patch", "--subresource=status", "--type=merge", "-p", status];
    patch.extend(service);
    plane.kubectl(&patch, "").await?;
    field(plane, &object, "/status/loadBalancer/ingress/1/hostname", |found| found == "lb.example").await?;
    Ok(())
}

async fn untaint(plane: &ControlPlane) -> Result<()> {
    let text = "
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {taints: [{key: cni.istio.io/not-ready, effect: NoSchedule}, {key: other, effect: NoSchedule}]}
---
apiVersion: v1
kind: Pod
metadata: {name: istio-cni-node-1, namespace: istio-system, labels: {k8s-app: istio-cni-node}}
spec: {nodeName: n1, containers: [{name: a, image: a}], tolerations: [{operator: Exists}]}
";
    plane.kubectl(&["apply", "-f", "-"], text).await?;
    let status = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
    let pod = ["pod", "istio-cni-node-1", "-n", "istio-system"];
    let mut patch = vec!["patch", "--subresource=status", "--type=merge", "-p", status];
    patch.extend(pod);
    plane.kubectl(&patch, "").await?;
    field(plane, &["node", "n1"], "/spec/taints", |found| {
        let mut taints = found.as_array().into_iter().flatten();
        !taints.clone().any(|taint| taint["key"] == "cni.istio.io/not-ready")
            && taints.any(|taint| taint["key"] == "other")
    })
    .await?;
    Ok(())
}
