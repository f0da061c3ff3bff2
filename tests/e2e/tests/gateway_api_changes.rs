//! Changes of Gateways and routes of the Gateway API under traffic lose no request, with a real Envoy.

use std::fmt::Write as _;
use std::net::SocketAddr;

use e2e::client::{Client, Upstream};
use e2e::objects::static_entry;
use e2e::tls::{Authority, Identity, get};
use e2e::{Mesh, PATIENCE, both_protocols, done, envoy_binary, rutter_binary};
use serde_json::Value;
use test_harness::run::{Backend, Control, Envoy, Node, Result, Traffic, free_port, wait_for};

const API: &str = "apiVersion: gateway.networking.k8s.io/v1";
const HOST: &str = "shop.example.com";
/// Requests per second of each client, and its connections.
const RATE: (u32, u32) = (500, 10);

/// The Gateway with these listeners (YAML in flow style).
fn gateway(listeners: &[String]) -> String {
    format!(
        "{API}\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\nspec: {{ gatewayClassName: istio, listeners: [{}] }}\n",
        listeners.join(", ")
    )
}

fn plain(name: &str, port: u16) -> String {
    format!("{{ name: {name}, port: {port}, protocol: HTTP }}")
}

fn secure(name: &str, port: u16, host: &str) -> String {
    format!(
        "{{ name: {name}, port: {port}, protocol: HTTPS, hostname: {host}, tls: {{ certificateRefs: [{{ name: cert }}] }} }}"
    )
}

/// An HTTPRoute of a host to these backends, each with its weight.
fn route(name: &str, host: &str, path: &str, backends: &[(&str, u32)]) -> String {
    let reference = |(name, weight): &(&str, u32)| {
        format!("{{ group: networking.istio.io, kind: Hostname, name: {name}.test, port: 80, weight: {weight} }}")
    };
    let backends: Vec<String> = backends.iter().map(reference).collect();
    format!(
        "{API}\nkind: HTTPRoute\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], hostnames: [{host}], \
         rules: [{{ matches: [{{ path: {{ value: {path} }} }}], backendRefs: [{}] }}] }}\n",
        backends.join(", ")
    )
}

fn secret((certificate, key): &Identity) -> String {
    let mut text = "apiVersion: v1\nkind: Secret\nmetadata: { name: cert, namespace: test }\nstringData:\n".to_owned();
    for (field, value) in [("tls.crt", certificate), ("tls.key", key)] {
        let _ = writeln!(text, "  {field}: |");
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

fn entry(name: &str, backend: &Backend) -> String {
    static_entry(name, &format!("{name}.test"), (80, "HTTP"), backend.address())
}

/// A change of a file, and the versions that answer afterwards.
enum Change {
    Put(&'static str, String, &'static [&'static str]),
    Remove(&'static str, &'static [&'static str]),
}

/// Waits until exactly these versions answer.
async fn answered(traffic: &Traffic, versions: &[&str]) -> Result<()> {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let counts = traffic.next(60).await?;
        if counts.by_version.keys().eq(versions) {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            return Err(format!("{versions:?} do not answer: {counts:?}").into());
        }
    }
}

both_protocols! {
    async fn changes_under_traffic_lose_no_request(protocol) {
        let (first, second) = (Authority::new("first")?, Authority::new("second")?);
        let (v1, v2, v3) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?, Backend::start("v3", "three").await?);
        let (open, closed, more) = (free_port(), free_port(), free_port());
        let listeners = [plain("http", open), secure("https", closed, HOST)];
        let with = |other: String| gateway(&[&listeners[..], &[other]].concat());
        let shop = |backends| route("shop", HOST, "/", backends);
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners)),
            ("cert.yaml", &secret(&first.sign(HOST)?)),
            ("v1.yaml", &entry("v1", &v1)),
            ("v2.yaml", &entry("v2", &v2)),
            ("shop.yaml", &shop(&[("v1", 1)])),
        ]).await?;
        let envoy = mesh.edge(protocol, &[open, closed]).await?;
        let trusted = first.pem.clone() + &second.pem;
        // New connections all the time, so that there are handshakes with each certificate.
        let client = Client::start(Upstream::Tls(20), closed, HOST, &trusted).await?;
        let start = |port: u16| Traffic::start(([127, 0, 0, 1], port).into(), "/a", &[("host", HOST)], RATE.0, RATE.1);
        let reached = || async { get(closed, HOST, &first.pem, None).await.ok().map(drop) };
        wait_for("an answer over TLS", PATIENCE, reached).await?;
        let all = [start(open), start(client.port)];

        let changes = [
            Change::Put("shop.yaml", shop(&[("v1", 1), ("v2", 1)]), &["v1", "v2"]),
            Change::Put("shop.yaml", shop(&[("v1", 0), ("v2", 1)]), &["v2"]),
            // A cluster that is new, and another one that is removed.
            Change::Put("v3.yaml", entry("v3", &v3), &["v2"]),
            Change::Put("shop.yaml", shop(&[("v3", 1)]), &["v3"]),
            Change::Remove("v2.yaml", &["v3"]),
            // Another route of the host, with a more specific path.
            Change::Put("other.yaml", route("other", HOST, "/a", &[("v1", 1)]), &["v1"]),
            Change::Remove("other.yaml", &["v3"]),
            // A route of another object takes over.
            Change::Put("next.yaml", route("successor", HOST, "/", &[("v1", 1)]), &["v3"]),
            Change::Remove("shop.yaml", &["v1"]),
            // The same service at another endpoint.
            Change::Put("v1.yaml", entry("v1", &v3), &["v3"]),
            Change::Put("v1.yaml", entry("v1", &v1), &["v1"]),
            // Listeners of other ports and hosts.
            Change::Put("gateway.yaml", with(plain("more", more)), &["v1"]),
            Change::Put("gateway.yaml", with(secure("more", closed, "other.example.com")), &["v1"]),
            Change::Put("gateway.yaml", gateway(&listeners), &["v1"]),
        ];
        for change in changes {
            let versions = match change {
                Change::Put(file, text, versions) => {
                    mesh.config.put(file, &text)?;
                    versions
                }
                Change::Remove(file, versions) => {
                    mesh.config.remove(file)?;
                    versions
                }
            };
            for traffic in &all {
                answered(traffic, versions).await?;
            }
        }
        mesh.config.put("cert.yaml", &secret(&second.sign(HOST)?))?;
        let renewed = || async { get(closed, HOST, &second.pem, None).await.ok().map(drop) };
        wait_for("the other certificate", PATIENCE, renewed).await?;
        assert!(get(closed, HOST, &first.pem, None).await.is_err(), "the old certificate is served");
        for traffic in all {
            traffic.next(100).await?;
            let counts = traffic.stop().await;
            assert_eq!(counts.errors, 0, "{counts:?}");
        }
        assert!(client.envoy.stat("cluster.server.ssl.handshake").await? > 20);
        assert_eq!(envoy.stat("listener_manager.lds.update_rejected").await.unwrap_or(0), 0);
    }
}

