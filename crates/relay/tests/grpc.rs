//! Real gRPC libraries that find the relay by its bootstrap file.
#![allow(clippy::unwrap_used)]

mod fake;

use std::path::Path;
use std::process::Stdio;

use fake::{PATIENCE, Running, rutter};
use serde_json::{Value, json};
use test_harness::grpc::Probe;
use test_harness::run::{ConfigDir, Control};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running probe.
struct Application {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Application {
    fn start(probe: &Probe, what: &str, of: &str, bootstrap: Option<&Path>) -> Application {
        let mut command = Command::new(&probe.program);
        command.args(&probe.arguments).args([what, of]).envs(probe.environment.clone());
        if let Some(bootstrap) = bootstrap {
            command.env("GRPC_XDS_BOOTSTRAP", bootstrap);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Application { input, output: BufReader::new(output).lines(), _child: child }
    }

    async fn says(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The servers that answered.
    async fn call(&mut self) -> Value {
        let ask = json!({"times": 1, "headers": {}, "timeout": 20.0});
        self.input.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
        self.says().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn applications_without_a_proxy_are_configured_through_the_relay() {
    let Some(rutter) = rutter() else {
        eprintln!("skipped: build rutter first, or set RUTTER_BIN");
        return;
    };
    let mut say = |line: &str| eprintln!("{line}");
    // Over the C library, which sends the socket's path as authority, and in Go.
    for probe in [test_harness::grpc::python(&mut say), test_harness::grpc::go(&mut say)] {
        configured(&rutter, probe.unwrap_or_else(|error| panic!("{error}"))).await;
    }
}

async fn configured(rutter: &Path, probe: Probe) {
    let mut server = Application::start(&probe, "serve", "one", None);
    let port = server.says().await["port"].clone();
    let config = ConfigDir::new().unwrap();
    let spec = json!({"hosts": ["echo.b.svc.cluster.local"], "ports": [{"number": 7070, "name": "grpc", "protocol": "GRPC"}],
        "resolution": "STATIC", "location": "MESH_INTERNAL", "endpoints": [{"address": "127.0.0.1", "ports": {"grpc": port}}]});
    let metadata = json!({"name": "echo", "namespace": "b"});
    let entry =
        json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec});
    config.put("a.yaml", &entry.to_string()).unwrap();
    let mut control = Control::start(rutter, config.path(), &[]).await.unwrap();
    let relay = Running::start(control.grpc(), |_| {});
    let node = json!({"id": "sidecar~127.0.0.1~a.b~b.svc.cluster.local", "metadata": {"NAMESPACE": "b", "INSTANCE_IPS": "127.0.0.1"}});
    let file = relay.directory.path().join("grpc.json");
    let bootstrap = relay::grpc_bootstrap::bootstrap(node, &relay.socket(), None);
    relay::grpc_bootstrap::write(&file, &bootstrap).unwrap();
    let mut client = Application::start(&probe, "call", "xds:///echo.b.svc.cluster.local:7070", Some(&file));
    let answered = client.call().await;
    assert_eq!(answered["answers"], json!({"one": 1}), "{answered}");
    // Calls go on while the control plane is away, and the stream is opened again.
    control.kill().await.unwrap();
    assert_eq!(client.call().await["answers"], json!({"one": 1}));
    control.begin().await.unwrap();
    fake::until("the stream", None, async || (*relay.relay.connected().borrow() > 0).then_some(())).await;
    assert_eq!(client.call().await["answers"], json!({"one": 1}));
}
