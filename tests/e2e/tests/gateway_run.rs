//! `rutter gateway run`: Rutter runs the Envoys of Gateways on this machine.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use e2e::issued::Member;
use e2e::objects::{networking, static_entry};
use e2e::secured::{peers, said};
use e2e::tls::{Authority, get};
use e2e::{done, envoy_binary, rutter, rutter_binary};
use serde_json::Value;
use tempfile::TempDir;
use test_harness::run::{Backend, Control, Node, Protocol, Result, Traffic, free_port, http, wait_for};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(60);
const API: &str = "apiVersion: gateway.networking.k8s.io/v1";
const HOST: &str = "shop.example.com";

/// A control plane with its own store.
struct Home {
    control: Control,
    kubeconfig: PathBuf,
    data: TempDir,
}

impl Home {
    async fn start() -> Result<Home> {
        let data = tempfile::tempdir()?;
        let control = Control::start_with_api(rutter_binary(), data.path(), &[]).await?;
        let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
        let home = Home { control, kubeconfig, data };
        home.apply("apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n").await?;
        Ok(home)
    }

    async fn apply(&self, objects: &str) -> Result<()> {
        done(&self.kubeconfig, &["apply", "-f", "-"], objects).await.map(drop)
    }

    async fn delete(&self, gateway: &str) -> Result<()> {
        done(&self.kubeconfig, &["delete", "gtw", gateway, "-n", "test"], "").await.map(drop)
    }

    async fn status(&self, gateway: &str) -> Result<Value> {
        let arguments = ["get", "gtw", gateway, "-n", "test", "-o", "json"];
        let object: Value = serde_json::from_str(&done(&self.kubeconfig, &arguments, "").await?)?;
        Ok(object["status"].clone())
    }

    /// Waits until the condition `Programmed` of a Gateway begins with a text: `STATUS REASON MESSAGE`.
    async fn wait_for(&self, gateway: &str, wanted: &str) -> Result<Value> {
        let reached = || async {
            let status = self.status(gateway).await.ok()?;
            programmed(&status).starts_with(wanted).then_some(status)
        };
        match wait_for(&format!("{gateway}: {wanted}"), PATIENCE, reached).await {
            Ok(status) => Ok(status),
            Err(error) => Err(format!("{error}: {}", self.status(gateway).await?).into()),
        }
    }

    /// Runs the gateways of the namespace, whose Envoys connect to the Unix socket.
    fn run(&self, flags: &[&str]) -> Result<Runner> {
        let socket = self.control.socket();
        self.run_with(&[&["--xds", &socket.to_string_lossy()], flags].concat())
    }

    /// Runs the gateways of the namespace.
    fn run_with(&self, flags: &[&str]) -> Result<Runner> {
        let log = self.data.path().join("gateways.log");
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(rutter_binary())
            .args(["gateway", "run", "-n", "test", "--drain", "5s", "--concurrency", "1", "--dir"])
            .arg(self.data.path().join("gateways"))
            .arg("--envoy")
            .arg(envoy_binary())
            .args(flags)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output))
            .kill_on_drop(true)
            .spawn()?;
        Ok(Runner { child, log })
    }
}

/// A running `rutter gateway run`.
struct Runner {
    child: Child,
    log: PathBuf,
}

impl Runner {
    /// The process of the Envoy of a Gateway; none if it does not run.
    fn envoy(&self, gateway: &str) -> Option<u32> {
        processes()
            .find(|(pid, arguments)| {
                arguments.contains(&format!("test.{gateway}.json")) && Some(parent(*pid)) == self.child.id()
            })
            .map(|(pid, _)| pid)
    }

