//! HTTP/3 through a gateway: one Envoy serves it, another one is the client.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use e2e::client::{Client, Upstream};
use e2e::{both_protocols, envoy_binary, rutter_binary};
use rcgen::{CertificateParams, KeyPair};
use test_harness::run::{Backend, ConfigDir, Control, Envoy, Node, free_port, http, wait_for};

/// The maximum time for a change on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// The address that the gateway reports.
const GATEWAY: &str = "127.0.0.3";

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

        let client = Client::start(Upstream::Http3, port, "a.example.com", &certificate).await?;
        let asked = || async {
            let answer = http::get(([127, 0, 0, 1], client.port).into(), "/", &[("host", "a.example.com")]).await.ok()?;
            Some(answer).filter(|answer| answer.header("x-version") == "v1")
        };
        let answer = wait_for("an answer over HTTP/3", PATIENCE, asked).await?;
        assert_eq!(answer.header("alt-svc"), format!("h3=\":{port}\"; ma=86400"));
        assert!(client.envoy.stat("cluster.server.upstream_cx_http3_total").await? >= 1);
        assert!(gateway.stat("http.*downstream_cx_http3_total").await? >= 1);
        assert_eq!(gateway.stat("listener_manager.lds.update_rejected").await.unwrap_or(0), 0);
    }
}
