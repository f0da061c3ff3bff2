//! GRPCRoutes, TLSRoutes, TCPRoutes and UDPRoutes of the Gateway API, with a real Envoy.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use e2e::objects::static_entry;
use e2e::tls::{Authority, get};
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Http2, Result, free_port, http, wait_for};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const HOST: &str = "shop.example.com";
/// The time in which a client waits for an answer before it sends a datagram again.
const AGAIN: Duration = Duration::from_millis(200);

/// A Gateway with these listeners (YAML in flow style).
fn gateway(listeners: &[String]) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: edge, namespace: test }}\n\
         spec: {{ gatewayClassName: istio, listeners: [{}] }}\n",
        listeners.join(", ")
    )
}

/// A route at a listener; `spec` has its other fields.
fn route(kind: &str, name: &str, listener: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge, sectionName: {listener} }}], {spec} }}\n"
    )
}

/// A backend: the ServiceEntry `NAME.test`.
fn to(name: &str, port: u16, weight: u32) -> String {
    format!("{{ group: networking.istio.io, kind: Hostname, name: {name}.test, port: {port}, weight: {weight} }}")
}

fn secret(name: &str, (certificate, key): &(String, String)) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: test }}\ntype: kubernetes.io/tls\nstringData:\n"
    );
    for (field, value) in [("tls.crt", certificate), ("tls.key", key)] {
        text.push_str(&format!("  {field}: |\n"));
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// The number of connections, of those to this address, that each version answers. Refused connections have an empty name.
async fn shares(address: SocketAddr, connections: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..connections {
        let answer = http::get(address, "/", &[("host", HOST)]).await;
        let version = answer.map(|answer| answer.header("x-version").to_owned()).unwrap_or_default();
        *counts.entry(version).or_default() += 1;
    }
    counts
}

/// A server that answers each datagram with its name. It ends when it is dropped.
struct Datagrams {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Datagrams {
    async fn start(name: &'static str) -> Result<Datagrams> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let task = tokio::spawn(async move {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let answer = [name.as_bytes(), &buffer[..length]].concat();
                let _ = socket.send_to(&answer, from).await;
            }
        });
        Ok(Datagrams { address, task })
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer to a datagram from a new port. None if there is none.
async fn answer(port: u16, text: &str, attempts: usize) -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.ok()?;
    socket.connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let mut buffer = [0; 64];
    for _ in 0..attempts {
        socket.send(text.as_bytes()).await.ok()?;
        if let Ok(received) = tokio::time::timeout(AGAIN, socket.recv(&mut buffer)).await {
            return Some(String::from_utf8_lossy(&buffer[..received.ok()?]).into_owned());
        }
    }
    None
}

