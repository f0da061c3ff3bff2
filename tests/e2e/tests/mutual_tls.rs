//! Mutual TLS between two sidecars with certificates, configured by PeerAuthentications and DestinationRules.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;

use e2e::objects::networking;
use e2e::secured::{Secured, WEB, peers, said};
use e2e::{PATIENCE, both_protocols, certified};
use test_harness::run::{Http2, Node, Protocol, Result, Traffic, free_port, http, wait_for};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The caller that the server's sidecar reports when the client calls.
const CLIENT: &str = "URI=spiffe://cluster.local/ns/test/sa/client";

fn rule(tls: &str) -> String {
    let spec = format!("host: {WEB}, trafficPolicy: {{ tls: {{ {tls} }} }}");
    networking("DestinationRule", "web", &spec)
}

both_protocols! {
    async fn proxies_speak_mutual_tls_without_being_asked(protocol) {
        // Each request uses a new connection, which follows the current state of the endpoint.
        let single = "host: web.test, trafficPolicy: { connectionPool: { http: { maxRequestsPerConnection: 1 } } }";
        let pair = Secured::start(protocol, "HTTP", &[("rule.yaml", &networking("DestinationRule", "web", single))]).await?;
        pair.is_called_by(CLIENT).await?;
        // Clients without a certificate are accepted, too, and so is a client whose sidecar treats the server as
        // plaintext.
        pair.takes_plain_text(true).await?;
        pair.enlist("web", false, "")?;
        pair.is_called_by("").await?;
        pair.enlist("web", true, "")?;
        pair.is_called_by(CLIENT).await?;
        // The server's certificate must match the identity of the endpoint.
        pair.enlist("somebody", true, "")?;
        wait_for("a refusal", PATIENCE, || async {
            pair.get().await.ok().filter(|answer| answer.status.as_u16() == 503)
        })
        .await?;
    }

    async fn what_a_workload_takes_changes_without_a_lost_request(protocol) {
        let pair = Secured::start(protocol, "HTTP", &[]).await?;
        pair.is_called_by(CLIENT).await?;
        let traffic = Traffic::start(pair.address(), "/", &[("host", WEB)], 300, 10);
        for _ in 0..3 {
            pair.mesh.config.put("peers.yaml", &peers("default", "mtls: { mode: STRICT }"))?;
            pair.takes_plain_text(false).await?;
            traffic.next(50).await?;
            pair.mesh.config.put("peers.yaml", &peers("default", "mtls: { mode: PERMISSIVE }"))?;
            pair.takes_plain_text(true).await?;
            traffic.next(50).await?;
        }
        // Switches to plaintext in the order that loses no request: clients first.
        pair.mesh.config.put("rule.yaml", &rule("mode: DISABLE"))?;
        pair.is_called_by("").await?;
        traffic.next(50).await?;
        pair.mesh.config.put("peers.yaml", &peers("default", "mtls: { mode: DISABLE }"))?;
        pair.mesh.config.remove("rule.yaml")?;
        traffic.next(100).await?;
        let counts = traffic.stop().await;
        assert_eq!(counts.errors, 0, "{counts:?}");
        pair.is_called_by("").await?;
    }
}

