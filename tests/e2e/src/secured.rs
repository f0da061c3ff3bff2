//! Two workloads with sidecars that have certificates: a client, and a server `web` behind a listener of its `Sidecar`.

use std::net::SocketAddr;

use test_harness::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};

use crate::objects::networking;
use crate::tls::Authority;
use crate::{Mesh, PATIENCE, certified};

/// The hostname of the server.
pub const WEB: &str = "web.test";

/// The label of an endpoint that accepts mutual TLS, as a continuation of other labels.
const TAKES: &str = ", security.istio.io/tlsMode: istio";

/// Two workloads whose sidecars have certificates of one CA.
pub struct Secured {
    /// The control plane.
    pub mesh: Mesh,
    /// The CA that signed the certificates.
    pub authority: Authority,
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

impl Secured {
    /// Starts them with these additional files, and waits until both sidecars listen. The server uses the protocol of
    /// the service's port (`HTTP`, `TCP`, ...).
    pub async fn start(protocol: Protocol, speaks: &str, files: &[(&str, &str)]) -> Result<Secured> {
        let (authority, backend) = (Authority::new("mesh")?, Backend::start("v1", "web").await?);
        let (port, inbound) = (free_port(), free_port());
        let own = [
            ("web.yaml", service(port, speaks)),
            ("web-1.yaml", workload(inbound, "web", TAKES)),
            ("ingress.yaml", ingress(inbound, speaks, backend.address())),
        ];
        let own = own.iter().map(|(name, text)| (*name, text.as_str()));
        let files: Vec<(&str, &str)> = own.chain(files.iter().copied()).collect();
        let mesh = Mesh::start(&files).await?;
        let node = |name: &str, ip: &str| Node::sidecar(name, "test", ip, &[("app", name)]);
        let server = certified(&mesh, node("web", "127.0.0.1"), protocol, (&authority, "web")).await?;
        let client = certified(&mesh, node("client", "127.0.0.2"), protocol, (&authority, "client")).await?;
        server.wait_for_listener(([127, 0, 0, 1], inbound).into()).await?;
        client.wait_for_listener(([127, 0, 0, 1], port).into()).await?;
        Ok(Secured { mesh, authority, backend, server, client, port, inbound })
    }

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

    /// Waits until a client without a certificate is accepted, or no longer accepted.
    pub async fn takes_plain_text(&self, taken: bool) -> Result<()> {
        let reached = || async { (self.strangers_answer().await == taken).then_some(()) };
        let what = format!("strangers to be {}", if taken { "let in" } else { "kept out" });
        let result = wait_for(&what, PATIENCE, reached).await;
        self.explained(result).await
    }

    async fn strangers_answer(&self) -> bool {
        let address = ([127, 0, 0, 1], self.inbound).into();
        let answer = http::get(address, "/", &[("host", WEB)]).await;
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

/// A PeerAuthentication of the namespace; `spec` is YAML in flow style, without the braces.
pub fn peers(name: &str, spec: &str) -> String {
    networking("PeerAuthentication", name, spec).replace("networking.istio.io", "security.istio.io")
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