/// The number of routes that are attached and detached.
const MANY: usize = 1000;

/// The number of attached routes that the Gateway's status has.
async fn attached(kubeconfig: &std::path::Path) -> Result<u64> {
    let text = done(kubeconfig, &["get", "gtw", "edge", "-n", "test", "-o", "json"], "").await?;
    let object: Value = serde_json::from_str(&text)?;
    object["status"]["listeners"][0]["attachedRoutes"].as_u64().ok_or_else(|| format!("no status: {object}").into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_routes_are_attached_and_detached() -> Result<()> {
    let backend = Backend::start("v1", "one").await?;
    let data = tempfile::tempdir()?;
    let control =
        Control::start_with_api(rutter_binary(), data.path(), &["--api-requests-per-second", "100000"]).await?;
    let kubeconfig = control.kubeconfig().ok_or("it has no kubeconfig")?;
    let port = free_port();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: { name: test }\n".to_owned();
    let objects = [gateway(&[plain("http", port)]), entry("v1", &backend), route("shop", HOST, "/", &[("v1", 1)])];
    done(&kubeconfig, &["apply", "-f", "-"], &namespace).await?;
    done(&kubeconfig, &["apply", "-f", "-"], &objects.join("---\n")).await?;
    let node = Node::gateway("edge", "test", "127.0.0.3", &[("gateway.networking.k8s.io/gateway-name", "edge")]);
    let envoy = Envoy::start(envoy_binary(), &node, test_harness::run::Protocol::Delta, control.grpc()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    envoy.wait_for_listener(([0, 0, 0, 0], port).into()).await?;
    let traffic = Traffic::start(address, "/", &[("host", HOST)], RATE.0, RATE.1);
    traffic.next(50).await?;

    let many: Vec<String> = (0..MANY)
        .map(|at| route(&format!("many-{at}"), &format!("many-{at}.example.com"), "/", &[("v1", 1)]))
        .collect();
    let last = format!("many-{}.example.com", MANY - 1);
    let served = || async {
        let answer = test_harness::run::http::get(address, "/", &[("host", &last)]).await.ok()?;
        Some(answer.status.as_u16())
    };
    for (verb, count, status) in [("apply", MANY as u64 + 1, 200), ("delete", 1, 404)] {
        done(&kubeconfig, &[verb, "-f", "-"], &many.join("---\n")).await?;
        let counted = || async { attached(&kubeconfig).await.ok().filter(|now| *now == count) };
        wait_for(&format!("{count} attached routes"), PATIENCE, counted).await?;
        let as_wanted = || async { served().await.filter(|now| *now == status) };
        wait_for(&format!("{status} of the last route"), PATIENCE, as_wanted).await?;
    }
    let counts = traffic.stop().await;
    assert_eq!(counts.errors, 0, "{counts:?}");
    Ok(())
}
