//! `rutter precheck`, `install`, `upgrade` and `uninstall`: in an empty cluster, in the place of an istiod, and with real pods.

// A failure here fails the test, so unwrapping is fine.
#![allow(clippy::unwrap_used)]

use std::process::Output;

use e2e::cluster::shared_with_node;
use e2e::{rutter, rutter_binary};
use serde_json::{Value, json};
use test_harness::kubernetes::{ControlPlane, Image, Method, Settings};
use test_harness::run::Result;

const IMAGE: &str = "localhost/rutter-mesh/rutter:e2e";
const ISTIOD: &str = "/apis/apps/v1/namespaces/istio-system/deployments/istiod";
const INJECTOR: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/istio-sidecar-injector";
const SECRET: &str = "/api/v1/namespaces/istio-system/secrets/istio-ca-secret";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/virtualservices.networking.istio.io";

/// The objects of an istiod that its chart has installed, as far as they matter for who takes its place: the immutable selector,
/// the values, the CA bundle and the policy that istiod has written, and the Secret with its key.
fn istiod() -> Value {
    let labels = json!({"app": "istiod", "istio.io/rev": "default", "app.kubernetes.io/managed-by": "Helm"});
    let helm = json!({"meta.helm.sh/release-name": "istiod", "meta.helm.sh/release-namespace": "istio-system"});
    let meta = |name: &str| json!({"name": name, "namespace": "istio-system", "labels": labels, "annotations": helm});
    let webhook = |name: &str, path: &str| {
        json!({"name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"caBundle": CERTIFICATE.as_str(),
                "service": {"name": "istiod", "namespace": "istio-system", "path": path, "port": 443}}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("istiod"), "spec": {
            "selector": {"matchLabels": {"istio": "pilot"}},
            "template": {
                "metadata": {"labels": {"app": "istiod", "istio": "pilot", "istio.io/rev": "default"}},
                "spec": {"containers": [{"name": "discovery", "image": "localhost/pilot:1", "args": ["discovery"]}]}}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta("istiod"), "spec": {
            "selector": {"app": "istiod", "istio": "pilot"},
            "ports": [{"name": "https-dns", "port": 15012}, {"name": "https-webhook", "port": 443, "targetPort": 15017}]}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("istio"), "data": {"mesh": "accessLogFile: /dev/stdout\n"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("values"), "data": {
            "original-values": json!({"global": {"hub": "mirror.example/istio", "tag": "1.0"}, "traceSampling": 2}).to_string()}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": meta("istio-sidecar-injector"), "webhooks": [webhook("namespace.sidecar-injector.istio.io", "/inject")]},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": meta("istio-validator-istio-system"), "webhooks": [webhook("rev.validation.istio.io", "/validate")]},
        {"apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root",
            "metadata": {"name": "istio-ca-secret", "namespace": "istio-system"}, "stringData": {"ca-cert.pem": "kept"}},
    ]})
}

/// A certificate in PEM and Base64, which API servers demand of CA bundles.
static CERTIFICATE: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    use base64::Engine as _;
    let made = rcgen::generate_simple_self_signed(vec!["istiod".to_owned()]).unwrap();
    base64::engine::general_purpose::STANDARD.encode(made.cert.pem())
});

/// Runs `rutter`; checks the exit code and that the output contains a text.
async fn run(plane: &ControlPlane, words: &[&str], code: i32, part: &str) -> Result<String> {
    let Output { status, stdout, stderr } = rutter(&plane.kubeconfig(), words, "").await?;
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(code), "{words:?}: {text}");
    assert!(text.contains(part), "{words:?} does not mention {part:?}: {text}");
    Ok(text)
}

async fn get(plane: &ControlPlane, path: &str) -> Result<Option<Value>> {
    let answer = plane.request(Method::GET, path, &Value::Null).await?;
    answer.status.is_success().then(|| answer.json()).transpose()
}

