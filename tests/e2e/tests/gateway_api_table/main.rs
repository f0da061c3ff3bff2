//! All matches and filters of HTTPRoutes and GRPCRoutes over HTTP/1.1, HTTP/2, HTTP/3 and gRPC, with a real Envoy. The cases are data.

mod cases;

use std::fmt::Write as _;
use std::net::SocketAddr;

use e2e::client::{Client, Upstream};
use e2e::objects::static_entry;
use e2e::tls::Authority;
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Envoy, Http2, Protocol, Result, free_port, http, wait_for};

use cases::{CASES, Case};

const DOMAIN: &str = "example.com";
/// The number of requests that show which share is mirrored.
const MIRRORED: u64 = 40;
/// Backends of HTTPRoutes. Those of GRPCRoutes are the same servers with another protocol ([`of_calls`]).
const BACKENDS: [&str; 8] = ["v1", "v2", "v3", "flaky", "m1", "m2", "m3", "m4"];

/// A way to send requests.
enum Wire {
    /// HTTP/1.1, to this address.
    Http1(SocketAddr),
    /// HTTP/2, over this connection. gRPC calls, too.
    Http2(Http2),
}

/// A listener, and a way to it.
struct Way {
    name: &'static str,
    wire: Wire,
    scheme: &'static str,
    port: u16,
}

/// A gateway with the routes of all cases, and the backends.
struct Table {
    backends: Vec<Backend>,
    ways: Vec<Way>,
    gateway: Envoy,
    client: Client,
    _mesh: Mesh,
}

fn gateway(plain: u16, secure: u16) -> String {
    // The Service of the Gateway exposes the port for UDP, too, so that it serves HTTP/3.
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{ name: edge, namespace: test }}
spec:
  gatewayClassName: istio
  listeners:
  - {{ name: http, port: {plain}, protocol: HTTP }}
  - {{ name: https, port: {secure}, protocol: HTTPS, tls: {{ certificateRefs: [{{ name: cert }}] }} }}
---
apiVersion: v1
kind: Service
metadata: {{ name: edge-istio, namespace: test }}
spec:
  selector: {{ gateway.networking.k8s.io/gateway-name: edge }}
  ports: [{{ name: http, port: {plain} }}, {{ name: https, port: {secure} }}, {{ name: http3, port: {secure}, protocol: UDP }}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: edge-istio-1, namespace: test, labels: {{ kubernetes.io/service-name: edge-istio }} }}
addressType: IPv4
ports: [{{ name: http, port: {plain} }}, {{ name: https, port: {secure} }}, {{ name: http3, port: {secure}, protocol: UDP }}]
endpoints: [{{ addresses: [127.0.0.3] }}]
"
    )
}

