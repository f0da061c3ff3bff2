//! Gateways between networks (`AUTO_PASSTHROUGH`): what they expose, and who is let in behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use e2e::guarded::{Ask, has, policy};
use e2e::issued::{Issued, Member};
use e2e::objects::networking;
use e2e::secured::{WEB, peers};
use test_harness::run::{Node, Protocol, Result, free_port};
use tokio::net::TcpListener;

/// A server that must not be reached.
struct Trap {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl Trap {
    async fn start() -> Result<Trap> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, connections) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let counter = connections.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        });
        Ok(Trap { address, connections })
    }

    /// A service whose only endpoint is this server; it accepts mutual TLS if `labels` say so.
    fn service(&self, host: &str, location: &str, labels: &str, more: &str) -> String {
        let name = host.replace('.', "-");
        let spec = format!(
            "hosts: [{host}], location: {location}, resolution: STATIC{more}, \
             ports: [{{ number: 80, name: tcp, protocol: TCP }}], \
             endpoints: [{{ address: {}, ports: {{ tcp: {} }}, labels: {{ {labels} }} }}]",
            self.address.ip(),
            self.address.port()
        );
        networking("ServiceEntry", &name, &spec)
    }
}

/// CVE-2021-31921: a gateway with `AUTO_PASSTHROUGH` let clients from outside reach services that it did not expose, and
/// ports without mutual TLS, where no policy can know the client.
async fn passthrough() -> Result<()> {
    let (entrance, trap) = (free_port(), Trap::start().await?);
    let server = format!(
        "port: {{ number: {entrance}, name: tls, protocol: TLS }}, tls: {{ mode: AUTO_PASSTHROUGH }}, hosts: ['*.test']"
    );
    let gateway =
        networking("Gateway", "entrance", &format!("selector: {{ app: entrance }}, servers: [{{ {server} }}]"));
    let mutual = "security.istio.io/tlsMode: istio";
    let elsewhere = trap.service("hidden.test", "MESH_INTERNAL", mutual, ", exportTo: ['.']");
    let traps = [
        elsewhere.replace("namespace: test", "namespace: other"),
        trap.service("nobody.test", "MESH_INTERNAL", mutual, ", exportTo: ['~']"),
        trap.service("private.corp", "MESH_INTERNAL", mutual, ""),
        trap.service("nottest", "MESH_INTERNAL", mutual, ""),
        trap.service("outside.test", "MESH_EXTERNAL", mutual, ""),
        trap.service("plain.test", "MESH_INTERNAL", "", ""),
    ]
    .join("---\n");
    let strict = peers("default", "mtls: { mode: STRICT }");
    let files = [("gateway.yaml", gateway.as_str()), ("traps.yaml", &traps), ("peers.yaml", &strict)];
    let pair = Issued::start(Protocol::Delta, "HTTP", &files, &[]).await?;
    pair.is_called_by("sa/client").await?;
    let control = &pair.mesh.control;
    let member = Member::join(control, "test", "entrance").await?;
    let node = Node::gateway("entrance", "test", "127.0.0.4", &[("app", "entrance")]);
    let envoy = member.envoy(control, node, Protocol::Delta).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], entrance).into()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], entrance).into();

    // The exposed service is reached, with the client's identity, and policies hold.
    let exposed = format!("outbound_.{}_._.{WEB}", pair.port);
    let (client, other) = (pair.caller.identity(), Member::join(control, "test", "other").await?.identity());
    let right = Ask::new("GET /").to(&exposed).by(&client);
    let answer = right.gets(address, 200).await?;
    assert!(answer.text.contains("URI=spiffe://cluster.local/ns/test/sa/client"), "{answer:?}");
    // The policy selects the gateway, too, which decrypts nothing and so knows no client.
    let from = "rules: [{ from: [{ source: { principals: [cluster.local/ns/test/sa/client] } }] }]";
    pair.mesh.config.put("policy.yaml", &policy("clients", from))?;
    has(&pair.server, "policy[clients]", true).await?;
    right.gets(address, 200).await?;
    Ask::new("GET /").to(&exposed).by(&other).gets(address, 403).await?;

    // Nothing else is, whichever server name the client sends.
    let names = ["hidden.test", "nobody.test", "private.corp", "nottest", "outside.test", "plain.test"];
    let hidden = names.map(|host| format!("outbound_.80_._.{host}"));
    let near = [
        format!("outbound_.{}_._.{WEB}", pair.inbound),
        format!("outbound_.{}_.v1_.{WEB}", pair.port),
        format!("inbound_.{}_._.{WEB}", pair.port),
        format!("x{exposed}"),
        format!("{exposed}.evil.test"),
        WEB.to_owned(),
        "blackholecluster".to_owned(),
        "xds-grpc".to_owned(),
        "sds-grpc".to_owned(),
    ];
    let before = pair.backend.requests();
    for name in hidden.iter().chain(&near) {
        let answer = Ask::new("GET /").to(name).by(&client).send(address).await?;
        assert_eq!(answer.status, 0, "{name}: {answer:?}");
    }
    // A client that does not offer the mesh's mutual TLS gets nowhere, either.
    for alpn in ["", "h2", "http/1.1", "istio2"] {
        let answer = Ask { alpn, ..right.clone() }.send(address).await?;
        assert_eq!(answer.status, 0, "{alpn}: {answer:?}");
    }
    assert_eq!(Ask::new("GET /").send(address).await?.status, 0, "plain text");
    assert_eq!((pair.backend.requests(), trap.connections.load(Ordering::SeqCst)), (before, 0));
    // The traps work: the gateway knows their endpoints, but opens no way to them.
    let clusters = envoy.admin("/clusters").await?.text();
    assert!(clusters.contains(&format!("outside.test::{}", trap.address)), "{clusters}");
    assert!(!clusters.contains("hidden.test") && !clusters.contains("nobody.test"), "{clusters}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cve_2021_31921_a_passthrough_gateway_reaches_only_what_it_exposes() {
    passthrough().await.unwrap_or_else(|error| panic!("{error}"));
}