both_protocols! {
    async fn calls_are_routed_by_method(protocol) {
        let port = free_port();
        let (v1, v2) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
        let rules = format!(
            "hostnames: [{HOST}], rules: [{{ backendRefs: [{}] }}, \
             {{ matches: [{{ method: {{ service: shop.Cart, method: Add }} }}], backendRefs: [{}] }}, \
             {{ matches: [{{ method: {{ type: RegularExpression, service: 'shop[.]S.*' }}, headers: [{{ name: x-canary, value: 'yes' }}] }}], \
                backendRefs: [{}] }}, \
             {{ matches: [{{ method: {{ service: shop.Gone }} }}], backendRefs: [{{ name: gone, port: 80 }}] }}, \
             {{ matches: [{{ method: {{ service: shop.None }} }}] }}]",
            to("v1", 80, 1), to("v2", 80, 1), to("v2", 80, 1),
        );
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&[format!("{{ name: http, port: {port}, protocol: HTTP }}")])),
            ("v1.yaml", &static_entry("v1", "v1.test", (80, "GRPC"), v1.address())),
            ("v2.yaml", &static_entry("v2", "v2.test", (80, "GRPC"), v2.address())),
            ("route.yaml", &route("GRPCRoute", "shop", "http", &rules)),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[port]).await?;
        let client = Http2::connect(([127, 0, 0, 1], port).into()).await?;

        let answer = client.call(HOST, "/shop.Stock/Get", &[], b"how many?").await?;
        assert_eq!((answer.header("x-version"), answer.grpc_status()), ("v1", Some(0)));
        assert_eq!(answer.grpc_message(), b"how many?");
        assert_eq!(client.call(HOST, "/shop.Cart/Add", &[], b"").await?.header("x-version"), "v2");
        assert_eq!(client.call(HOST, "/shop.Cart/AddAll", &[], b"").await?.header("x-version"), "v1");
        let canary = client.call(HOST, "/shop.Stock/Get", &[("x-canary", "yes")], b"").await?;
        assert_eq!(canary.header("x-version"), "v2");
        for service in ["shop.Gone", "shop.None"] {
            let failed = client.call(HOST, &format!("/{service}/Get"), &[], b"").await?;
            assert_eq!(failed.grpc_status(), Some(14), "{service}: UNAVAILABLE");
        }
    }

    async fn tls_is_terminated_or_passed_through_by_server_name(protocol) {
        let authority = Authority::new("ours")?;
        let backend = Backend::start("v1", "one").await?;
        let (terminated, passed) = (free_port(), free_port());
        let refs = ["a", "b", "c"].map(|name| format!("{{ name: {name} }}")).join(", ");
        let listeners = [
            format!("{{ name: terminate, port: {terminated}, protocol: TLS, tls: {{ mode: Terminate, certificateRefs: [{refs}] }} }}"),
            format!("{{ name: pass, port: {passed}, protocol: TLS, hostname: '*.example.com', tls: {{ mode: Passthrough }} }}"),
        ];
        let at: SocketAddr = ([127, 0, 0, 1], terminated).into();
        let hosts = "hostnames: [a.example.com, b.example.com, c.example.com]";
        let rule = |name: &str, port: u16| format!("rules: [{{ backendRefs: [{}] }}]", to(name, port, 1));
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners)),
            ("web.yaml", &static_entry("web", "web.test", (80, "TCP"), backend.address())),
            ("behind.yaml", &static_entry("behind", "behind.test", (443, "TLS"), at)),
            ("open.yaml", &route("TLSRoute", "open", "terminate", &format!("{hosts}, {}", rule("web", 80)))),
            ("pass.yaml", &route("TLSRoute", "pass", "pass", &format!("hostnames: [a.example.com, c.example.com], {}", rule("behind", 443)))),
            ("a.yaml", &secret("a", &authority.sign("a.example.com")?)),
            ("b.yaml", &secret("b", &authority.sign("b.example.com")?)),
            ("c.yaml", &secret("c", &authority.sign("c.example.com")?)),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[terminated, passed]).await?;
        // The client checks the certificate, so that each host must have its own of the three.
        for (host, port) in [("a", terminated), ("b", terminated), ("c", terminated), ("a", passed), ("c", passed)] {
            let host = format!("{host}.example.com");
            let asked = || async {
                let answer = get(port, &host, &authority.pem, None).await.ok()?;
                answer.contains("x-version: v1").then_some(())
            };
            wait_for(&format!("an answer of {host} at {port}"), PATIENCE, asked).await?;
        }
        for (host, port) in [("b.example.com", passed), ("d.example.com", terminated)] {
            assert!(get(port, host, &authority.pem, None).await.is_err(), "no route has {host} at {port}");
        }
        // The hostname of a listener of its own is not served by the route of the wildcard.
        let refused = || async { get(passed, "c.example.com", &authority.pem, None).await.is_err().then_some(()) };
        let narrow = format!("{{ name: narrow, port: {passed}, protocol: TLS, hostname: c.example.com, tls: {{ mode: Passthrough }} }}");
        mesh.config.put("gateway.yaml", &gateway(&[&listeners[..], &[narrow]].concat()))?;
        wait_for("connections for another listener to be closed", PATIENCE, refused).await?;
        assert!(get(passed, "a.example.com", &authority.pem, None).await?.contains("x-version: v1"));
    }

    async fn weights_divide_connections(protocol) {
        let (even, closed) = (free_port(), free_port());
        let (v1, v2) = (Backend::start("v1", "one").await?, Backend::start("v2", "two").await?);
        let listeners = [
            format!("{{ name: weighted, port: {even}, protocol: TCP }}"),
            format!("{{ name: closed, port: {closed}, protocol: TCP }}"),
        ];
        let weighted = |one: u32, two: u32| route("TCPRoute", "weighted", "weighted", &format!(
            "rules: [{{ backendRefs: [{}, {}, {{ name: gone, port: 80, weight: 1 }}] }}]", to("v1", 80, one), to("v2", 80, two)
        ));
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners)),
            ("v1.yaml", &static_entry("v1", "v1.test", (80, "TCP"), v1.address())),
            ("v2.yaml", &static_entry("v2", "v2.test", (80, "TCP"), v2.address())),
            ("route.yaml", &weighted(5, 2)),
            ("closed.yaml", &route("TCPRoute", "closed", "closed", "rules: [{ backendRefs: [{ name: gone, port: 80 }] }]")),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[even, closed]).await?;
        let at: SocketAddr = ([127, 0, 0, 1], even).into();
        let counts = shares(at, 400).await;
        let share = |version: &str| counts.get(version).copied().unwrap_or_default();
        assert!((200..300).contains(&share("v1")) && (60..150).contains(&share("v2")), "{counts:?}");
        assert!((20..90).contains(&share("")), "connections to a backend that does not exist are closed: {counts:?}");
        assert_eq!(shares(([127, 0, 0, 1], closed).into(), 3).await, BTreeMap::from([(String::new(), 3)]));

        mesh.config.put("route.yaml", &route("TCPRoute", "weighted", "weighted", &format!(
            "rules: [{{ backendRefs: [{}] }}]", to("v2", 80, 1)
        )))?;
        let changed = || async { (shares(at, 10).await == BTreeMap::from([("v2".to_owned(), 10)])).then_some(()) };
        wait_for("all connections to go to the only backend", PATIENCE, changed).await?;
    }

    async fn datagrams_are_forwarded_and_sessions_divided(protocol) {
        let (single, several, dropped) = (free_port(), free_port(), free_port());
        let (a, b) = (Datagrams::start("a:").await?, Datagrams::start("b:").await?);
        let listeners = [("single", single), ("several", several), ("dropped", dropped)]
            .map(|(name, port)| format!("{{ name: {name}, port: {port}, protocol: UDP }}"));
        let rules = |backends: &[String]| format!("rules: [{{ backendRefs: [{}] }}]", backends.join(", "));
        let mesh = Mesh::start(&[
            ("gateway.yaml", &gateway(&listeners)),
            ("a.yaml", &static_entry("a", "a.test", (53, "UDP"), a.address)),
            ("b.yaml", &static_entry("b", "b.test", (53, "UDP"), b.address)),
            ("single.yaml", &route("UDPRoute", "single", "single", &rules(&[to("a", 53, 1)]))),
            ("several.yaml", &route("UDPRoute", "several", "several", &rules(&[to("a", 53, 3), to("b", 53, 1)]))),
            ("dropped.yaml", &route("UDPRoute", "dropped", "dropped", &rules(&["{ name: gone, port: 53 }".to_owned()]))),
        ]).await?;
        let _envoy = mesh.edge(protocol, &[single, several, dropped]).await?;
        let first = || async { answer(single, "hello", 1).await };
        assert_eq!(wait_for("an answer to a datagram", PATIENCE, first).await?, "a:hello");
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..200 {
            let answer = answer(several, "x", 10).await.ok_or("no answer")?;
            *counts.entry(answer).or_default() += 1;
        }
        let share = |name: &str| counts.get(name).copied().unwrap_or_default();
        assert!((110..180).contains(&share("a:x")) && share("a:x") + share("b:x") == 200, "{counts:?}");
        assert_eq!(answer(dropped, "x", 2).await, None);
    }
}
