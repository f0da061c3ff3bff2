//! A real Envoy that gets its certificate and its roots from the SDS server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Authority, NAME, Root, Workload, settings};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use test_harness::run::{Envoy, wait_for};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(60);

fn bootstrap(socket: &Path, api_type: &str) -> Value {
    let secret = |name: &str| {
        json!({ "name": name, "sds_config": { "resource_api_version": "V3", "initial_fetch_timeout": "1s", "api_config_source": {
            "api_type": api_type, "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "sds-grpc",
                "retry_policy": { "retry_back_off": { "base_interval": "0.05s", "max_interval": "0.5s" } } } }] } } })
    };
    let tls = json!({ "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": true,
        "common_tls_context": {
            "tls_certificate_sds_secret_configs": [secret("default")],
            "validation_context_sds_secret_config": secret("ROOTCA"),
        } });
    let http = json!({ "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "http_filters": [{ "name": "router", "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" } }],
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [
            { "match": { "prefix": "/" }, "direct_response": { "status": 204 } }] }] } });
    json!({
        "node": { "id": "sidecar~127.0.0.1~a.shop~shop.svc.cluster.local", "cluster": "a" },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "static_resources": {
            "clusters": [{ "name": "sds-grpc", "type": "STATIC", "connect_timeout": "1s",
                "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} } } },
                "load_assignment": { "cluster_name": "sds-grpc", "endpoints": [{ "lb_endpoints": [
                    { "endpoint": { "address": { "pipe": { "path": socket } } } }] }] } }],
            "listeners": [{ "name": "tls", "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
                "filter_chains": [{
                    "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": tls },
                    "filters": [{ "name": "http", "typed_config": http }] }] }],
        },
    })
}

/// A client with a certificate, which trusts a root.
struct Client(TlsConnector);

impl Client {
    fn new(root: &str, (chain, key): (String, String)) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        Client(TlsConnector::from(Arc::new(config)))
    }

    /// The certificate of the server, if it answers a request.
    async fn get(&self, address: SocketAddr) -> Option<CertificateDer<'static>> {
        let socket = TcpStream::connect(address).await.ok()?;
        let mut stream = self.0.connect(NAME.try_into().unwrap(), socket).await.ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let served = stream.get_ref().1.peer_certificates()?.first()?.clone().into_owned();
        answer.starts_with("HTTP/1.1 204").then_some(served)
    }
}

async fn listener(envoy: &Envoy) -> SocketAddr {
    let address = || async {
        let listeners = envoy.admin("/listeners?format=json").await.ok()?.json().ok()?;
        let socket = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
        format!("{}:{}", socket["address"].as_str()?, socket["port_value"]).parse().ok()
    };
    wait_for("the listener", PATIENCE, address).await.unwrap()
}

async fn follows_certificate_and_roots(api_type: &str) {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::start().await;
    // Certificates are renewed after two hundredths of their minute.
    let short = [("SECRET_GRACE_PERIOD_RATIO", "0.98"), ("SECRET_GRACE_PERIOD_RATIO_JITTER", "0")];
    let workload = Workload::start(settings(folder.path(), authority.address, &short)).await;
    let binary = test_harness::envoy(&mut |_| {}).unwrap();
    let envoy = Envoy::start_with(&binary, &bootstrap(workload.identity.socket().unwrap(), api_type)).await.unwrap();
    let address = listener(&envoy).await;
    let client = Client::new(&authority.root.pem, authority.root.certify());
    let first = wait_for("the first certificate", PATIENCE, || client.get(address)).await.unwrap();

    // While there are no certificates, the last one is served.
    authority.refuse(Some(Code::Unavailable));
    let requests = authority.seen(0).await.len();
    authority.seen(requests + 3).await;
    let kept = wait_for("an answer", PATIENCE, || client.get(address)).await.unwrap();
    let current = workload.identity.certificates().borrow().clone().unwrap();
    assert_eq!(kept, CertificateDer::from_pem_slice(current.chain.as_bytes()).unwrap());
    assert!(workload.metric("num_failed_outgoing_requests") >= 2.0);
    authority.refuse(None);
    let renewed = || async { client.get(address).await.filter(|served| *served != first && *served != kept) };
    wait_for("a renewed certificate", PATIENCE, renewed).await.unwrap();

    // A root that the mesh adds is accepted at once, and not after it is removed.
    let other = Root::new("two");
    let stranger = Client::new(&authority.root.pem, other.certify());
    assert!(stranger.get(address).await.is_none());
    workload.mesh.send_replace(Arc::new(vec![other.pem.clone()]));
    wait_for("the added root", PATIENCE, || stranger.get(address)).await.unwrap();
    workload.mesh.send_replace(Arc::default());
    let refused = || async { stranger.get(address).await.is_none().then_some(()) };
    wait_for("the removed root", PATIENCE, refused).await.unwrap();
    assert!(client.get(address).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_follows_certificate_and_roots() {
    follows_certificate_and_roots("GRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_follows_them_over_delta() {
    follows_certificate_and_roots("DELTA_GRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_starts_without_a_certificate_authority() {
    for api_type in ["GRPC", "DELTA_GRPC"] {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::start().await;
        authority.refuse(Some(Code::Unauthenticated));
        let workload = Workload::start(settings(folder.path(), authority.address, &[])).await;
        let binary = test_harness::envoy(&mut |_| {}).unwrap();
        let envoy =
            Envoy::start_with(&binary, &bootstrap(workload.identity.socket().unwrap(), api_type)).await.unwrap();
        let live = || async {
            let info = envoy.admin("/server_info").await.ok()?.json().ok()?;
            (info["state"] == "LIVE").then_some(())
        };
        wait_for("a proxy that has started", PATIENCE, live).await.unwrap();
        authority.refuse(None);
        let address = listener(&envoy).await;
        let client = Client::new(&authority.root.pem, authority.root.certify());
        wait_for("the certificate", PATIENCE, || client.get(address)).await.unwrap();
    }
}
