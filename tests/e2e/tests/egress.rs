//! Requests to a service outside the mesh: through an egress gateway that originates TLS, directly, and with TLS that
//! the sidecar originates.

use std::net::SocketAddr;

use e2e::objects::{networking, service};
use e2e::tls::Authority;
use e2e::{Mesh, PATIENCE, both_protocols};
use test_harness::run::{Backend, Error, Node, Preamble, Relay, Result, free_port, http, wait_for};

const HOST: &str = "api.example.com";
const GATEWAY: &str = "egress.test.svc.cluster.local";
/// The address of the gateway's pod, on this machine.
const GATEWAY_IP: [u8; 4] = [127, 0, 0, 3];

/// Addresses and ports. The external service has a port for HTTP and one for HTTPS.
struct Ports {
    plain: u16,
    secure: u16,
    /// The port of the gateway's service, and the target port of its pod.
    gateway: (u16, u16),
}

/// The external service; `at` are the addresses of its ports.
fn outside(ports: &Ports, at: [SocketAddr; 2]) -> String {
    let [plain, secure] = at.map(|at| at.port());
    let spec = format!(
        "hosts: [{HOST}], location: MESH_EXTERNAL, resolution: STATIC, \
         ports: [{{ number: {}, name: http, protocol: HTTP }}, {{ number: {}, name: https, protocol: HTTPS }}], \
         endpoints: [{{ address: 127.0.0.1, ports: {{ http: {plain}, https: {secure} }} }}]",
        ports.plain, ports.secure
    );
    networking("ServiceEntry", "outside", &spec)
}

/// A DestinationRule that originates TLS to a port of the external service. Each request opens a connection, so that
/// TLS connections can be counted.
fn originate(port: u16, roots: &tempfile::NamedTempFile) -> String {
    let spec = format!(
        "host: {HOST}, trafficPolicy: {{ portLevelSettings: [{{ port: {{ number: {port} }}, \
         connectionPool: {{ http: {{ maxRequestsPerConnection: 1 }} }}, tls: {{ mode: SIMPLE, \
         sni: {HOST}, subjectAltNames: [{HOST}], caCertificates: {} }} }}] }}",
        roots.path().display()
    );
    networking("DestinationRule", "originate", &spec)
}

/// The gateway, its service, and the routes from sidecars to the gateway and from the gateway to the external service.
fn gateway(ports: &Ports) -> [(&'static str, String); 4] {
    let (number, target) = ports.gateway;
    let rule = format!("host: {GATEWAY}, trafficPolicy: {{ tls: {{ mode: DISABLE }} }}, subsets: [{{ name: api }}]");
    let server = format!(
        "selector: {{ app: egress }}, servers: [{{ port: {{ number: {number}, name: http, protocol: HTTP }}, hosts: [{HOST}] }}]"
    );
    let route = format!(
        "hosts: [{HOST}], gateways: [mesh, egress], http: [\
         {{ match: [{{ gateways: [mesh], port: {} }}], \
         route: [{{ destination: {{ host: {GATEWAY}, subset: api, port: {{ number: {number} }} }} }}] }}, \
         {{ match: [{{ gateways: [egress], port: {number} }}], \
         route: [{{ destination: {{ host: {HOST}, port: {{ number: {} }} }} }}] }}]",
        ports.plain, ports.secure
    );
    [
        ("gateway-service.yaml", service("egress", "198.19.0.20", ("http", number, target), &[GATEWAY_IP.into()])),
        ("gateway-rule.yaml", networking("DestinationRule", "egress", &rule)),
        ("gateway.yaml", networking("Gateway", "egress", &server)),
        ("route.yaml", networking("VirtualService", "outside", &route)),
    ]
}

/// Sends requests until one changes both counts as wanted: TLS connections, and requests at the gateway.
async fn wait_for_way(
    what: &str,
    ask: impl AsyncFn() -> Result<http::Response>,
    counts: impl AsyncFn() -> Result<(usize, u64)>,
    wanted: (bool, bool),
) -> Result<()> {
    let taken = || async {
        let before = counts().await.ok()?;
        let answer = ask().await.ok().filter(|answer| answer.header("x-version") == "v1")?;
        assert_eq!(answer.status, 200);
        let after = counts().await.ok()?;
        ((after.0 > before.0, after.1 > before.1) == wanted).then_some(())
    };
    wait_for(what, PATIENCE, taken).await
}

both_protocols! {
    async fn requests_leave_the_mesh_through_a_gateway_or_straight_and_secured(protocol) {
        let authority = Authority::new("outside")?;
        let roots = tempfile::NamedTempFile::new()?;
        std::fs::write(roots.path(), &authority.pem)?;
        let backend = Backend::start("v1", "outside").await?;
        let secured = Relay::start(Preamble::Tls(authority.server(&[HOST])?), backend.address()).await?;
        let ports = Ports { plain: free_port(), secure: free_port(), gateway: (free_port(), free_port()) };
        let at = [backend.address(), secured.address()];
        let (outside_text, rule) = (outside(&ports, at), originate(ports.secure, &roots));
        let gateway = gateway(&ports);
        let mut files: Vec<(&str, &str)> = gateway.iter().map(|(name, text)| (*name, text.as_str())).collect();
        files.extend([("outside.yaml", outside_text.as_str()), ("rule.yaml", &rule)]);
        let mesh = Mesh::start(&files).await?;
        let node = Node::gateway("egress", "test", "127.0.0.3", &[("app", "egress")]);
        let egress = mesh.envoy(&node, protocol).await?;
        let client = mesh.envoy(&Node::sidecar("client", "test", "127.0.0.2", &[("app", "client")]), protocol).await?;
        egress.wait_for_listener(([0, 0, 0, 0], ports.gateway.1).into()).await?;
        let address: SocketAddr = ([127, 0, 0, 1], ports.plain).into();
        client.wait_for_listener(address).await?;

        let ask = async || http::get(address, "/orders", &[("host", HOST)]).await;
        let counts = async || {
            let requests = egress.stat("^http.outbound_.*downstream_rq_completed$").await?;
            Ok::<_, Error>((secured.received().len(), requests))
        };
        wait_for_way("the way through the gateway", &ask, &counts, (true, true)).await?;
        let answer = ask().await?.json()?;
        assert_eq!((answer["path"].as_str(), answer["headers"]["host"].as_str()), (Some("/orders"), Some(HOST)));
        mesh.config.remove("route.yaml")?;
        wait_for_way("the way straight and in plain text", &ask, &counts, (false, false)).await?;
        // The HTTP port now leads to the TLS port of the server.
        mesh.config.put("rule.yaml", &originate(ports.plain, &roots))?;
        mesh.config.put("outside.yaml", &outside(&ports, [secured.address(), secured.address()]))?;
        wait_for_way("the way straight and secured", &ask, &counts, (true, false)).await?;
        assert!(secured.received().iter().all(|name| name == HOST), "{:?}", secured.received());
        // A server whose certificate does not match the name is not used.
        let other = Relay::start(Preamble::Tls(authority.server(&["other.example.com"])?), backend.address()).await?;
        mesh.config.put("outside.yaml", &outside(&ports, [other.address(), other.address()]))?;
        let refused = || async { ask().await.ok().filter(|answer| answer.status == 503).map(drop) };
        wait_for("a server with another name to be refused", PATIENCE, refused).await?;
    }
}
