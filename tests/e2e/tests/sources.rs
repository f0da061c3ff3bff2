//! Configuration from other sources: `MeshConfig.configSources` with another control plane, a directory, and a
//! Kubernetes API.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use e2e::{HOST, done, envoy_binary, rutter_binary, shop_service, virtual_service};
use test_harness::run::{Backend, ConfigDir, Control, Envoy, Node, Protocol, Result, free_port, http, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n";

/// A control plane with a store, and its data directory.
struct Home {
    control: Control,
    _data: tempfile::TempDir,
}

impl Home {
    async fn start(flags: &[&str]) -> Result<Home> {
        let data = tempfile::tempdir()?;
        let control = Control::start_with_api(rutter_binary(), data.path(), flags).await?;
        let home = Home { control, _data: data };
        home.run(&["create", "-f", "-"], NAMESPACE).await?;
        Ok(home)
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        let kubeconfig = self.control.kubeconfig().ok_or("it has no kubeconfig")?;
        done(&kubeconfig, arguments, input).await
    }

    async fn apply(&self, text: &str) -> Result<()> {
        self.run(&["apply", "-f", "-"], text).await.map(drop)
    }
}

/// A file with a MeshConfig that has these sources.
fn mesh_file(directory: &Path, addresses: &[&str]) -> Result<String> {
    let file = directory.join("mesh.yaml");
    let entries: String = addresses.iter().map(|address| format!("- address: {address}\n")).collect();
    std::fs::write(&file, format!("configSources:\n{entries}"))?;
    Ok(file.display().to_string())
}

/// A DestinationRule with this name for this host.
fn rule(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ host: {host} }}\n"
    )
}

/// Waits until the control plane has (or no longer has) an object with this text.
async fn wait_for_object(control: &Control, text: &str, present: bool) -> Result<()> {
    let reached = || async {
        let page = control.debug("/debug/configz").await.ok()?.text();
        (page.contains(text) == present).then_some(())
    };
    let what = format!("`{text}` to {}", if present { "come" } else { "go" });
    match wait_for(&what, PATIENCE, reached).await {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error}; the log ends:\n{}", control.log_end()?).into()),
    }
}

fn to(version: &str) -> String {
    let route = format!("[{{ route: [{{ destination: {{ host: {HOST}, subset: {version} }} }}] }}]");
    virtual_service("[mesh]", &route)
}

/// Waits until this version answers requests through the proxy.
async fn wait_for_version(port: u16, version: &str) -> Result<()> {
    let answered = || async {
        let answer = http::get(([127, 0, 0, 1], port).into(), "/", &[("host", HOST)]).await.ok()?;
        (answer.header("x-version") == version).then_some(())
    };
    wait_for(&format!("answers of {version}"), PATIENCE, answered).await
}

