//! The node of the test cluster: real pods, which are reachable through the addresses of their Service.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::cluster::{Namespace, shared_with_node};
use e2e::envoy_binary;
use test_harness::kubernetes::{ControlPlane, Image, Node, Settings};
use test_harness::run::{Result, http, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
/// The image of the pods.
const IMAGE: &str = "localhost/greeter:1";

/// An Envoy that answers with the name of its pod.
const ENVOY: &str = r#"
node: { id: greeter, cluster: greeter }
static_resources:
  listeners:
  - name: greeter
    address: { socket_address: { address: 0.0.0.0, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: greeter
          http_filters:
          - name: router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: { prefix: / }
                direct_response:
                  status: 200
                  body: { filename: /etc/hostname }
"#;

/// Two pods and their Service.
const MANIFEST: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: { name: greeter }
spec:
  replicas: 2
  selector: { matchLabels: { app: greeter } }
  template:
    metadata: { labels: { app: greeter } }
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: greeter
        image: localhost/greeter:1
        imagePullPolicy: Never
        readinessProbe: { httpGet: { path: /, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: greeter }
spec: { selector: { app: greeter }, ports: [{ port: 80, targetPort: 8080 }] }
";

/// Requests from a pod to the Service; its shell can open connections.
const ASK: &str =
    r#"exec 3<>/dev/tcp/$0/80; printf 'GET / HTTP/1.1\r\nhost: greeter\r\nconnection: close\r\n\r\n' >&3; cat <&3"#;

fn image() -> Result<Image> {
    let envoy = "/usr/bin/envoy";
    let image = Image::new(IMAGE).program(envoy_binary(), envoy)?.tool("bash")?.tool("cat")?;
    let envoy = [envoy, "-c", "/envoy.yaml", "--concurrency", "1", "-l", "warn"];
    Ok(image.file("/envoy.yaml", ENVOY.as_bytes(), 0o644).command(&envoy))
}

async fn pods_answer() -> Result<()> {
    let Some(cluster) = shared_with_node().await? else {
        return Ok(());
    };
    cluster.node.import(&image()?).await?;
    let space = Namespace::create(&cluster.plane, "greeter").await?;
    space.apply(MANIFEST).await?;
    if let Err(error) = space.kubectl(&["rollout", "status", "deployment/greeter", "--timeout=90s"], "").await {
        let pods = space.kubectl(&["describe", "pods"], "").await?;
        return Err(format!("{error}\n{pods}").into());
    }

    // From this machine, through the Service's address.
    let ip = space.kubectl(&["get", "service", "greeter", "-o", "jsonpath={.spec.clusterIP}"], "").await?;
    let address = SocketAddr::new(ip.parse()?, 80);
    let answers = || async {
        let answer = http::get(address, "/", &[]).await.ok()?;
        answer.text().starts_with("greeter-").then_some(())
    };
    wait_for("the Service to answer", PATIENCE, answers).await?;

    // A pod reaches the API at the address of the Service `kubernetes`.
    let api = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT && echo open";
    let said = space.kubectl(&["exec", "deployment/greeter", "--", "bash", "-c", api], "").await?;
    assert_eq!(said, "open\n");

    // From a pod: its own answers and those of the other pod.
    let names = space.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.name}"], "").await?;
    let names: Vec<&str> = names.split(' ').collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for other in &names {
        let asked = || async {
            let said = space.kubectl(&["exec", names[0], "--", "bash", "-c", ASK, &ip], "").await.ok()?;
            said.contains(&format!("\r\n\r\n{other}")).then_some(())
        };
        wait_for(&format!("an answer of {other}"), PATIENCE, asked).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_reachable_through_their_service() {
    pods_answer().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The network interfaces, routes, network namespaces and process groups of nodes on this machine.
fn traces(name: &str) -> Result<String> {
    let look =
        format!("ip -o link; ip route; ip netns; ls -d /sys/fs/cgroup/{name} /sys/fs/cgroup/*/{name} 2> /dev/null");
    let found = Command::new("sh").args(["-c", &look]).output()?;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    let lines = found.lines().filter(|line| line.contains(name));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

async fn node_goes() -> Result<()> {
    if let Some(missing) = test_harness::kubernetes::missing() {
        eprintln!("skipped: {missing}");
        return Ok(());
    }
    let settings = Settings { node: true, ..Settings::default() };
    let plane = ControlPlane::start(settings).await?;
    let node = Node::start(&plane).await?;
    let (name, pid) = (node.name(), node.pid().unwrap());
    assert_ne!(traces(&name)?, "");
    drop(node);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    drop(plane);
    // The kernel removes interfaces shortly after their namespace.
    let gone = || async { traces(&name).ok()?.is_empty().then_some(()) };
    wait_for("the traces of the node to go", PATIENCE, gone).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_leaves_nothing_behind() {
    node_goes().await.unwrap_or_else(|error| panic!("{error}"));
}