#[tokio::test]
async fn an_istiod_is_replaced_on_request_only() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    run(&plane, &["precheck"], 0, "a new one will be created").await?;
    plane.kubectl(&["apply", "--server-side", "-f", "-"], &istiod().to_string()).await?;
    let address =
        get(&plane, "/api/v1/namespaces/istio-system/services/istiod").await?.unwrap()["spec"]["clusterIP"].clone();
    let secret = get(&plane, SECRET).await?.unwrap();

    run(&plane, &["precheck"], 1, "belong to Helm release istiod: use --revision").await?;
    run(&plane, &["install"], 1, "Deployment istio-system/istiod (Helm release istiod)").await?;
    let replace = ["install", "--in-place-of-istiod", "--reuse-values"];
    run(&plane, &[&replace[..], &["--dry-run"]].concat(), 0, "nothing was changed").await?;
    assert!(get(&plane, CRD).await?.is_none(), "a dry run creates nothing");
    assert_eq!(
        get(&plane, ISTIOD).await?.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"],
        "localhost/pilot:1"
    );
    // Nobody schedules pods here.
    let told = run(&plane, &[&replace[..], &["--timeout", "1s"]].concat(), 3, "0 of 1 pods are ready").await?;
    for part in [
        "`traceSampling` has no effect",
        "changes in: accessLogFile",
        "VHDS is off (env.RUTTER_VHDS), so that proxies can go back to istiod",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let deployment = get(&plane, ISTIOD).await?.unwrap();
    assert_eq!(deployment["spec"]["selector"], json!({"matchLabels": {"istio": "pilot"}}));
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    assert!(image.contains("rutter:"), "{image}");
    let service = get(&plane, "/api/v1/namespaces/istio-system/services/istiod").await?.unwrap();
    assert_eq!(service["spec"]["clusterIP"], address);
    let webhook = get(&plane, INJECTOR).await?.unwrap();
    let webhooks = webhook["webhooks"].as_array().unwrap();
    let same = webhooks.iter().find(|webhook| webhook["name"] == "namespace.sidecar-injector.istio.io").unwrap();
    assert_eq!(same["clientConfig"]["caBundle"], CERTIFICATE.as_str(), "pods can be created meanwhile");
    let validator =
        INJECTOR.replace("mutating", "validating").replace("istio-sidecar-injector", "istio-validator-istio-system");
    assert_eq!(get(&plane, &validator).await?.unwrap()["webhooks"][0]["failurePolicy"], "Fail");
    assert_eq!(get(&plane, SECRET).await?.unwrap()["data"], secret["data"]);
    let values = "/api/v1/namespaces/istio-system/configmaps/istio-sidecar-injector";
    assert!(get(&plane, values).await?.unwrap()["data"]["values"].as_str().unwrap().contains("mirror.example/istio"));

    run(&plane, &["precheck"], 0, "rutter, installation rutter").await?;
    // An object that the changed values do not make is deleted.
    run(
        &plane,
        &["upgrade", "--no-wait", "--set", "autoscaleEnabled=false"],
        0,
        "HorizontalPodAutoscaler istio-system/istiod deleted",
    )
    .await?;
    uninstalled(&plane).await
}

/// Only what the installation has made goes, and the rest on request.
async fn uninstalled(plane: &ControlPlane) -> Result<()> {
    run(plane, &["uninstall"], 1, "nothing was removed").await?;
    run(plane, &["uninstall", "--revision", "other", "--yes"], 1, "has made no installation").await?;
    assert!(get(plane, ISTIOD).await?.is_some());
    run(plane, &["uninstall", "--yes"], 0, "Service istio-system/istiod deleted").await?;
    for gone in [INJECTOR, "/api/v1/namespaces/istio-system/services/istiod"] {
        assert!(get(plane, gone).await?.is_none(), "{gone}");
    }
    for kept in [SECRET, CRD, "/api/v1/namespaces/istio-system/configmaps/values"] {
        assert!(get(plane, kept).await?.is_some(), "{kept}");
    }
    run(plane, &["uninstall", "--purge", "--yes"], 0, "Secret istio-system/istio-ca-secret deleted").await?;
    assert!(get(plane, SECRET).await?.is_none());
    Ok(())
}

