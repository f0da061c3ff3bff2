//! HTTP/3 through a gateway: one Envoy serves it, another one is the client.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use e2e::{both_protocols, envoy_binary, rutter_binary};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use test_harness::run::{Backend, ConfigDir, Control, Envoy, Node, free_port, http, wait_for};

/// The maximum time for a change on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The address that the gateway reports.
const GATEWAY: &str = "127.0.0.3";

/// An Envoy that listens for plaintext HTTP and calls the gateway over HTTP/3, trusting this certificate.
fn client(gateway: u16, roots: &str) -> (Value, u16) {
    let port = free_port();
    let address = |ip: &str, port: u16| json!({"socket_address": {"address": ip, "port_value": port}});
    let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.{name}");
    let manager = json!({
        "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "client",
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "gateway"}}],
        }]},
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": kind("filters.http.router.v3.Router")},
        }],
    });
    let listener = json!({
        "name": "plain",
        "address": address("127.0.0.1", port),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    });
    let context = json!({
        "sni": "a.example.com",
        "common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": roots}}},
    });
    let cluster = json!({
        "name": "gateway",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "gateway", "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": address("127.0.0.1", gateway)},
        }]}]},
        "transport_socket": {
            "name": "envoy.transport_sockets.quic",
            "typed_config": {
                "@type": kind("transport_sockets.quic.v3.QuicUpstreamTransport"),
                "upstream_tls_context": context,
            },
        },
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": kind("upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": {"http3_protocol_options": {}},
        }},
    });
    let bootstrap = json!({
        "admin": {"address": address("127.0.0.1", 0)},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    });
    (bootstrap, port)
}

/// The objects of the mesh. The gateway's Service also exposes the port for UDP.
fn objects(port: u16, backend: SocketAddr, (certificate, key): (&str, &str)) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{ name: front, namespace: test }}
spec:
  selector: {{ app: front }}
  servers:
  - port: {{ number: {port}, name: a, protocol: HTTPS }}
    hosts: [a.example.com]
    tls: {{ mode: SIMPLE, credentialName: a }}
---
apiVersion: v1
kind: Service
metadata: {{ name: front, namespace: test }}
spec:
  selector: {{ app: front }}
  ports: [{{ name: https, port: {port} }}, {{ name: http3, port: {port}, protocol: UDP }}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: front-1, namespace: test, labels: {{ kubernetes.io/service-name: front }} }}
addressType: IPv4
ports: [{{ name: https, port: {port} }}, {{ name: http3, port: {port}, protocol: UDP }}]
endpoints: [{{ addresses: [{GATEWAY}] }}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{ name: web, namespace: test }}
spec:
  hosts: [web.test]
  resolution: STATIC
  ports: [{{ number: 80, name: http, protocol: HTTP }}]
  endpoints: [{{ address: {}, ports: {{ http: {} }} }}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{ name: web, namespace: test }}
spec:
  hosts: [a.example.com]
  gateways: [front]
  http: [{{ route: [{{ destination: {{ host: web.test, port: {{ number: 80 }} }} }}] }}]
---
apiVersion: v1
kind: Secret
metadata: {{ name: a, namespace: test }}
stringData:
  tls.crt: |
{}  tls.key: |
{}",
        backend.ip(),
        backend.port(),
        indented(certificate),
        indented(key),
    )
}

both_protocols! {
    async fn a_request_over_http3_and_the_way_to_it(protocol) {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["a.example.com".to_owned()])?.self_signed(&key)?.pem();
        let backend = Backend::start("v1", "one").await?;
        let port = free_port();
        let config = ConfigDir::new()?;
        config.put("mesh.yaml", &objects(port, backend.address(), (&certificate, &key.serialize_pem())))?;
        let control = Control::start(rutter_binary(), config.path(), &["--http3", "on"]).await?;
        let node = Node::gateway("front", "test", GATEWAY, &[("app", "front")]);
        let gateway = Envoy::start(envoy_binary(), &node, protocol, &*control.socket()).await?;
        gateway.wait_for_listener(([0, 0, 0, 0], port).into()).await?;

        let (bootstrap, plain) = client(port, &certificate);
        let client = Envoy::start_with(envoy_binary(), &bootstrap).await?;
        let asked = || async {
            let answer = http::get(([127, 0, 0, 1], plain).into(), "/", &[("host", "a.example.com")]).await.ok()?;
            Some(answer).filter(|answer| answer.header("x-version") == "v1")
        };
        let answer = wait_for("an answer over HTTP/3", PATIENCE, asked).await?;
        assert_eq!(answer.header("alt-svc"), format!("h3=\":{port}\"; ma=86400"));
        assert!(client.stat("cluster.gateway.upstream_cx_http3_total").await? >= 1);
        assert!(gateway.stat("http.*downstream_cx_http3_total").await? >= 1);
        assert_eq!(gateway.stat("listener_manager.lds.update_rejected").await.unwrap_or(0), 0);
    }
}
