//! What the operator of the demo writes: ordinary Istio resources.

use std::net::SocketAddr;

/// The namespace of everything in the demo.
pub(super) const NAMESPACE: &str = "demo";
/// The host name of the service.
pub(super) const HOST: &str = "shop.demo.svc.cluster.local";

/// The service, its versions, and the gateway's port.
pub(super) fn service(service_port: u16, gateway_port: u16) -> String {
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{ name: shop, namespace: {NAMESPACE} }}
spec:
  hosts: [{HOST}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{ number: {service_port}, name: http, protocol: HTTP }}]
  workloadSelector: {{ labels: {{ app: shop }} }}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{ name: shop, namespace: {NAMESPACE} }}
spec:
  host: {HOST}
  # The built-in service has no sidecar of its own that could end mutual TLS.
  trafficPolicy: {{ tls: {{ mode: DISABLE }}, loadBalancer: {{ simple: ROUND_ROBIN }} }}
  subsets:
  - {{ name: v1, labels: {{ version: v1 }} }}
  - {{ name: v2, labels: {{ version: v2 }} }}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {{ name: front, namespace: {NAMESPACE} }}
spec:
  selector: {{ app: gateway }}
  servers:
  - port: {{ number: {gateway_port}, name: http, protocol: HTTP }}
    bind: 127.0.0.1
    hosts: [{HOST}]
"
    )
}

/// The split between the versions, in percent of v2, for sidecars and the gateway alike.
pub(super) fn split(v2: u32, service_port: u16) -> String {
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{ name: shop, namespace: {NAMESPACE} }}
spec:
  hosts: [{HOST}]
  gateways: [mesh, front]
  http:
  - route:
    - destination: {{ host: {HOST}, subset: v1, port: {{ number: {service_port} }} }}
      weight: {}
    - destination: {{ host: {HOST}, subset: v2, port: {{ number: {service_port} }} }}
      weight: {v2}
",
        100 - v2
    )
}

/// One instance of a version of the service.
pub(super) fn instance(name: &str, version: &str, address: SocketAddr) -> String {
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {{ name: {name}, namespace: {NAMESPACE} }}
spec:
  address: {}
  ports: {{ http: {} }}
  labels: {{ app: shop, version: {version} }}
",
        address.ip(),
        address.port()
    )
}
