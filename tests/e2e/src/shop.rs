//! The mesh of most tests: one service with versions, and a client with a sidecar.

use std::net::SocketAddr;

use test_harness::run::{Backend, Envoy, Node, Protocol, Result, Traffic, free_port, http};

use crate::Mesh;

/// The hostname of the service.
pub const HOST: &str = "shop.test.svc.cluster.local";

/// A service with versions, and a client with a sidecar.
#[derive(Debug)]
pub struct Shop {
    /// The control plane.
    pub mesh: Mesh,
    /// The client's sidecar.
    pub client: Envoy,
    /// The instances, in the order in which they were requested.
    pub instances: Vec<Backend>,
    /// The service's port, on which the sidecar listens.
    pub port: u16,
    speaks: String,
}

impl Shop {
    /// Starts the mesh with one instance for each of these versions, and with `route` as VirtualService. Waits until
    /// the sidecar listens.
    pub async fn start(protocol: Protocol, versions: &[&str], route: &str) -> Result<Shop> {
        Shop::with_policy(protocol, versions, route, "{ tls: { mode: DISABLE } }").await
    }

    /// As above, with this traffic policy for the service.
    pub async fn with_policy(protocol: Protocol, versions: &[&str], route: &str, policy: &str) -> Result<Shop> {
        Shop::speaking("HTTP", protocol, versions, route, policy).await
    }

    /// As above, with a port of this protocol.
    pub async fn speaking(
        speaks: &str,
        protocol: Protocol,
        versions: &[&str],
        route: &str,
        policy: &str,
    ) -> Result<Shop> {
        Shop::set_up((speaks, &[]), protocol, versions, route, policy).await
    }

    /// As above, with these flags for the control plane and an HTTP port.
    pub async fn with_flags(
        flags: &[&str],
        protocol: Protocol,
        versions: &[&str],
        route: &str,
        policy: &str,
    ) -> Result<Shop> {
        Shop::set_up(("HTTP", flags), protocol, versions, route, policy).await
    }

    async fn set_up(
        (speaks, flags): (&str, &[&str]),
        protocol: Protocol,
        versions: &[&str],
        route: &str,
        policy: &str,
    ) -> Result<Shop> {
        let port = free_port();
        let mut files = vec![
            ("service.yaml".to_owned(), service(port, speaks, policy)),
            ("route.yaml".to_owned(), virtual_service("[mesh]", route)),
        ];
        let mut instances = Vec::new();
        for (number, version) in versions.iter().enumerate() {
            let name = format!("shop-{number}");
            let backend = Backend::start(version, &name).await?;
            files.push((format!("{name}.yaml"), instance(&name, version, backend.address())));
            instances.push(backend);
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let mesh = Mesh::start_with(&files, flags).await?;
        let client = mesh.envoy(&Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]), protocol).await?;
        client.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
        Ok(Shop { mesh, client, instances, port, speaks: speaks.to_owned() })
    }

    /// The address to which the client sends requests for the service.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// The name of the cluster of a version, or of the whole service.
    pub fn cluster(&self, version: &str) -> String {
        format!("outbound|{}|{version}|{HOST}", self.port)
    }

    /// Replaces the VirtualService's list of HTTP routes, and waits until the client has it.
    pub async fn route(&self, route: &str) -> Result<()> {
        self.mesh.reroute(&self.client, "route.yaml", &virtual_service("[mesh]", route)).await
    }

    /// Replaces the service's traffic policy.
    pub fn policy(&self, policy: &str) -> Result<()> {
        let text = service(self.port, &self.speaks, policy);
        self.mesh.config.put("service.yaml", &text)
    }

    /// Adds or replaces an instance's entry in the configuration.
    pub fn enlist(&self, version: &str, backend: &Backend) -> Result<()> {
        let name = backend.instance();
        self.mesh.config.put(&format!("{name}.yaml"), &instance(name, version, backend.address()))
    }

    /// Removes an instance's entry.
    pub fn delist(&self, backend: &Backend) -> Result<()> {
        self.mesh.config.remove(&format!("{}.yaml", backend.instance()))
    }

    /// One request of the client.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<http::Response> {
        let headers: Vec<_> = headers.iter().copied().chain([("host", HOST)]).collect();
        http::get(self.address(), path, &headers).await
    }

    /// Steady traffic of the client.
    pub fn traffic(&self, rate: u32) -> Traffic {
        Traffic::start(self.address(), "/", &[("host", HOST)], rate, 10)
    }
}

/// The VirtualService of the shop with these gateways and HTTP routes (YAML in flow style).
pub fn virtual_service(gateways: &str, http: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: shop, namespace: test }}\n\
         spec: {{ hosts: [{HOST}], gateways: {gateways}, http: {http} }}\n"
    )
}

/// The objects of the shop except its VirtualService: the service, its policy, and these instances.
pub fn shop_service(port: u16, policy: &str, instances: &[&Backend]) -> String {
    let entries = instances
        .iter()
        .map(|backend| format!("---\n{}", instance(backend.instance(), backend.version(), backend.address())));
    service(port, "HTTP", policy) + &entries.collect::<String>()
}

fn service(port: u16, speaks: &str, policy: &str) -> String {
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {{ name: shop, namespace: test }}
spec:
  hosts: [{HOST}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{{ number: {port}, name: main, protocol: {speaks} }}]
  workloadSelector: {{ labels: {{ app: shop }} }}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{ name: shop, namespace: test }}
spec:
  host: {HOST}
  trafficPolicy: {policy}
  subsets:
  - {{ name: v1, labels: {{ version: v1 }} }}
  - {{ name: v2, labels: {{ version: v2 }} }}
  - {{ name: empty, labels: {{ version: none-such }} }}
"
    )
}

fn instance(name: &str, version: &str, address: SocketAddr) -> String {
    format!(
        "\
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {{ name: {name}, namespace: test }}
spec:
  address: {}
  ports: {{ main: {} }}
  labels: {{ app: shop, version: {version} }}
",
        address.ip(),
        address.port()
    )
}
