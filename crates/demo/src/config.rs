//! The objects that the demo's operator writes: ordinary Istio resources.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// The namespace of the service and its proxies.
pub(super) const NAMESPACE: &str = "demo";
/// The host name of the service.
pub(super) const HOST: &str = "shop.demo.svc.cluster.local";

/// An object with its file name and API path.
pub(super) struct Manifest {
    /// The file name without extension.
    pub(super) file: String,
    pub(super) namespace: &'static str,
    /// The group and the plural in API paths, such as `virtualservices`; `None` for the namespace itself.
    plural: Option<(&'static str, &'static str)>,
    /// The kind on a command line, such as `virtualservice`.
    pub(super) singular: &'static str,
    pub(super) name: String,
    pub(super) text: String,
}

impl Manifest {
    /// A namespace.
    pub(super) fn namespace(name: &'static str) -> Manifest {
        Manifest {
            file: format!("namespace-{name}"),
            namespace: name,
            plural: None,
            singular: "namespace",
            name: name.to_owned(),
            text: format!("apiVersion: v1\nkind: Namespace\nmetadata: {{ name: {name} }}\n"),
        }
    }

    fn istio(plural: &'static str, singular: &'static str, name: &str, kind: &str, spec: &str) -> Manifest {
        Manifest::new(NAMESPACE, ("networking.istio.io", plural), singular, (kind, name), spec)
    }

    /// An object of a group of Istio; `spec` is YAML.
    pub(super) fn new(
        namespace: &'static str,
        (group, plural): (&'static str, &'static str),
        singular: &'static str,
        (kind, name): (&str, &str),
        spec: &str,
    ) -> Manifest {
        let text = format!(
            "apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{ name: {name}, namespace: {namespace} }}\n{spec}"
        );
        let file = format!("{singular}-{name}");
        Manifest { file, namespace, plural: Some((group, plural)), singular, name: name.to_owned(), text }
    }

    pub(super) fn path(&self) -> String {
        let namespace = format!("namespaces/{}", self.namespace);
        match self.plural {
            None => format!("/api/v1/{namespace}"),
            Some((group, plural)) => format!("/apis/{group}/v1/{namespace}/{plural}/{}", self.name),
        }
    }
}

/// The namespace, the service, its versions, and the gateway's port.
pub(super) fn service(service_port: u16, gateway_port: u16) -> [Manifest; 4] {
    [
        Manifest::namespace(NAMESPACE),
        Manifest::istio(
            "serviceentries",
            "serviceentry",
            "shop",
            "ServiceEntry",
            &format!(
                "\
spec:
  hosts: [{HOST}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{ number: {service_port}, name: http, protocol: HTTP }}]
  workloadSelector: {{ labels: {{ app: shop }} }}
"
            ),
        ),
        Manifest::istio(
            "destinationrules",
            "destinationrule",
            "shop",
            "DestinationRule",
            &format!(
                "\
spec:
  host: {HOST}
  # The built-in service has no sidecar of its own that could end mutual TLS.
  trafficPolicy: {{ tls: {{ mode: DISABLE }}, loadBalancer: {{ simple: ROUND_ROBIN }} }}
  subsets:
  - {{ name: v1, labels: {{ version: v1 }} }}
  - {{ name: v2, labels: {{ version: v2 }} }}
"
            ),
        ),
        Manifest::istio(
            "gateways",
            "gateway.networking.istio.io",
            "front",
            "Gateway",
            &format!(
                "\
spec:
  selector: {{ app: gateway }}
  servers:
  - port: {{ number: {gateway_port}, name: http, protocol: HTTP }}
    bind: 127.0.0.1
    hosts: [{HOST}]
"
            ),
        ),
    ]
}

/// The VirtualService that splits traffic between the versions, with `v2` percent for v2, for sidecars and the gateway.
pub(super) fn split(v2: u32, service_port: u16) -> Manifest {
    Manifest::istio(
        "virtualservices",
        "virtualservice",
        "shop",
        "VirtualService",
        &format!(
            "\
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
        ),
    )
}

/// A JSON patch that changes the split.
pub(super) fn shift(v2: u32) -> Value {
    let weight = |route: usize, value: u32| json!({"op": "replace", "path": format!("/spec/http/0/route/{route}/weight"), "value": value});
    json!([weight(0, 100 - v2), weight(1, v2)])
}

/// An instance (WorkloadEntry) of a version of the service.
pub(super) fn instance(name: &str, version: &str, address: SocketAddr) -> Manifest {
    Manifest::istio(
        "workloadentries",
        "workloadentry",
        name,
        "WorkloadEntry",
        &format!(
            "\
spec:
  address: {}
  ports: {{ http: {} }}
  labels: {{ app: shop, version: {version} }}
",
            address.ip(),
            address.port()
        ),
    )
}
