//! The injection and validation webhooks, called by a real API server.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use e2e::cluster::Namespace;
use e2e::home::{PATIENCE, Rutter};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Method};
use test_harness::run::{Result, wait_for};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A control plane with webhooks: the objects of the chart, whose webhooks are called by URL.
struct Plane<'a> {
    rutter: Rutter,
    home: &'a ControlPlane,
    revision: String,
    system: Namespace<'a>,
    _files: tempfile::TempDir,
}

/// The objects that `rutter manifest` prints with webhooks.
fn manifest(namespace: &str, revision: &str) -> Result<Vec<Value>> {
    let values = ["--set", "webhooks.enabled=true", "--set", "global.hub=registry.example", "--set", "global.tag=v1"];
    let output = Command::new(e2e::rutter_binary())
        .args(["manifest", "--skip-crds", "-o", "json", "--namespace", namespace, "--revision", revision])
        .args(values)
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout)?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

impl<'a> Plane<'a> {
    async fn start(home: &'a ControlPlane, revision: &str) -> Result<Plane<'a>> {
        let system = Namespace::create(home, "system").await?;
        let files = tempfile::tempdir()?;
        let path = |name: &str| files.path().join(name).display().to_string();
        let pair = rcgen::KeyPair::generate()?;
        let mut certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        // It is its own root, which API servers get as the CA bundle.
        certificate.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        certificate.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::DigitalSignature];
        let certificate = certificate.self_signed(&pair)?;
        std::fs::write(path("cert.pem"), certificate.pem())?;
        std::fs::write(path("key.pem"), pair.serialize_pem())?;
        let tls = [
            "--tls-cert-file",
            &path("cert.pem"),
            "--tls-key-file",
            &path("key.pem"),
            "--ca-cert-file",
            &path("cert.pem"),
            "--revision",
            revision,
            "--native-sidecars",
            "false",
        ];
        let mut rutter = Rutter::idle(home, system.name(), None, &tls)?;
        rutter.control.begin().await?;
        let plane = Plane { rutter, home, revision: revision.to_owned(), system, _files: files };
        plane.install().await?;
        Ok(plane)
    }

    /// Applies the ConfigMap and the webhook configurations of the chart.
    async fn install(&self) -> Result<()> {
        let url = format!("https://{}", self.rutter.control.webhooks());
        for mut object in manifest(self.system.name(), &self.revision)? {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let is_wanted = kind.ends_with("WebhookConfiguration")
                || object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("istio-sidecar-injector"));
            if !is_wanted {
                continue;
            }
            for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default().to_owned();
                webhook["clientConfig"] = json!({"url": format!("{url}{path}")});
            }
            self.system.apply(&object.to_string()).await?;
        }
        let patched = || async {
            let all = [self.get(MUTATING).await.ok()?, self.get(VALIDATING).await.ok()?];
            let own = all.iter().flat_map(|list| list["items"].as_array().into_iter().flatten());
            let mut own = own.filter(|object| object["metadata"]["labels"]["istio.io/rev"] == self.revision.as_str());
            let has =
                |webhook: &Value| webhook["clientConfig"]["caBundle"].as_str().is_some_and(|bundle| !bundle.is_empty());
            own.all(|object| object["webhooks"].as_array().is_some_and(|webhooks| webhooks.iter().all(has)))
                .then_some(())
        };
        self.rutter.explained(wait_for("the CA bundles of the webhooks", PATIENCE, patched).await)?;
        self.rutter.explained(self.rutter.control.wait_for_log("injection configuration").await)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.home.request(Method::GET, path, &Value::Null).await?.body)?)
    }

    /// Creates a pod and returns what the API server made of it. Nothing is stored.
    async fn create(&self, space: &Namespace<'_>, pod: &Value) -> Result<Value> {
        let made = space.kubectl(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &pod.to_string()).await?;
        Ok(serde_json::from_str(&made)?)
    }
}

fn pod(labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": labels, "annotations": annotations},
        "spec": {"serviceAccountName": "default", "containers": [{
            "name": "app", "image": "app", "readinessProbe": {"httpGet": {"path": "/r", "port": 8080}}}]},
    })
}