    async fn wait_for_log(&self, text: &str) -> Result<()> {
        let logged = || async { fs::read_to_string(&self.log).ok()?.contains(text).then_some(()) };
        match wait_for(text, PATIENCE, logged).await {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}: {}", fs::read_to_string(&self.log)?).into()),
        }
    }

    /// Sends SIGTERM and waits for the end.
    async fn stop(&mut self) -> Result<ExitStatus> {
        signal("TERM", self.child.id().ok_or("it does not run")?).await?;
        Ok(tokio::time::timeout(PATIENCE, self.child.wait()).await??)
    }
}

/// The processes of this machine with their arguments.
fn processes() -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?)))
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

async fn signal(name: &str, pid: u32) -> Result<()> {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status().await?;
    if status.success() { Ok(()) } else { Err(format!("cannot send {name} to {pid}").into()) }
}

/// `STATUS REASON MESSAGE` of the condition `Programmed`.
fn programmed(status: &Value) -> String {
    let conditions = status["conditions"].as_array().map_or(&[][..], |list| list);
    let found = conditions.iter().find(|one| one["type"] == "Programmed").unwrap_or(&Value::Null);
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    format!("{} {} {}", text("status"), text("reason"), text("message"))
}

/// A Gateway with a listener at a port, and more of its specification.
fn gateway(name: &str, port: u16, more: &str) -> String {
    format!(
        "{API}\nkind: Gateway\nmetadata: {{ name: {name}, namespace: test }}\nspec:\n  gatewayClassName: istio\n  \
         listeners: [{{ name: http, port: {port}, protocol: HTTP }}]\n{more}"
    )
}

/// A route of a Gateway to a service.
fn route(gateway: &str, host: &str) -> String {
    format!(
        "{API}\nkind: HTTPRoute\nmetadata: {{ name: {gateway}, namespace: test }}\nspec: {{ parentRefs: [{{ name: {gateway} }}], \
         rules: [{{ backendRefs: [{{ group: networking.istio.io, kind: Hostname, name: {host}, port: 80 }}] }}] }}\n"
    )
}

fn all(objects: &[String]) -> String {
    objects.join("---\n")
}

/// The version of the service that answers.
async fn version(address: SocketAddr) -> Option<String> {
    Some(http::get(address, "/", &[("host", HOST)]).await.ok()?.header("x-version").to_owned())
}

async fn wait_for_version(address: SocketAddr, wanted: &str) -> Result<()> {
    let answered = || async { version(address).await.filter(|found| found == wanted).map(drop) };
    wait_for(&format!("{wanted} at {address}"), PATIENCE, answered).await
}

