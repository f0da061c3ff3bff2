//! Captured traffic: an application that knows nothing of the proxy, in a network namespace with iptables' redirection.

use std::process::Stdio;

use e2e::{Mesh, Namespace, envoy_binary};
use parts::run::{Backend, Envoy, Node, Protocol, Result, http, wait_for};

/// The service's address, which exists nowhere but in the configuration.
const VIP: &str = "198.19.0.10";

fn files(backend: &Backend, application: &str) -> Vec<(&'static str, String)> {
    let reviews = format!(
        "\
apiVersion: v1
kind: Service
metadata: {{ name: reviews, namespace: test }}
spec: {{ clusterIP: {VIP}, ports: [{{ name: http, port: 80, targetPort: 9080 }}] }}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: reviews-a, namespace: test, labels: {{ kubernetes.io/service-name: reviews }} }}
addressType: IPv4
ports: [{{ name: http, port: {}, protocol: TCP }}]
endpoints: [{{ addresses: [{}], conditions: {{ ready: true }} }}]
",
        backend.address().port(),
        backend.address().ip()
    );
    let own = format!(
        "\
apiVersion: v1
kind: Service
metadata: {{ name: front, namespace: test }}
spec: {{ clusterIP: 198.19.0.11, ports: [{{ name: http, port: 80, targetPort: 8080 }}] }}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{ name: front-a, namespace: test, labels: {{ kubernetes.io/service-name: front }} }}
addressType: IPv4
ports: [{{ name: http, port: 8080, protocol: TCP }}]
endpoints: [{{ addresses: [{application}], conditions: {{ ready: true }} }}]
"
    );
    vec![("reviews.yaml", reviews), ("front.yaml", own)]
}

/// Asks for a page and prints status, version and server.
fn fetch(url: &str) -> String {
    format!(
        "try: r = urllib.request.urlopen('{url}', timeout=20)\n\
         except urllib.error.HTTPError as e: r = e\n\
         print(r.status, r.headers.get('x-version'), r.headers.get('server'))"
    )
}

/// An application that answers with its own header, on the port that the pod's service names.
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
    let namespace = match Namespace::new()? {
        Ok(namespace) => namespace,
        Err(missing) => {
            eprintln!("SKIPPED: captured traffic was not tested: {missing}");
            return Ok(());
        }
    };
    let (host, ip) = (namespace.host.into(), namespace.ip.to_string());
    let backend = Backend::start_on(host, "v1", "reviews-1").await?;
    let files = files(&backend, &ip);
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mesh = Mesh::start_on(host, &files).await?;
    let mut node = Node::sidecar("front", "test", &ip, &[("app", "front")]);
    node.metadata["INTERCEPTION_MODE"] = "REDIRECT".into();
    let grpc = mesh.control.grpc();
    let envoy = Envoy::start_in_namespace(envoy_binary(), &node, protocol, grpc, (&namespace.name, &ip)).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], 15001).into()).await?;
    envoy.wait_for_listener(([0, 0, 0, 0], 15006).into()).await?;

    // Outbound: by the service's address; the name decides the route.
    let answer = namespace.python(&fetch(&format!("http://{VIP}/")))?;
    assert!(
        answer.starts_with("200 v1") && answer.trim().ends_with("envoy"),
        "{answer}"
    );
    assert_eq!(backend.requests(), 1);
    // An address that no service has is passed through, as the mesh's default says.
    let direct = format!("http://{}/", backend.address());
    assert!(
        namespace.python(&fetch(&direct))?.starts_with("200 v1"),
        "passed through"
    );

    // Inbound: the application sees a request that came through its proxy.
    let mut command = namespace.application(APPLICATION);
    let mut application = command.stdout(Stdio::null()).spawn()?;
    let address = (namespace.ip, 8080).into();
    let answered = wait_for(
        "the application behind its proxy",
        std::time::Duration::from_secs(20),
        || async {
            http::get(address, "/", &[])
                .await
                .ok()
                .filter(|answer| answer.status == 200)
        },
    )
    .await;
    application.kill()?;
    application.wait()?;
    let answer = answered?;
    assert_eq!(
        (answer.header("x-application"), answer.header("server")),
        ("yes", "istio-envoy")
    );
    assert!(envoy.stat("^http.inbound_.*downstream_rq_2xx$").await? >= 1);
    Ok(())
}

/// One after the other: both use the same namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_application_sends_and_receives_goes_through_its_proxy() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        captured(protocol)
            .await
            .unwrap_or_else(|error| panic!("{protocol:?}: {error}"));
    }
}