fn containers(pod: &Value) -> Vec<&str> {
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// A pod can be created once its namespace has its service account.
async fn namespace<'a>(home: &'a ControlPlane, labels: &[(&str, &str)]) -> Result<Namespace<'a>> {
    let space = Namespace::create_with(home, "shop", labels).await?;
    let account = || async { space.kubectl(&["get", "serviceaccount", "default"], "").await.ok() };
    wait_for("the service account", PATIENCE, account).await?;
    Ok(space)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_a_sidecar_by_labels() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, "blue").await?;
    let labelled = namespace(home, &[("istio.io/rev", "blue")]).await?;
    let plain = namespace(home, &[]).await?;
    let none = Value::Null;
    let with = |labels: Value| pod(labels, none.clone());

    let injected = plane.rutter.explained(plane.create(&labelled, &with(json!({"app": "web"}))).await)?;
    assert_eq!(containers(&injected), ["istio-init", "app", "istio-proxy"]);
    assert_eq!(injected["metadata"]["annotations"]["istio.io/rev"], "blue");
    let proxy = &injected["spec"]["containers"][1];
    assert_eq!(proxy["image"], "registry.example/proxyv2:v1");
    assert_eq!(injected["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"], 15020);

    for (space, labels, expected) in [
        (&labelled, json!({"sidecar.istio.io/inject": "false"}), false),
        (&plain, json!({}), false),
        (&plain, json!({"istio.io/rev": "blue"}), true),
        (&plain, json!({"istio.io/rev": "green"}), false),
        (&plain, json!({"istio.io/rev": "blue", "sidecar.istio.io/inject": "false"}), false),
    ] {
        let made = plane.create(space, &with(labels.clone())).await?;
        assert_eq!(containers(&made).contains(&"istio-proxy"), expected, "{labels}");
    }

    // A refusal reaches the user with its reason.
    let invalid = pod(json!({}), json!({"sidecar.istio.io/proxyCPU": "many"}));
    let error = plane.create(&labelled, &invalid).await.unwrap_err().to_string();
    assert!(error.contains("sidecar.istio.io/proxyCPU") && error.contains("100m"), "{error}");

    // A Deployment's pods get one, too: the name is that of the Deployment.
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": with(json!({}))["spec"]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}});
    labelled.apply(&deployment.to_string()).await?;
    let made = || async {
        let list: Value =
            serde_json::from_str(&labelled.kubectl(&["get", "pods", "-l", "app=web", "-o", "json"], "").await.ok()?)
                .ok()?;
        list["items"].get(0).cloned()
    };
    let made = plane.rutter.explained(wait_for("a pod of the Deployment", PATIENCE, made).await)?;
    let variables = made["spec"]["containers"].as_array().unwrap().iter().find(|c| c["name"] == "istio-proxy").unwrap()
        ["env"]
        .clone();
    let value = |name: &str| variables.as_array().unwrap().iter().find(|v| v["name"] == name).unwrap()["value"].clone();
    assert_eq!(value("ISTIO_META_WORKLOAD_NAME"), "web");
    assert_eq!(plane.rutter.control.metric("sidecar_injection_failure_total", "").await?, 1.0);

    // A changed ConfigMap is used without a restart.
    let config = "policy: disabled\ntemplates: {}\n";
    let patch = json!({"data": {"config": config}}).to_string();
    plane
        .system
        .kubectl(&["patch", "configmap", "istio-sidecar-injector-blue", "--type=merge", "-p", &patch], "")
        .await?;
    let changed = || async {
        let made = plane.create(&labelled, &with(json!({"app": "web"}))).await.ok()?;
        (containers(&made) == ["app"]).then_some(())
    };
    plane.rutter.explained(wait_for("the changed configuration", PATIENCE, changed).await)
}

/// The refusal has the control plane's message, and the webhook fails closed after it was tried.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_objects_are_refused() -> Result<()> {
    let home = e2e::cluster::shared_with_crds().await?;
    let plane = Plane::start(home, "red").await?;
    let space = Namespace::create(home, "shop").await?;
    let closed = || async {
        let list = plane.get(VALIDATING).await.ok()?;
        let own = list["items"]
            .as_array()?
            .iter()
            .find(|object| object["metadata"]["labels"]["istio.io/rev"] == "red")?
            .clone();
        (own["webhooks"][0]["failurePolicy"] == "Fail").then_some(())
    };
    plane.rutter.explained(wait_for("failurePolicy Fail", PATIENCE, closed).await)?;
    let service = |weight: i64| {
        json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "a", "labels": {"istio.io/rev": "red"}},
            "spec": {"hosts": ["a.example"], "http": [{"route": [
                {"destination": {"host": "a"}, "weight": weight}, {"destination": {"host": "b"}, "weight": 10}]}]}})
    };
    let error = space.apply(&service(-1).to_string()).await.unwrap_err().to_string();
    assert!(error.contains("denied the request") && error.contains("weight"), "{error}");
    space.apply(&service(90).to_string()).await?;
    Ok(())
}