/// Two services, each behind its own Gateway.
async fn two(home: &Home, gateways: [(SocketAddr, &str); 2]) -> Result<[Backend; 2]> {
    let backends = [Backend::start("v1", "one").await?, Backend::start("v2", "two").await?];
    for ((name, (address, more)), backend) in ["edge", "side"].into_iter().zip(gateways).zip(&backends) {
        let host = format!("{name}.test");
        let entry = static_entry(name, &host, (80, "HTTP"), backend.address());
        home.apply(&all(&[entry, gateway(name, address.port(), more), route(name, &host)])).await?;
    }
    Ok(backends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_run_and_end_with_their_objects() -> Result<()> {
    let mut home = Home::start().await?;
    let (edge, side) = (loopback(1), loopback(1));
    let infrastructure = "  infrastructure: { labels: { team: blue } }\n";
    let _backends = two(&home, [(edge, infrastructure), (side, "")]).await?;
    home.wait_for("edge", "False NoResources").await?;
    let mut runner = home.run(&["--address", "127.0.0.1"])?;
    let status = home.wait_for("edge", "True Programmed").await?;
    assert_eq!(status["addresses"], serde_json::json!([{"type": "IPAddress", "value": "127.0.0.1"}]));
    home.wait_for("side", "True Programmed").await?;
    wait_for_version(edge, "v1").await?;
    wait_for_version(side, "v2").await?;
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], edge.port()));
    assert!(tokio::net::TcpStream::connect(elsewhere).await.is_err(), "it only listens at --address");
    let nodes = home.control.debug("/debug/syncz").await?.text();
    assert!(nodes.contains("edge-istio-"), "{nodes}");
    runner.wait_for_log("the Gateway is programmed").await?;

    // Another process for the same directory is refused.
    let mut second = home.run(&[])?;
    assert!(!tokio::time::timeout(PATIENCE, second.child.wait()).await??.success());
    second.wait_for_log("another `rutter gateway run` uses the directory").await?;

    // A crash of Envoy.
    let first = runner.envoy("edge").ok_or("it has no Envoy")?;
    signal("KILL", first).await?;
    let replaced = || async { runner.envoy("edge").filter(|pid| *pid != first).map(drop) };
    wait_for("another Envoy", PATIENCE, replaced).await?;
    runner.wait_for_log("Envoy failed").await?;
    wait_for_version(edge, "v1").await?;
    home.wait_for("edge", "True Programmed").await?;

    // Without the control plane, Envoys serve what they have.
    home.control.kill().await?;
    wait_for_version(side, "v2").await?;
    home.control.begin().await?;

    // Labels of the infrastructure are labels of the proxy; a change of them loses no request.
    let traffic = Traffic::start(edge, "/", &[("host", HOST)], 100, 4);
    let changed = infrastructure.replace("blue", "red");
    home.apply(&gateway("edge", edge.port(), &changed)).await?;
    runner.wait_for_log("a new Envoy takes over").await?;
    home.wait_for("edge", "True Programmed").await?;
    traffic.next(100).await?;
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");

    // A deleted Gateway ends its Envoy and no other; a new one of the same name runs again.
    home.delete("edge").await?;
    wait_for("the end of the Envoy", PATIENCE, || async { runner.envoy("edge").is_none().then_some(()) }).await?;
    assert_eq!(version(edge).await, None);
    assert_eq!(version(side).await.as_deref(), Some("v2"));
    home.apply(&gateway("edge", edge.port(), "")).await?;
    wait_for_version(edge, "v1").await?;
    home.wait_for("edge", "True Programmed").await?;

    assert!(runner.stop().await?.success());
    assert_eq!((version(edge).await, version(side).await), (None, None));
    let left: Vec<_> =
        fs::read_dir(home.data.path().join("gateways"))?.flatten().map(|file| file.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".json")), "{left:?}");
    home.wait_for("edge", "False NoResources").await?;
    Ok(())
}

/// A free port at a loopback address.
fn loopback(last: u8) -> SocketAddr {
    ([127, 0, 0, last], free_port()).into()
}