fn secret((certificate, key): &(String, String)) -> String {
    let mut text = "apiVersion: v1\nkind: Secret\nmetadata: { name: cert, namespace: test }\nstringData:\n".to_owned();
    for (field, value) in [("tls.crt", certificate), ("tls.key", key)] {
        let _ = writeln!(text, "  {field}: |");
        value.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

/// The name of a backend for gRPC: `g1` is `v1`, and `n1` is `m1`.
fn of_calls(name: &str) -> String {
    name.replace('v', "g").replace('m', "n").replace("flaky", "unused")
}

/// The route of a case.
fn route(number: usize, case: &Case) -> String {
    let mut rules = case.rules.join(", ");
    for name in BACKENDS {
        for (name, port) in [(name.to_owned(), 80), (of_calls(name), 81)] {
            let reference = format!("group: networking.istio.io, kind: Hostname, name: {name}.test, port: {port}");
            rules = rules.replace(&format!("${name}"), &reference);
        }
    }
    let hosts: Vec<String> = case.hosts.iter().map(|host| format!("'{host}.{DOMAIN}'")).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {}\nmetadata: {{ name: case-{number}, namespace: test }}\n\
         spec: {{ parentRefs: [{{ name: edge }}], hostnames: [{}], rules: [{rules}] }}\n",
        case.kind,
        hosts.join(", "),
    )
}

impl Table {
    async fn start(protocol: Protocol) -> Result<Table> {
        let (plain, secure) = (free_port(), free_port());
        let authority = Authority::new("ours")?;
        let mut backends = Vec::new();
        let mut objects = vec![gateway(plain, secure), secret(&authority.sign(&format!("*.{DOMAIN}"))?)];
        for name in BACKENDS {
            let backend = Backend::start(name, name).await?;
            for (name, port, speaks) in [(name.to_owned(), 80, "HTTP"), (of_calls(name), 81, "GRPC")] {
                objects.push(static_entry(&name, &format!("{name}.test"), (port, speaks), backend.address()));
            }
            backends.push(backend);
        }
        objects.extend(CASES.iter().enumerate().map(|(number, case)| route(number, case)));
        let mesh = Mesh::start_with(&[("mesh.yaml", &objects.join("---\n"))], &["--http3", "on"]).await?;
        let gateway = mesh.edge(protocol, &[plain, secure]).await?;
        let client = Client::start(Upstream::Http3, secure, &format!("table.{DOMAIN}"), &authority.pem).await?;
        let (direct, through): (SocketAddr, SocketAddr) =
            (([127, 0, 0, 1], plain).into(), ([127, 0, 0, 1], client.port).into());
        let headers = [("host", "paths.example.com")];
        let asked =
            || async { http::get(through, "/", &headers).await.ok().filter(|answer| answer.status.is_success()) };
        wait_for("an answer over HTTP/3", PATIENCE, asked).await?;
        let ways = vec![
            Way { name: "HTTP/1.1", wire: Wire::Http1(direct), scheme: "http", port: plain },
            Way { name: "HTTP/2", wire: Wire::Http2(Http2::connect(direct).await?), scheme: "http", port: plain },
            Way { name: "HTTP/3", wire: Wire::Http2(Http2::connect(through).await?), scheme: "https", port: secure },
        ];
        Ok(Table { backends, ways, gateway, client, _mesh: mesh })
    }

    fn backend(&self, name: &str) -> Result<&Backend> {
        Ok(self.backends.iter().find(|backend| backend.version() == name).ok_or("no such backend")?)
    }

    /// Makes one exchange. Returns the differences.
    async fn exchange(&self, way: &Way, case: &Case, text: &str) -> Result<Vec<String>> {
        let text = text.replace("{port}", &way.port.to_string()).replace("{scheme}", way.scheme);
        let (asked, wanted) = text.split_once("->").ok_or("no expectation")?;
        let mut asked = asked.split_whitespace();
        let (method, path) = (asked.next().unwrap_or_default(), asked.next().unwrap_or_default());
        let mut host = case.hosts.first().copied().unwrap_or_default();
        let mut headers = Vec::new();
        let flaky = self.backend("flaky")?;
        flaky.fail_next(0);
        for (name, value) in asked.filter_map(|word| word.split_once(':')) {
            match name {
                "host" => host = value,
                "fail" => flaky.fail_next(value.parse()?),
                _ => headers.push((name, value)),
            }
        }
        let before = flaky.requests();
        let answer = way.send(method, &format!("{host}.{DOMAIN}"), path, &headers).await?;
        let tried = flaky.requests() - before;
        let differs = |word: &str| differs(word, &answer, tried);
        Ok(wanted.split_whitespace().filter_map(differs).collect())
    }

    /// The number of requests that each mirror got.
    fn mirrored(&self) -> Result<[u64; 4]> {
        let count = |name| Ok::<_, test_harness::run::Error>(self.backend(name)?.requests());
        Ok([count("m1")?, count("m2")?, count("m3")?, count("m4")?])
    }

    /// Sends requests that are mirrored, and compares the shares.
    async fn mirror(&self, way: &Way, method: &str, host: &str, path: &str) -> Result<()> {
        let before = self.mirrored()?;
        for _ in 0..MIRRORED {
            let answer = way.send(method, &format!("{host}.{DOMAIN}"), path, &[]).await?;
            assert_eq!(answer.header("x-version"), "v1", "{} {method} of mirrors", way.name);
        }
        let since = || self.mirrored().ok().map(|now| [0, 1, 2, 3].map(|at| now[at] - before[at]));
        let all = || async { since().filter(|counts| counts[0] == MIRRORED && counts[1] == MIRRORED) };
        let counts = wait_for("all mirrored requests", PATIENCE, all).await?;
        assert_eq!(counts[2], 0, "{} {method}: mirrored, though 0 %", way.name);
        assert!((5..36).contains(&counts[3]), "{} {method}: {} of {MIRRORED} mirrored", way.name, counts[3]);
        Ok(())
    }
}

impl Way {
    async fn send(&self, method: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> Result<http::Response> {
        match &self.wire {
            Wire::Http2(client) if method == "CALL" => client.call(host, path, headers, b"hello").await,
            Wire::Http2(client) => client.send(method.parse()?, host, path, headers, bytes::Bytes::new()).await,
            Wire::Http1(address) => {
                let headers: Vec<_> = headers.iter().copied().chain([("host", host)]).collect();
                http::send(*address, method.parse()?, path, &headers).await
            }
        }
    }

    /// Whether it can be used for a kind of routes.
    fn carries(&self, kind: &str) -> bool {
        kind == "HTTPRoute" || matches!(self.wire, Wire::Http2(_))
    }
}

/// The difference between a response and one word of what is expected.
fn differs(word: &str, answer: &http::Response, tried: u64) -> Option<String> {
    let (name, wanted) = word.split_once(':').unwrap_or(("", word));
    let seen = || answer.json().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let found = match (name, name.strip_prefix('>')) {
        ("", _) if wanted.parse::<u16>().is_ok() => answer.status.as_u16().to_string(),
        ("", _) => answer.header("x-version").to_owned(),
        ("grpc", _) => answer.grpc_status().map(|status| status.to_string()).unwrap_or_default(),
        ("tried", _) => tried.to_string(),
        (_, Some(field @ ("path" | "method"))) => text(&seen()[field]),
        // The authority of HTTP/2.
        (_, Some(header)) => text(&seen()["headers"][header]),
        (header, None) => answer.header(header).to_owned(),
    };
    (found != wanted).then(|| format!("{word}: {found:?}"))
}

both_protocols! {
    async fn every_match_and_filter_over_every_protocol(protocol) {
        let table = Table::start(protocol).await?;
        let mut failed = Vec::new();
        let mut made = 0;
        for way in &table.ways {
            for case in CASES.iter().filter(|case| way.carries(case.kind)) {
                for text in case.exchanges {
                    made += 1;
                    let differences = table.exchange(way, case, text).await?;
                    if !differences.is_empty() {
                        failed.push(format!("{} {}: {text}: {}", way.name, case.hosts[0], differences.join(", ")));
                    }
                }
            }
            table.mirror(way, "GET", "mirrors", "/").await?;
            if way.carries("GRPCRoute") {
                table.mirror(way, "CALL", "call-mirrors", "/shop.Stock/Get").await?;
            }
        }
        assert!(failed.is_empty(), "{} of {made} exchanges:\n{}", failed.len(), failed.join("\n"));
        assert!(table.client.envoy.stat("cluster.server.upstream_cx_http3_total").await? >= 1);
        assert!(table.gateway.stat("http.*downstream_cx_http3_total").await? >= 1);
        for rejected in ["listener_manager.lds.update_rejected", "http.*rds.*update_rejected"] {
            assert_eq!(table.gateway.stat(rejected).await.unwrap_or(0), 0, "{rejected}");
        }
    }
}
