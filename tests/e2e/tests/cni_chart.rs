//! The chart of the CNI node agent, on a real node: it installs the plugin, which captures pods, repairs a pod that was there before,
//! and leaves the node as it was.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::cni_binary;
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, Image, Node, Settings};
use test_harness::run::{Result, wait_for};

const PATIENCE: Duration = Duration::from_secs(90);
const AGENT: &str = "localhost/rutter-cni:1";
const POD: &str = "localhost/cni-pod:1";
/// Prints whether the pod's outgoing traffic is captured.
const LOOK: &str = "case $(nft list ruleset) in *15001*) echo captured;; *) echo free;; esac";

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/rutter-cni")
}

/// The images of the node agent, like that of `deploy/Containerfile.cni` without iptables, and of pods.
fn images() -> Result<[Image; 2]> {
    let file = include_str!("../../../deploy/Containerfile.cni");
    for line in
        ["COPY rutter-cni /opt/cni/bin/istio-cni", "RUN ln -s /opt/cni/bin/istio-cni /usr/local/bin/install-cni"]
    {
        assert!(file.lines().any(|found| found == line), "{line}");
    }
    let agent = Image::new(AGENT)
        .program(cni_binary(), "/opt/cni/bin/istio-cni")?
        .link("/usr/local/bin/install-cni", "/opt/cni/bin/istio-cni")
        .tool("nft")?
        .tool("ip")?
        .tool("nsenter")?
        .command(&["install-cni"]);
    let pod = Image::new(POD).tool("bash")?.tool("nft")?.tool("sleep")?.command(&["sleep", "infinity"]);
    Ok([agent, pod])
}

/// The objects of the chart for this node. Nothing here has iptables.
fn manifest(node: &Node) -> Result<String> {
    let (network, plugins) = node.network_directories();
    let helm = test_harness::helm(&mut |line| eprintln!("{line}"))?;
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    let rendered = Command::new(helm)
        .args(["template", "istio-cni"])
        .arg(chart())
        .args([
            "--namespace",
            "kube-system",
            "--set",
            &format!("image={AGENT},pullPolicy=Never,global.nativeNftables=true"),
        ])
        .args(["--set", &set("cniConfDir", &network), "--set", &set("cniBinDir", &plugins)])
        .output()?;
    assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
    Ok(String::from_utf8(rendered.stdout)?)
}

/// A pod with a sidecar. `early`: with the init container that fails without rules.
fn pod(name: &str, early: bool) -> String {
    let container = format!(
        "image: {POD}, imagePullPolicy: Never, securityContext: {{runAsUser: 0, capabilities: {{add: [NET_ADMIN]}}}}"
    );
    let init = format!(
        "initContainers: [{{name: istio-validation, {container}, command: [bash, -c, '[ $({LOOK}) = captured ] || exit 126']}}]"
    );
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{sidecar.istio.io/status: '{{}}'}}}}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  {}\n  containers:\n  - {{name: istio-proxy, image: {POD}, imagePullPolicy: Never, \
         securityContext: {{runAsUser: 1337, runAsGroup: 1337}}}}\n  - {{name: look, {container}}}\n---\n",
        if early { &init } else { "" }
    )
}

async fn looks(plane: &ControlPlane, name: &str) -> Result<String> {
    plane.kubectl(&["wait", "--for=condition=ready", "--timeout=90s", "pod", name], "").await?;
    Ok(plane.kubectl(&["exec", name, "-c", "look", "--", "bash", "-c", LOOK], "").await?.trim().to_owned())
}

async fn captures() -> Result<()> {
    if let Some(missing) = test_harness::kubernetes::missing() {
        eprintln!("skipped: {missing}");
        return Ok(());
    }
    let plane = ControlPlane::start(Settings { node: true, ..Settings::default() }).await?;
    let node = Node::start(&plane).await?;
    for image in images()? {
        node.import(&image).await?;
    }
    let (network, plugins) = node.network_directories();
    let list = || {
        let text = std::fs::read_to_string(network.join("pods.conflist")).unwrap_or_default();
        serde_json::from_str::<Value>(&text).unwrap_or_default()
    };
    let before = list();
    plane.kubectl(&["apply", "-f", "-"], &pod("early", true)).await?;
    let failed = || async {
        let path = "jsonpath={.status.initContainerStatuses[0].lastState.terminated.exitCode}";
        let code = plane.kubectl(&["get", "pod", "early", "-o", path], "").await.ok()?;
        (code == "126").then_some(())
    };
    wait_for("the pod without rules to fail", PATIENCE, failed).await?;

    let manifest = manifest(&node)?;
    plane.kubectl(&["apply", "-f", "-"], &manifest).await?;
    let rollout = ["rollout", "status", "daemonset/istio-cni-node", "-n", "kube-system", "--timeout=90s"];
    if let Err(error) = plane.kubectl(&rollout, "").await {
        let pods = plane.kubectl(&["describe", "pods", "-n", "kube-system"], "").await?;
        let log = plane.kubectl(&["logs", "-n", "kube-system", "daemonset/istio-cni-node"], "").await;
        return Err(format!("{error}\n{pods}\n{log:?}").into());
    }
    assert!(list().to_string().contains("istio-cni") && plugins.join("istio-cni").is_file(), "{}", list());
    plane.kubectl(&["apply", "-f", "-"], &pod("captured", false)).await?;
    assert_eq!(looks(&plane, "captured").await?, "captured");
    // The kubelet starts the failed container again after at most 40 s.
    if let Err(error) = looks(&plane, "early").await {
        let log = plane.kubectl(&["logs", "-n", "kube-system", "daemonset/istio-cni-node"], "").await;
        return Err(format!("{error}\n{log:?}").into());
    }

    plane.kubectl(&["delete", "-f", "-", "--wait"], &manifest).await?;
    let restored = || async { (list() == before && !plugins.join("istio-cni").exists()).then_some(()) };
    if let Err(error) = wait_for("the plugin to go", PATIENCE, restored).await {
        return Err(format!("{error}\n{before}\n{}", list()).into());
    }
    plane.kubectl(&["apply", "-f", "-"], &pod("later", false)).await?;
    assert_eq!(looks(&plane, "later").await?, "free");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chart_captures_pods_and_leaves_the_node_as_it_was() {
    captures().await.unwrap_or_else(|error| panic!("{error}"));
}