/// A change that is applied at one control plane reaches an Envoy of another one, which keeps working while the first
/// is unavailable.
async fn over_xds() -> Result<()> {
    let mut first = Home::start(&[]).await?;
    let scratch = tempfile::tempdir()?;
    let mesh = mesh_file(scratch.path(), &[&format!("xds://{}", first.control.grpc())])?;
    let flags = ["--store", "none", "--mesh-config", &mesh, "--source-timeout", "0s"];
    let mut second = Control::idle(rutter_binary(), &flags, &[])?;
    second.begin().await?;

    let (one, two) = (Backend::start("v1", "shop-1").await?, Backend::start("v2", "shop-2").await?);
    let port = free_port();
    let service = shop_service(port, "{ tls: { mode: DISABLE } }", &[&one, &two]);
    first.apply(&format!("{service}---\n{}", to("v1"))).await?;
    let node = Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]);
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, second.grpc()).await?;
    envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
    wait_for_version(port, "v1").await?;
    first.apply(&to("v2")).await?;
    wait_for_version(port, "v2").await?;

    // The first control plane is stopped: its objects stay in effect, for connected proxies and for one that connects
    // now.
    first.control.kill().await?;
    second.wait_for_log("disconnected from the other control plane").await?;
    wait_for_version(port, "v2").await?;
    wait_for_object(&second, HOST, true).await?;
    drop(envoy);
    let envoy = Envoy::start(envoy_binary(), &node, Protocol::Delta, second.grpc()).await?;
    envoy.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
    wait_for_version(port, "v2").await?;

    first.control.begin().await?;
    first.apply(&to("v1")).await?;
    wait_for_version(port, "v1").await?;
    first.run(&["delete", "workloadentry", "shop-2", "-n", "test"], "").await?;
    wait_for_object(&second, "shop-2", false).await?;

    // A control plane that starts while the first is unavailable serves no proxies. It waits and reports it.
    second.stop().await?;
    first.control.stop().await?;
    second.launch()?;
    let says = || async {
        let answer = second.readiness().await.ok()?;
        let says = answer.text().contains("waiting for configSources[0] xds://");
        (says && !answer.status.is_success()).then_some(())
    };
    wait_for("`/ready` to say what is missing", PATIENCE, says).await?;
    first.control.begin().await?;
    second.wait_until_ready().await?;
    wait_for_version(port, "v1").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_xds_source_survives_a_restart_of_its_server() {
    over_xds().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The precedence of sources: the store, then directories and others in the order of the list.
async fn precedence() -> Result<()> {
    let (scratch, files) = (tempfile::tempdir()?, ConfigDir::new()?);
    files.put("rules.yaml", &format!("{}---\n{}", rule("a", "from-files.test"), rule("b", "only-files.test")))?;
    let fs = format!("fs://{}", files.path().display());
    // No server listens at this address.
    let away = format!("xds://127.0.0.1:{}", free_port());
    let mesh = mesh_file(scratch.path(), &[&fs, &away])?;
    let home = Home::start(&["--mesh-config", &mesh, "--source-timeout", "1s"]).await?;
    home.control.wait_for_log(&format!("serving without configSources[1] {away}")).await?;
    wait_for_object(&home.control, "from-files.test", true).await?;
    files.put("more.yaml", &rule("c", "more-files.test"))?;
    wait_for_object(&home.control, "more-files.test", true).await?;

    home.apply(&rule("a", "from-store.test")).await?;
    wait_for_object(&home.control, "from-store.test", true).await?;
    wait_for_object(&home.control, "from-files.test", false).await?;
    let told =
        format!("the embedded store and configSources[0] {fs} define this object; the embedded store takes precedence");
    home.control.wait_for_log(&told).await?;
    home.run(&["delete", "destinationrule", "a", "-n", "test"], "").await?;
    wait_for_object(&home.control, "from-files.test", true).await?;
    files.remove("rules.yaml")?;
    wait_for_object(&home.control, "only-files.test", false).await?;

    // A change of the sources is logged.
    mesh_file(scratch.path(), &[&fs])?;
    home.control.wait_for_log("restart to apply the change").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_takes_precedence_over_files() {
    precedence().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A Kubernetes API as a source; Rutter's own API is used here.
async fn over_kubernetes() -> Result<()> {
    let mut cluster = Home::start(&[]).await?;
    let kubeconfig = cluster.control.kubeconfig().ok_or("it has no kubeconfig")?;
    cluster.apply(&rule("a", "first.test")).await?;
    let scratch = tempfile::tempdir()?;
    let mesh = mesh_file(scratch.path(), &["k8s://"])?;
    let flags = ["--store", "none", "--mesh-config", &mesh];
    let mut second = Control::idle(rutter_binary(), &flags, &[("KUBECONFIG", &kubeconfig)])?;
    second.begin().await?;
    // It was not ready before it had read all objects.
    assert!(second.debug("/debug/configz").await?.text().contains("first.test"));
    cluster.apply(&rule("a", "second.test")).await?;
    wait_for_object(&second, "second.test", true).await?;

    cluster.control.kill().await?;
    assert!(second.debug("/debug/configz").await?.text().contains("second.test"));
    cluster.control.begin().await?;
    cluster.apply(&format!("{}---\n{}", rule("a", "third.test"), rule("b", "other.test"))).await?;
    wait_for_object(&second, "third.test", true).await?;
    wait_for_object(&second, "other.test", true).await?;
    cluster.run(&["delete", "destinationrule", "b", "-n", "test"], "").await?;
    wait_for_object(&second, "other.test", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubernetes_source_survives_a_restart_of_the_api_server() {
    over_kubernetes().await.unwrap_or_else(|error| panic!("{error}"));
}
