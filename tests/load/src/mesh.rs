//! The mesh: Kubernetes Services with EndpointSlices, as files, and the edits that are measured.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use parts::run::ConfigDir;

/// How large the mesh is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Services in all.
    pub services: usize,
    /// Ports of each.
    pub ports: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// Namespaces, among which services and proxies are spread.
    pub namespaces: usize,
}

/// A mesh in a directory.
#[derive(Debug)]
pub struct Mesh {
    /// The directory.
    pub config: ConfigDir,
    size: Size,
}

impl Mesh {
    /// Writes it: a file per service, one per service's endpoints, and one with a route.
    pub fn write(size: Size) -> Result<Mesh> {
        let config = ConfigDir::new().map_err(anyhow::Error::from_boxed)?;
        let mesh = Mesh { config, size };
        for service in 0..size.services {
            fs::write(mesh.file(&format!("service-{service}.yaml")), mesh.service(service))?;
            fs::write(
                mesh.file(&format!("endpoints-{service}.yaml")),
                mesh.endpoints(service, 0),
            )?;
        }
        mesh.route(90)?;
        Ok(mesh)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.config.path()
    }

    /// The namespace of a service or proxy.
    pub fn namespace(&self, number: usize) -> String {
        format!("ns-{}", number % self.size.namespaces)
    }

    /// Gives one endpoint of a service another address; `generation` says which.
    pub fn change_endpoint(&self, service: usize, generation: usize) -> Result<()> {
        self.put(
            &format!("endpoints-{service}.yaml"),
            &self.endpoints(service, generation),
        )
    }

    /// Sets the share, in percent, of one service's requests that stay with it; the others go to the next service.
    pub fn route(&self, share: usize) -> Result<()> {
        let (own, other) = (self.host(0), self.host(1));
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{ name: split, namespace: {} }}\n\
             spec:\n  hosts: [{own}]\n  http:\n  - route:\n\
             \x20   - {{ destination: {{ host: {own}, port: {{ number: 80 }} }}, weight: {share} }}\n\
             \x20   - {{ destination: {{ host: {other}, port: {{ number: 80 }} }}, weight: {} }}\n",
            self.namespace(0),
            100 - share
        );
        self.put("route.yaml", &text)
    }

    /// Adds a service with endpoints; `number` is beyond those that there are.
    pub fn add_service(&self, number: usize) -> Result<()> {
        let both = format!("{}---\n{}", self.service(number), self.endpoints(number, 0));
        self.put(&format!("service-{number}.yaml"), &both)
    }

    fn host(&self, service: usize) -> String {
        format!("svc-{service}.{}.svc.cluster.local", self.namespace(service))
    }

    fn service(&self, number: usize) -> String {
        let mut text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: svc-{number}, namespace: {} }}\nspec:\n  \
             clusterIP: 10.{}.{}.{}\n  selector: {{ app: svc-{number} }}\n  ports:\n",
            self.namespace(number),
            96 + number / 62_500,
            number / 250 % 250,
            number % 250 + 1
        );
        for port in 0..self.size.ports {
            let _ = writeln!(
                text,
                "  - {{ name: http-{port}, port: {}, targetPort: {} }}",
                80 + port,
                8080 + port
            );
        }
        text
    }

    fn endpoints(&self, service: usize, generation: usize) -> String {
        let mut text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  \
             name: svc-{service}-a\n  namespace: {}\n  labels: {{ kubernetes.io/service-name: svc-{service} }}\nports:\n",
            self.namespace(service)
        );
        for port in 0..self.size.ports {
            let _ = writeln!(text, "- {{ name: http-{port}, port: {}, protocol: TCP }}", 8080 + port);
        }
        text.push_str("endpoints:\n");
        for endpoint in 0..self.size.endpoints {
            let number = service * self.size.endpoints + endpoint;
            // Addresses of another block where an endpoint was replaced.
            let block = if endpoint == 0 { 10 + generation % 40 } else { 10 };
            let address = format!(
                "{block}.{}.{}.{}",
                128 + number / 62_500,
                number / 250 % 250,
                number % 250 + 1
            );
            let _ = writeln!(text, "- {{ addresses: [{address}], conditions: {{ ready: true }} }}");
        }
        text
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.path().join(name)
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        self.config.put(name, text).map_err(anyhow::Error::from_boxed)
    }
}
