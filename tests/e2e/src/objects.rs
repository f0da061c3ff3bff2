//! Objects as operators write them, all in the namespace `test`.

use std::net::{IpAddr, SocketAddr};

/// An object of Istio's networking API; `spec` is YAML in flow style, without the braces.
pub fn networking(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: test }}\n\
         spec: {{ {spec} }}\n"
    )
}

/// A ServiceEntry of one host, one port (`NUMBER PROTOCOL`; its name is the protocol in lower case) and an endpoint.
pub fn static_entry(name: &str, host: &str, (port, protocol): (u16, &str), endpoint: SocketAddr) -> String {
    let port_name = protocol.to_lowercase();
    let spec = format!(
        "hosts: [{host}], resolution: STATIC, ports: [{{ number: {port}, name: {port_name}, protocol: {protocol} }}], \
         endpoints: [{{ address: {}, ports: {{ {port_name}: {} }} }}]",
        endpoint.ip(),
        endpoint.port()
    );
    networking("ServiceEntry", name, &spec)
}

/// The destination of a VirtualService's route: a port of a host.
pub fn to(host: &str, port: u16) -> String {
    format!("route: [{{ destination: {{ host: {host}, port: {{ number: {port} }} }} }}]")
}

/// A Kubernetes Service with one port (name, number, and number at the pods) and an EndpointSlice with the addresses of
/// its pods. The address may be `None`.
pub fn service(name: &str, address: &str, (port, number, target): (&str, u16, u16), pods: &[IpAddr]) -> String {
    let endpoints: Vec<String> =
        pods.iter().map(|ip| format!("{{ addresses: [{ip}], conditions: {{ ready: true }} }}")).collect();
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{ name: {name}, namespace: test }}
spec: {{ clusterIP: {address}, ports: [{{ name: {port}, port: {number}, targetPort: {target} }}] }}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: {name}-a, namespace: test, labels: {{ kubernetes.io/service-name: {name} }} }}
addressType: IPv4
ports: [{{ name: {port}, port: {target}, protocol: TCP }}]
endpoints: [{}]
",
        endpoints.join(", ")
    )
}
