//! Captured traffic: an application without knowledge of the proxy, in a network namespace with iptables rules.

use std::net::IpAddr;
use std::process::Stdio;

use e2e::objects::service;
use e2e::{Namespace, Pod};
use test_harness::run::{Backend, Protocol, Result, http, wait_for};

/// The service's address, which exists only in the configuration.
const VIP: &str = "198.19.0.10";

fn files(backend: &Backend, application: IpAddr) -> Vec<(&'static str, String)> {
    let at = backend.address();
    let reviews = service("reviews", VIP, ("http", 80, at.port()), &[at.ip()]);
    let own = service("front", "198.19.0.11", ("http", 80, 8080), &[application]);
    vec![("reviews.yaml", reviews), ("front.yaml", own)]
}

/// An application that answers with its own header, on the target port of the pod's service.
const APPLICATION: &str = "\
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('x-application', 'yes')
        self.send_header('content-length', '0')
        self.end_headers()
    def log_message(self, *arguments): pass
http.server.HTTPServer(('', 8080), Answer).serve_forever()";

async fn captured(protocol: Protocol) -> Result<()> {
    let Some(namespace) = Namespace::or_skip("captured traffic was not tested")? else {
        return Ok(());
    };
    let backend = Backend::start_on(namespace.host.into(), "v1", "reviews-1").await?;
    let files = files(&backend, namespace.ip.into());
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let pod = Pod::start(namespace, protocol, &files).await?;

    // Outbound: by the service's address; the hostname decides the route.
    assert_eq!(pod.fetch(&format!("http://{VIP}/"))?, "200 v1 envoy");
    assert_eq!(backend.requests(), 1);
    // An address without a service is passed through, as is the default of the mesh.
    let direct = format!("http://{}/", backend.address());
    assert!(pod.fetch(&direct)?.starts_with("200 v1"), "passed through");

    // Inbound: the request reaches the application through its proxy.
    let mut command = pod.namespace.application(APPLICATION);
    let mut application = command.stdout(Stdio::null()).spawn()?;
    let address = (pod.namespace.ip, 8080).into();
    let answered = wait_for("the application behind its proxy", std::time::Duration::from_secs(20), || async {
        http::get(address, "/", &[]).await.ok().filter(|answer| answer.status == 200)
    })
    .await;
    application.kill()?;
    application.wait()?;
    let answer = answered?;
    assert_eq!((answer.header("x-application"), answer.header("server")), ("yes", "istio-envoy"));
    assert!(pod.envoy.stat("^http.inbound_.*downstream_rq_2xx$").await? >= 1);
    Ok(())
}

/// Sequentially, because both use the same namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captured_traffic_passes_the_proxy_in_both_directions() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        captured(protocol).await.unwrap_or_else(|error| panic!("{protocol:?}: {error}"));
    }
}