async fn modes() -> Result<()> {
    let pair =
        Secured::start(Protocol::Delta, "HTTP", &[("peers.yaml", &peers("default", "mtls: { mode: STRICT }"))]).await?;
    pair.is_called_by(CLIENT).await?;
    pair.takes_plain_text(false).await?;
    // A workload can be stricter than its namespace, and a port stricter than its workload.
    let own = |spec: &str| peers("web", &format!("selector: {{ matchLabels: {{ app: web }} }}, {spec}"));
    pair.mesh.config.put("own.yaml", &own("mtls: { mode: DISABLE }"))?;
    pair.takes_plain_text(true).await?;
    pair.is_called_by("").await?;
    let ports = |mode: &str, port: &str| {
        own(&format!("mtls: {{ mode: {mode} }}, portLevelMtls: {{ {}: {{ mode: {port} }} }}", pair.inbound))
    };
    pair.mesh.config.put("own.yaml", &ports("DISABLE", "STRICT"))?;
    pair.takes_plain_text(false).await?;
    pair.is_called_by(CLIENT).await?;
    pair.mesh.config.put("own.yaml", &ports("STRICT", "DISABLE"))?;
    pair.takes_plain_text(true).await?;
    pair.is_called_by("").await?;
    // Automatic mutual TLS can be disabled for the mesh.
    pair.mesh.config.put("own.yaml", &ports("STRICT", "PERMISSIVE"))?;
    pair.is_called_by(CLIENT).await?;
    let mesh = "apiVersion: mesh.istio.io/v1alpha1\nkind: MeshConfig\nspec: { enableAutoMtls: false }\n";
    pair.mesh.config.put("mesh.yaml", mesh)?;
    pair.is_called_by("").await?;
    pair.mesh.config.put("rule.yaml", &rule("mode: ISTIO_MUTUAL"))?;
    pair.is_called_by(CLIENT).await?;
    pair.mesh.config.put("rule.yaml", &rule("mode: ISTIO_MUTUAL, subjectAltNames: [somebody]"))?;
    let refused = || async { pair.get().await.ok().filter(|answer| answer.status.as_u16() == 503) };
    wait_for("a refusal", PATIENCE, refused).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_narrowest_policy_says_what_a_workload_takes() {
    modes().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The number of successful TLS handshakes in clusters or listeners with this name.
async fn handshakes(envoy: &test_harness::run::Envoy, of: &str) -> Result<u64> {
    envoy.stat(&format!("^{of}.*ssl.handshake$")).await
}

async fn other_protocols() -> Result<()> {
    let strict = peers("default", "mtls: { mode: STRICT }");
    let pair = Secured::start(Protocol::Delta, "TCP", &[("peers.yaml", &strict)]).await?;
    // To the sidecars this is TCP; the application happens to use HTTP.
    let request = format!("GET / HTTP/1.1\r\nhost: {WEB}\r\nconnection: close\r\n\r\n");
    let answered = || async {
        let mut stream = TcpStream::connect(pair.address()).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.contains("x-version: v1").then_some(())
    };
    wait_for("an answer over TCP", PATIENCE, answered).await?;
    assert!(handshakes(&pair.client, "cluster.outbound").await? > 0);
    assert!(handshakes(&pair.server, "listener").await? > 0);
    pair.takes_plain_text(false).await?;

    let pair = Secured::start(Protocol::Delta, "GRPC", &[("peers.yaml", &strict)]).await?;
    let called = || async {
        let client = Http2::connect(pair.address()).await.ok()?;
        let answer = client.call(WEB, "/test.Echo/Say", &[], b"hi").await.ok()?;
        (answer.grpc_status() == Some(0) && answer.grpc_message() == b"hi").then_some(client)
    };
    let client = wait_for("an answer over gRPC", PATIENCE, called).await?;
    let answer = client.get(WEB, "/", &[]).await?;
    assert!(said(&answer).is_some_and(|caller| caller.contains(CLIENT)), "{answer:?}");
    assert_eq!(answer.json()?["protocol"], "HTTP/2.0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_and_grpc_use_mutual_tls() {
    other_protocols().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn between_networks() -> Result<()> {
    let entrance = free_port();
    let networks = format!(
        "apiVersion: mesh.istio.io/v1alpha1\nkind: MeshNetworks\nspec:\n  networks:\n    far:\n      \
         gateways: [{{ address: 127.0.0.1, port: {entrance} }}]\n      endpoints: []\n"
    );
    let server = format!(
        "port: {{ number: {entrance}, name: tls, protocol: TLS }}, tls: {{ mode: AUTO_PASSTHROUGH }}, hosts: ['*.test']"
    );
    let gateway =
        networking("Gateway", "entrance", &format!("selector: {{ app: entrance }}, servers: [{{ {server} }}]"));
    let strict = peers("default", "mtls: { mode: STRICT }");
    let files = [("networks.yaml", networks.as_str()), ("gateway.yaml", &gateway), ("peers.yaml", &strict)];
    let pair = Secured::start(Protocol::Delta, "HTTP", &files).await?;
    // The server is in the other network now.
    let mut node = Node::gateway("entrance", "test", "127.0.0.4", &[("app", "entrance")]);
    node.metadata["NETWORK"] = "far".into();
    let envoy = certified(&pair.mesh, node, Protocol::Delta, (&pair.authority, "entrance")).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], entrance).into()).await?;
    pair.is_called_by(CLIENT).await?;
    let passed = || envoy.stat(r"^cluster.outbound_..*upstream_cx_total$");
    assert_eq!(passed().await?, 0);
    pair.enlist("web", true, "far")?;
    let gone_through = || async {
        let caller = pair.caller().await?;
        (caller.contains(CLIENT) && passed().await.ok()? > 0).then_some(())
    };
    wait_for("a call through the gateway", PATIENCE, gone_through).await?;
    // A client without a certificate sends no server name to route by.
    let address: SocketAddr = ([127, 0, 0, 1], entrance).into();
    assert!(http::get(address, "/", &[("host", WEB)]).await.is_err());
    // An endpoint that accepts plaintext only is not reachable from another network.
    pair.enlist("web", false, "far")?;
    let gone = || async { pair.get().await.ok().filter(|answer| answer.status.as_u16() == 503) };
    wait_for("the endpoint to go", PATIENCE, gone).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_gateways_pass_mutual_tls_through() {
    between_networks().await.unwrap_or_else(|error| panic!("{error}"));
}
