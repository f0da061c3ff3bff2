//! A client and a server `web` behind a listener of its `Sidecar`, both with sidecars.

use std::net::SocketAddr;

use test_harness::run::{Backend, Envoy, Node, Result, free_port, http, wait_for};

use crate::objects::networking;
use crate::{Mesh, PATIENCE};

/// The hostname of the server.
pub const WEB: &str = "web.test";

/// The label of an endpoint that accepts mutual TLS, as a continuation of other labels.
const TAKES: &str = ", security.istio.io/tlsMode: istio";

/// Two workloads.
#[derive(Debug)]
pub struct Pair {
    /// The control plane.
    pub mesh: Mesh,
    /// The server's application.
    pub backend: Backend,
    /// Its sidecar.
    pub server: Envoy,
    /// The client's sidecar.
    pub client: Envoy,
    /// The address at which the client's application calls the server.
    pub port: u16,
    /// The address at which the server's sidecar accepts connections.
    pub inbound: u16,
}

/// The server's application and the ports, before the sidecars run.
pub(crate) struct Plan {
    pub(crate) backend: Backend,
    pub(crate) port: u16,
    pub(crate) inbound: u16,
    /// The configuration files with their names.
    pub(crate) files: [(&'static str, String); 3],
}

impl Plan {
    /// Starts the application. It uses the protocol of the service's port (`HTTP`, `TCP`, ...).
    pub(crate) async fn new(speaks: &str) -> Result<Plan> {
        let backend = Backend::start("v1", "web").await?;
        let (port, inbound) = (free_port(), free_port());
        let files = [
            ("web.yaml", service(port, speaks)),
            ("web-1.yaml", workload(inbound, "web", TAKES)),
            ("ingress.yaml", ingress(inbound, speaks, backend.address())),
        ];
        Ok(Plan { backend, port, inbound, files })
    }

    /// The own files and these.
    pub(crate) fn with<'a>(&'a self, files: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = self.files.iter().map(|(name, text)| (*name, text.as_str()));
        own.chain(files.iter().copied()).collect()
    }

    /// The node of the server or of the client.
    pub(crate) fn node(name: &str) -> Node {
        let ip = if name == "web" { "127.0.0.1" } else { "127.0.0.2" };
        Node::sidecar(name, "test", ip, &[("app", name)])
    }

    /// Waits until both sidecars listen.
    pub(crate) async fn run(self, mesh: Mesh, server: Envoy, client: Envoy) -> Result<Pair> {
        server.wait_for_listener(([127, 0, 0, 1], self.inbound).into()).await?;
        client.wait_for_listener(([127, 0, 0, 1], self.port).into()).await?;
        Ok(Pair { mesh, backend: self.backend, server, client, port: self.port, inbound: self.inbound })
    }
}

impl Pair {
    /// The address at which the client's application calls the server.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Sends a request of the client's application.
    pub async fn get(&self) -> Result<http::Response> {
        http::get(self.address(), "/", &[("host", WEB)]).await
    }

    /// The caller that the server's application sees for a request of the client: the certificate in the header of its
    /// sidecar, empty for plaintext. `None` while requests fail.
    pub async fn caller(&self) -> Option<String> {
        said(&self.get().await.ok()?)
    }

    /// Waits until the server's application sees this caller (a part of the header; empty for plaintext).
    pub async fn is_called_by(&self, caller: &str) -> Result<()> {
        let reached = || async {
            let said = self.caller().await?;
            let fits = said.contains(caller) && said.is_empty() == caller.is_empty();
            fits.then_some(())
        };
        let result = wait_for(&format!("a call by `{caller}`"), PATIENCE, reached).await;
        self.explained(result).await
    }

    /// The address of the server's sidecar.
    pub fn entrance(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.inbound).into()
    }

    /// Waits until requests of the client fail as if the server was not there.
    pub async fn is_refused(&self) -> Result<()> {
        let refused = || async { self.get().await.ok().filter(|answer| answer.status.as_u16() == 503).map(drop) };
        let result = wait_for("a refusal", PATIENCE, refused).await;
        self.explained(result).await
    }

    /// Waits until a client without a certificate is accepted, or no longer accepted.
    pub async fn takes_plain_text(&self, taken: bool) -> Result<()> {
        let reached = || async { (self.strangers_answer().await == taken).then_some(()) };
        let what = format!("strangers to be {}", if taken { "let in" } else { "kept out" });
        let result = wait_for(&what, PATIENCE, reached).await;
        self.explained(result).await
    }

    async fn strangers_answer(&self) -> bool {
        let answer = http::get(self.entrance(), "/", &[("host", WEB)]).await;
        answer.is_ok_and(|answer| answer.header("x-version") == "v1")
    }

    /// Changes the server's WorkloadEntry: its service account, whether it accepts mutual TLS, and its network.
    pub fn enlist(&self, account: &str, taken: bool, network: &str) -> Result<()> {
        let mode = if taken { TAKES } else { ", security.istio.io/tlsMode: disabled" };
        let labels = format!("{mode}, topology.istio.io/network: '{network}'");
        self.mesh.config.put("web-1.yaml", &workload(self.inbound, account, &labels))
    }

    /// Adds the logs of both sidecars to the error of a result.
    async fn explained(&self, result: Result<()>) -> Result<()> {
        let Err(error) = result else { return Ok(()) };
        let answer = self.get().await.map(|answer| (answer.status, answer.text()));
        let (client, server) = (self.client.log()?, self.server.log()?);
        Err(format!("{error}; the last answer: {answer:?}\nclient: {client}\nserver: {server}").into())
    }
}

/// The caller's certificate as the server's application repeats it.
pub fn said(answer: &http::Response) -> Option<String> {
    let body = answer.status.is_success().then(|| answer.json())?.ok()?;
    let told = body["headers"]["x-forwarded-client-cert"].as_str();
    Some(told.unwrap_or_default().to_owned())
}

fn service(port: u16, speaks: &str) -> String {
    let spec = format!(
        "hosts: [{WEB}], location: MESH_INTERNAL, resolution: STATIC, \
         ports: [{{ number: {port}, name: main, protocol: {speaks} }}], workloadSelector: {{ labels: {{ app: web }} }}"
    );
    networking("ServiceEntry", "web", &spec)
}

fn workload(port: u16, account: &str, labels: &str) -> String {
    let spec = format!(
        "address: 127.0.0.1, ports: {{ main: {port} }}, serviceAccount: {account}, \
         labels: {{ app: web {labels} }}"
    );
    networking("WorkloadEntry", "web-1", &spec)
}

/// The server's own listener. It includes no services, because on one machine its listeners would conflict with the
/// client's.
fn ingress(port: u16, speaks: &str, application: SocketAddr) -> String {
    let spec = format!(
        "workloadSelector: {{ labels: {{ app: web }} }}, egress: [{{ hosts: [nowhere/*] }}], \
         ingress: [{{ port: {{ number: {port}, name: main, protocol: {speaks} }}, bind: 127.0.0.1, captureMode: NONE, \
         defaultEndpoint: '{application}' }}]"
    );
    networking("Sidecar", "web", &spec)
}
