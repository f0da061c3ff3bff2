//! The node agent on directories of a test: it installs the plugin, keeps it installed, and removes it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use cni::Settings;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Waits for a condition.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn settings(dir: &Path, more: &[(&str, &str)]) -> Settings {
    let at = |name: &str| Some(dir.join(name).to_str().unwrap().to_owned());
    let value = |of: &cni::settings::Setting| match (of.name, more.iter().find(|(name, _)| *name == of.name)) {
        (_, Some((_, value))) => Some((*value).to_owned()),
        ("mounted-cni-net-dir", _) => at("net.d"),
        ("cni-bin-source-dir", _) => at("source"),
        ("cni-bin-target-dir", _) => at("bin"),
        ("cni-agent-run-dir", _) => at("run"),
        ("service-account-path", _) => at("account"),
        ("kubernetes-service-host", _) => Some("fd00::1".to_owned()),
        ("kubernetes-service-port", _) => Some("443".to_owned()),
        ("readiness-port" | "monitoring-port", _) => Some("0".to_owned()),
        ("repair-enabled", _) => Some("false".to_owned()),
        ("exclude-namespaces", _) => Some("istio-system, kube-system".to_owned()),
        _ => None,
    };
    Settings::read(value).unwrap()
}

fn directories() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["net.d", "source", "bin", "run", "account"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join("source/istio-cni"), "program").unwrap();
    fs::set_permissions(dir.path().join("source/istio-cni"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("account/token"), "secret-1\n").unwrap();
    fs::write(dir.path().join("account/ca.crt"), "authority").unwrap();
    dir
}

fn json_of(path: &Path) -> Value {
    fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_plugin_is_installed_kept_and_removed() {
    let dir = directories();
    let at = |name: &str| dir.path().join(name);
    let list = at("net.d/10-net.conflist");
    let original = json!({ "cniVersion": "0.4.0", "name": "net", "plugins": [{ "type": "bridge" }] });
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(cni::node::run(settings(dir.path(), &[]), stopped));

    // The configuration of the other plugin arrives later.
    until("the kubeconfig", || at("run/istio-cni-kubeconfig").exists()).await;
    fs::write(at("net.d/05-broken.conflist"), "{").unwrap();
    fs::write(&list, original.to_string()).unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o644)).unwrap();
    until("the plugin in the list", || json_of(&list)["plugins"][1]["type"] == "istio-cni").await;
    let entry = json_of(&list)["plugins"][1].clone();
    assert_eq!(entry["exclude_namespaces"], json!(["istio-system", "kube-system"]));
    assert_eq!(mode(&list), 0o644);
    assert_eq!(fs::read_to_string(at("bin/istio-cni")).unwrap(), "program");
    assert_eq!((mode(&at("bin/istio-cni")), mode(&at("run/istio-cni-kubeconfig"))), (0o755, 0o600));
    let kubeconfig = json_of(&at("run/istio-cni-kubeconfig"));
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], "https://[fd00::1]:443");
    assert_eq!(kubeconfig["users"][0]["user"]["token"], "secret-1");

    // Somebody else undoes it, and the token is renewed.
    fs::write(&list, original.to_string()).unwrap();
    fs::remove_file(at("bin/istio-cni")).unwrap();
    fs::write(at("account/token"), "secret-2").unwrap();
    until("the plugin again", || json_of(&list)["plugins"][1] == entry && at("bin/istio-cni").exists()).await;
    until("the new token", || json_of(&at("run/istio-cni-kubeconfig"))["users"][0]["user"]["token"] == "secret-2")
        .await;

    stop.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(json_of(&list), original);
    assert!(!at("bin/istio-cni").exists() && !at("run/istio-cni-kubeconfig").exists());
}

#[tokio::test]
async fn a_plugin_alone_has_its_own_file_and_a_single_one_becomes_a_list() {
    for (name, chained) in [("YYY-istio-cni.conf", "false"), ("10-net.conflist", "true")] {
        let dir = directories();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("net.d/10-net.conf"), json!({ "cniVersion": "0.4.0", "type": "bridge" }).to_string()).unwrap();
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(cni::node::run(settings(dir.path(), &[("chained-cni-plugin", chained)]), stopped));
        until("the configuration", || at(&format!("net.d/{name}")).exists()).await;
        until("the end of the single one", || at("net.d/10-net.conf").exists() == (chained == "false")).await;
        let text = fs::read_to_string(at(&format!("net.d/{name}"))).unwrap();
        assert!(text.contains("\"istio-cni\""), "{text}");
        stop.send_replace(true);
        running.await.unwrap().unwrap();
        let left = fs::read_to_string(at(&format!("net.d/{name}"))).unwrap_or_default();
        assert!(!left.contains("istio-cni"), "{left}");
    }
}

#[tokio::test]
async fn what_is_missing_is_reported() {
    let dir = directories();
    for (setting, value, expected) in [
        ("ambient-enabled", "true", "ambient mode is not supported"),
        ("kubernetes-service-host", "", "KUBERNETES_SERVICE_HOST"),
        ("kube-ca-file", "/nowhere/ca.crt", "cannot read /nowhere/ca.crt"),
        ("cni-bin-source-dir", "/nowhere", "cannot install /nowhere"),
    ] {
        let (_stop, stopped) = watch::channel(false);
        let error = cni::node::run(settings(dir.path(), &[(setting, value)]), stopped).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