/// Waits until one of the two Gateways serves this port, and the other one reports that it does not.
async fn one_has_the_port(home: &Home, runner: &Runner, address: SocketAddr) -> Result<()> {
    let served = || async {
        let both = [home.status("edge").await.ok()?, home.status("side").await.ok()?];
        let both = both.map(|status| programmed(&status));
        let refused = format!(":{}': Address already in use", address.port());
        let count = |text: &str| both.iter().filter(|one| one.contains(text)).count();
        (count("True") == 1 && count(&refused) == 1).then(|| both[0].starts_with("True"))
    };
    match wait_for("one Gateway with the port", PATIENCE, served).await {
        Ok(is_edge) => wait_for_version(address, if is_edge { "v1" } else { "v2" }).await,
        Err(error) => {
            let statuses = [home.status("edge").await?, home.status("side").await?];
            Err(format!("{error}: {statuses:?}: {}", fs::read_to_string(&runner.log)?).into())
        }
    }?;
    runner.wait_for_log("different IP addresses in spec.addresses").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_with_one_port_need_different_addresses() -> Result<()> {
    let home = Home::start().await?;
    let edge = loopback(1);
    let _backends = two(&home, [(edge, ""), (edge, "")]).await?;
    let runner = home.run(&["--address", "127.0.0.1"])?;
    one_has_the_port(&home, &runner, edge).await?;
    // The same for Envoys that run, and get another port.
    let edge = loopback(1);
    home.apply(&all(&["edge", "side"].map(|name| gateway(name, edge.port(), "")))).await?;
    one_has_the_port(&home, &runner, edge).await?;

    let address = |last: u8| format!("  addresses: [{{ value: 127.0.0.{last} }}]\n");
    home.apply(&all(&[gateway("edge", edge.port(), &address(2)), gateway("side", edge.port(), &address(3))])).await?;
    for (name, last, expected) in [("edge", 2, "v1"), ("side", 3, "v2")] {
        wait_for_version(SocketAddr::from(([127, 0, 0, last], edge.port())), expected).await?;
        let shown = || async {
            let status = home.status(name).await.ok()?;
            let is_shown = status["addresses"][0]["value"] == format!("127.0.0.{last}");
            (is_shown && programmed(&status).starts_with("True Programmed")).then_some(())
        };
        wait_for(&format!("the address of {name} in its status"), PATIENCE, shown).await?;
    }

    // An address of another machine: the Gateway does not run, and says so.
    home.apply(&gateway("side", edge.port(), "  addresses: [{ value: 192.0.2.1 }]\n")).await?;
    home.wait_for("side", "False AddressNotUsable").await?;
    runner.wait_for_log("no address of spec.addresses is an address of this machine").await?;
    assert_eq!(version(SocketAddr::from(([127, 0, 0, 2], edge.port()))).await.as_deref(), Some("v1"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_that_was_left_behind_is_replaced() -> Result<()> {
    let home = Home::start().await?;
    let (edge, side) = (loopback(1), loopback(1));
    let _backends = two(&home, [(edge, ""), (side, "")]).await?;
    let mut runner = home.run(&["edge", "--address", "127.0.0.1"])?;
    wait_for_version(edge, "v1").await?;
    assert_eq!(version(side).await, None, "it was not selected");
    let bootstrap = home.data.path().join("bootstrap.json");
    fs::copy(home.data.path().join("gateways/test.edge.json"), &bootstrap)?;
    let envoy = runner.envoy("edge").ok_or("it has no Envoy")?;
    runner.child.kill().await?;
    let ended = || async { (!Path::new(&format!("/proc/{envoy}")).exists()).then_some(()) };
    wait_for("the end of Envoy with the process", PATIENCE, ended).await?;
    // Without hot restarts, Envoy outlives the process.
    let _left = Command::new(envoy_binary())
        .args(["--disable-hot-restart", "--concurrency", "1", "-l", "error", "-c"])
        .arg(&bootstrap)
        .kill_on_drop(true)
        .spawn()?;
    wait_for_version(edge, "v1").await?;
    let mut runner = home.run(&["edge", "--address", "127.0.0.1"])?;
    runner.wait_for_log("an Envoy of an earlier process still runs").await?;
    let replaced = || async { runner.envoy("edge").map(drop) };
    wait_for("an Envoy of the new process", PATIENCE, replaced).await?;
    wait_for_version(edge, "v1").await?;
    assert!(runner.stop().await?.success());
    assert_eq!(version(edge).await, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_arrive_over_the_socket_and_the_tls_port() -> Result<()> {
    let home = Home::start().await?;
    let (authority, backend) = (Authority::new("ours")?, Backend::start("v1", "one").await?);
    let (certificate, key) = authority.sign(HOST)?;
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: cert, namespace: test }}\ntype: kubernetes.io/tls\nstringData:\n  \
         tls.crt: |\n{}  tls.key: |\n{}",
        indented(&certificate),
        indented(&key)
    );
    let port = free_port();
    let listener =
        format!("{{ name: https, port: {port}, protocol: HTTPS, tls: {{ certificateRefs: [{{ name: cert }}] }} }}");
    let edge = format!(
        "{API}\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
         spec: {{ gatewayClassName: istio, listeners: [{listener}] }}\n"
    );
    let entry = static_entry("edge", "edge.test", (80, "HTTP"), backend.address());
    home.apply(&all(&[secret, entry, edge, route("edge", "edge.test")])).await?;
    let asked = || async {
        let answer = get(port, HOST, &authority.pem, None).await.ok()?;
        answer.contains("x-version: v1").then_some(())
    };
    let (socket, secure) = (home.control.socket(), home.control.secure().to_string());
    for flags in [["--xds", &*socket.to_string_lossy()], ["--secure-xds", &*secure]] {
        let mut runner = home.run_with(&flags)?;
        let status = home.wait_for("edge", "True Programmed").await?;
        let address = status["addresses"][0]["value"].as_str().unwrap_or_default();
        assert!(address.parse::<std::net::IpAddr>().is_ok(), "{status}");
        wait_for("an answer over TLS", PATIENCE, asked).await?;
        assert!(runner.stop().await?.success());
        home.wait_for("edge", "False NoResources").await?;
    }
    Ok(())
}

/// A workload with a sidecar that accepts mutual TLS only: its service, its endpoint and its own listener.
fn strict(inbound: u16, application: SocketAddr) -> [String; 4] {
    let service = "hosts: [web.test], location: MESH_INTERNAL, resolution: STATIC, ports: [{ number: 80, name: http, protocol: HTTP }], \
                   workloadSelector: { labels: { app: web } }";
    let endpoint = format!(
        "address: 127.0.0.1, ports: {{ http: {inbound} }}, serviceAccount: web, \
         labels: {{ app: web, security.istio.io/tlsMode: istio }}"
    );
    let sidecar = format!(
        "workloadSelector: {{ labels: {{ app: web }} }}, egress: [{{ hosts: [nowhere/*] }}], ingress: [{{ bind: 127.0.0.1, \
         port: {{ number: {inbound}, name: http, protocol: HTTP }}, captureMode: NONE, defaultEndpoint: '{application}' }}]"
    );
    [
        networking("ServiceEntry", "web", service),
        networking("WorkloadEntry", "web-1", &endpoint),
        networking("Sidecar", "web", &sidecar),
        peers("default", "mtls: { mode: STRICT }"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_with_a_certificate_reaches_strict_workloads() -> Result<()> {
    let home = Home::start().await?;
    let backend = Backend::start("v1", "web").await?;
    let (inbound, edge) = (free_port(), loopback(1));
    home.apply(&all(&strict(inbound, backend.address()))).await?;
    home.apply(&all(&[gateway("edge", edge.port(), ""), route("edge", "web.test")])).await?;
    let web = Member::join(&home.control, "test", "web").await?;
    let sidecar =
        web.envoy(&home.control, Node::sidecar("web", "test", "127.0.0.1", &[("app", "web")]), Protocol::Delta);
    let sidecar = sidecar.await?;
    let entrance = SocketAddr::from(([127, 0, 0, 1], inbound));
    sidecar.wait_for_listener(entrance).await?;
    let stranger = http::get(entrance, "/", &[("host", "web.test")]).await;
    assert!(stranger.is_err(), "the workload accepts plaintext: {stranger:?}");

    let secure = home.control.secure().to_string();
    let flags = ["--secure-xds", &secure, "--address", "127.0.0.1"];
    let called_by = async |account: &str| {
        let wanted = format!("URI=spiffe://cluster.local/ns/test/sa/{account}");
        let reached = || async {
            said(&http::get(edge, "/", &[("host", HOST)]).await.ok()?)
                .filter(|caller| caller.contains(&wanted))
                .map(drop)
        };
        let result = wait_for(&format!("a call by {account}"), PATIENCE, reached).await;
        result.map_err(|error| {
            format!("{error}: {}", fs::read_to_string(home.data.path().join("gateways.log")).unwrap_or_default())
        })
    };
    let mut runner = home.run_with(&flags)?;
    called_by("edge-istio").await?;
    home.wait_for("edge", "True Programmed").await?;
    // A changed bootstrap takes over without a lost request.
    let traffic = Traffic::start(edge, "/", &[("host", HOST)], 100, 4);
    home.apply(&gateway("edge", edge.port(), "  infrastructure: { labels: { team: red } }\n")).await?;
    runner.wait_for_log("a new Envoy takes over").await?;
    traffic.next(100).await?;
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    assert!(runner.stop().await?.success());

    // The next process uses the certificate, and needs no other token.
    let folder = home.data.path().join("gateways/test.edge.mesh");
    assert!(folder.join("cert-chain.pem").exists());
    let mut runner = home.run_with(&flags)?;
    called_by("edge-istio").await?;
    let tokens = fs::read_to_string(&runner.log)?.matches("wrote a token").count();
    assert_eq!(tokens, 1);

    // Another service account needs another certificate.
    let account = "metadata: { annotations: { gateway.istio.io/service-account: front }, name: edge";
    home.apply(&gateway("edge", edge.port(), "").replace("metadata: { name: edge", account)).await?;
    called_by("front").await?;
    home.delete("edge").await?;
    let removed = || async { (!folder.exists()).then_some(()) };
    wait_for("the end of the certificate", PATIENCE, removed).await?;
    assert!(runner.stop().await?.success());
    Ok(())
}

/// A ConfigMap with parameters, which give this label to proxies.
fn parameters(team: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: tuned, namespace: test }}\ndata:\n  service: 'spec: {{}}'\n  \
         deployment: 'spec: {{ replicas: 3, template: {{ metadata: {{ labels: {{ team: {team} }} }} }} }}'\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_objects_have_an_effect_or_are_reported() -> Result<()> {
    let home = Home::start().await?;
    let edge = loopback(1);
    let proxy = |concurrency: u8| {
        format!(
            "apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {{ name: edge, namespace: test }}\n\
             spec: {{ selector: {{ matchLabels: {{ team: blue }} }}, concurrency: {concurrency}, environmentVariables: {{ X: y }} }}\n"
        )
    };
    let reference = "  infrastructure: { parametersRef: { group: '', kind: ConfigMap, name: tuned } }\n";
    home.apply(&all(&[proxy(2), parameters("blue"), gateway("edge", edge.port(), reference)])).await?;
    let mut runner = home.run(&["--address", "127.0.0.1"])?;
    home.wait_for("edge", "True Programmed").await?;
    let envoy = runner.envoy("edge").ok_or("it has no Envoy")?;
    let arguments = fs::read_to_string(format!("/proc/{envoy}/cmdline"))?;
    assert!(arguments.contains("--concurrency\u{0}2\u{0}"), "{arguments}");
    for ignored in ["deployment.spec.replicas, service of ConfigMap tuned", "the variable X"] {
        runner.wait_for_log(ignored).await?;
    }
    home.apply(&proxy(3)).await?;
    runner.wait_for_log("take effect when it is started again").await?;
    home.apply(&parameters("red")).await?;
    runner.wait_for_log("a new Envoy takes over").await?;
    home.wait_for("edge", "True Programmed").await?;
    let nodes = fs::read_to_string(home.data.path().join("gateways/test.edge.json"))?;
    assert!(nodes.contains("\"team\": \"red\""), "{nodes}");
    assert!(runner.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_missing_envoy_is_an_error_with_a_remedy() -> Result<()> {
    let home = Home::start().await?;
    let parent = tempfile::tempdir()?;
    let folder = parent.path().join("envoys");
    let arguments = ["gateway", "run", "--envoy", "/nowhere/envoy", "--dir", &folder.to_string_lossy()];
    let output = rutter(&home.kubeconfig, &arguments, "").await?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("/nowhere/envoy was not found: install Envoy"), "{text}");
    assert!(!folder.exists(), "nothing is created");
    Ok(())
}