/// A selector that cannot be changed, and a webhook that leads nowhere, are found before anything is written.
#[tokio::test]
async fn what_prevents_an_installation_is_named() -> Result<()> {
    let plane = ControlPlane::start(Settings::default()).await?;
    let mut objects = istiod();
    objects["items"][1]["spec"]["selector"]["matchLabels"]["app"] = "istiod".into();
    objects["items"].as_array_mut().unwrap().remove(2);
    plane.kubectl(&["apply", "--server-side", "-f", "-"], &objects.to_string()).await?;
    let told = run(&plane, &["precheck", "--in-place-of-istiod"], 1, "cannot be changed").await?;
    assert!(told.contains("calls the Service istio-system/istiod, which does not exist"), "{told}");
    run(&plane, &["install", "--in-place-of-istiod"], 1, "--cascade=orphan").await?;
    run(&plane, &["upgrade"], 1, "use `rutter install`").await?;
    run(&plane, &["install", "--revision", "a", "--no-wait"], 0, "Deployment istio-system/istiod-a created").await?;
    Ok(())
}

/// With pods: the exit code 0 means that a webhook works. Two revisions stand side by side, and the tag `default` moves.
#[tokio::test]
async fn an_installation_serves() -> Result<()> {
    let Some(cluster) = shared_with_node().await? else { return Ok(()) };
    let plane = &cluster.plane;
    let program = "/usr/local/bin/rutter";
    let image = Image::new(IMAGE).program(rutter_binary(), program)?.entrypoint(&[program]).user(1337);
    cluster.node.import(&image).await?;
    let set = format!("image={IMAGE},global.imagePullPolicy=Never,autoscaleEnabled=false");
    run(plane, &["install", "--set", &set], 0, "a pod got a sidecar (dry run)").await?;
    run(plane, &["install", "--revision", "canary", "--set", &set], 0, "serves as revision canary; a pod got").await?;
    run(plane, &["tag", "set", "default", "-r", "canary"], 0, "deactivated istio-sidecar-injector").await?;
    run(plane, &["tag", "set", "canary", "-r", "default"], 1, "is the name of a revision").await?;
    assert_eq!(
        get(plane, INJECTOR).await?.unwrap()["webhooks"][2]["namespaceSelector"],
        json!({"matchLabels": {"istio.io/deactivated": "never-match"}})
    );
    plane.kubectl(&["create", "namespace", "shop"], "").await?;
    plane.kubectl(&["label", "namespace", "shop", "istio-injection=enabled"], "").await?;
    plane.kubectl(&["create", "deployment", "web", "-n", "shop", "--image=web"], "").await?;
    run(plane, &["check-inject", "deployment/web", "-n", "shop"], 0, "sidecar of revision canary").await?;
    run(plane, &["upgrade"], 0, "the tag `default` stands for another revision").await?;
    run(plane, &["uninstall", "-r", "canary", "--yes"], 0, "the tag default keeps standing").await?;
    run(plane, &["precheck"], 1, "calls the Service istio-system/istiod-canary, which does not exist").await?;
    run(plane, &["tag", "remove", "default", "--yes"], 0, "`rutter upgrade` restores").await?;
    run(plane, &["upgrade"], 0, "a pod got a sidecar (dry run)").await?;
    run(plane, &["check-inject", "deployment/web", "-n", "shop"], 0, "sidecar of revision default").await?;
    run(plane, &["uninstall", "--yes"], 0, "removed revision default").await?;
    run(plane, &["check-inject", "deployment/web", "-n", "shop"], 1, "no webhook selects the pod").await?;
    Ok(())
}
