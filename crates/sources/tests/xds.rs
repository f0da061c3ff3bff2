//! The xDS source against a control plane that the test plays: subscriptions, ACKs, NACKs and reconnects.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::task::{Context, Poll};
use std::time::Duration;

use config::ChangeSet;
use config::Kind;
use futures::StreamExt as _;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::istio::mcp::v1alpha1::{Metadata, Resource};
use protos::{any, pack_json};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use sources::xds::{Address, Node, Options, Tls, follow};
use sources::{ChangeSender, SourceChange};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, StreamingService};
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const ENTRY: &str = "networking.istio.io/v1/ServiceEntry";
const GATEWAY: &str = "networking.istio.io/v1/Gateway";

/// A connection as the test sees it.
struct Client {
    requests: mpsc::Receiver<DiscoveryRequest>,
    answers: mpsc::Sender<Result<DiscoveryResponse, Status>>,
}

impl Client {
    async fn request(&mut self) -> DiscoveryRequest {
        soon(self.requests.recv()).await.unwrap()
    }

    /// The subscriptions of a new connection, by type.
    async fn subscriptions(&mut self, count: usize) -> BTreeMap<String, DiscoveryRequest> {
        let mut all = BTreeMap::new();
        for _ in 0..count {
            let request = self.request().await;
            all.insert(request.type_url.clone(), request);
        }
        all
    }

    async fn answer(&self, type_url: &str, version: &str, hosts: &[(&str, &str)]) {
        let resource = |(name, host): &(&str, &str)| {
            let spec = json!({"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"});
            any(&Resource {
                metadata: Some(Metadata {
                    name: (*name).to_owned(),
                    version: version.to_owned(),
                    ..Metadata::default()
                }),
                body: Some(pack_json("istio.networking.v1alpha3.ServiceEntry", &spec).unwrap()),
            })
        };
        let response = DiscoveryResponse {
            version_info: version.to_owned(),
            nonce: format!("n{version}"),
            type_url: type_url.to_owned(),
            resources: hosts.iter().map(resource).collect(),
            ..DiscoveryResponse::default()
        };
        self.answers.send(Ok(response)).await.unwrap();
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("timed out")
}

/// Passes every stream to the test.
#[derive(Clone)]
struct Played(mpsc::Sender<Client>);

impl StreamingService<DiscoveryRequest> for Played {
    type Response = DiscoveryResponse;
    type ResponseStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let clients = self.0.clone();
        Box::pin(async move {
            let (seen, requests) = mpsc::channel(100);
            let (answers, outgoing) = mpsc::channel(100);
            let mut incoming = request.into_inner();
            tokio::spawn(async move {
                while let Ok(Some(request)) = incoming.message().await {
                    if seen.send(request).await.is_err() {
                        return;
                    }
                }
            });
            let _ = clients.send(Client { requests, answers }).await;
            Ok(Response::new(ReceiverStream::new(outgoing)))
        })
    }
}

struct Scene {
    clients: mpsc::Receiver<Client>,
    changes: mpsc::Receiver<SourceChange>,
    connections: mpsc::UnboundedReceiver<()>,
}

impl Scene {
    async fn begin() -> Scene {
        Scene::over(Server::builder(), None).await
    }

    /// Starts the source with these TLS settings against this server.
    async fn over(server: Server, tls: Option<Tls>) -> Scene {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, clients) = mpsc::channel(10);
        let (connected, connections) = mpsc::unbounded_channel();
        let incoming = TcpListenerStream::new(listener).inspect(move |_| {
            let _ = connected.send(());
        });
        tokio::spawn(server.serve_with_incoming(Routed(Played(arrived)), incoming));
        let node = Node {
            namespace: "mesh".into(),
            name: "rutter-0".into(),
            ip: "10.0.0.1".into(),
            revision: "canary".into(),
        };
        let address = Address { authority: address.to_string().into(), tls };
        let mut options = Options::new(address, node);
        options.kinds = vec![Kind::ServiceEntry, Kind::Gateway];
        options.wait = (Duration::from_millis(1), Duration::from_millis(10));
        let (sender, changes) = mpsc::channel(10);
        tokio::spawn(follow(options, ChangeSender::new(0, sender)));
        Scene { clients, changes, connections }
    }

    async fn client(&mut self) -> Client {
        soon(self.clients.recv()).await.unwrap()
    }

    async fn change(&mut self) -> ChangeSet {
        soon(self.changes.recv()).await.unwrap().change
    }
}

/// Routes every path to the service.
#[derive(Clone)]
struct Routed(Played);

impl Service<http::Request<tonic::body::Body>> for Routed {
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let played = self.0.clone();
        Box::pin(async move {
            let codec = ProstCodec::<DiscoveryResponse, DiscoveryRequest>::default();
            Ok(Grpc::new(codec).streaming(played, request).await)
        })
    }
}

fn names(change: &ChangeSet) -> Vec<&str> {
    change.upserts.values().map(|object| &*object.meta().name).collect()
}

#[tokio::test]
async fn the_source_subscribes_acknowledges_and_first_emits_a_complete_state() {
    let mut scene = Scene::begin().await;
    let mut client = scene.client().await;
    let subscriptions = client.subscriptions(2).await;
    let nodes: Vec<_> = subscriptions.values().filter_map(|request| request.node.clone()).collect();
    assert_eq!(nodes.len(), 1, "the node is sent once");
    let text = |name: &str| match &nodes[0].metadata.as_ref().unwrap().fields[name].kind {
        Some(protos::value::Kind::StringValue(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((text("GENERATOR"), text("ISTIO_REVISION")), ("api".to_owned(), "canary".to_owned()));
    assert_eq!(nodes[0].id, "sidecar~10.0.0.1~rutter-0.mesh~mesh.svc.cluster.local");
    client.answer(ENTRY, "1", &[("default/a", "a.com")]).await;
    let ack = client.request().await;
    assert_eq!((&*ack.version_info, &*ack.response_nonce, ack.error_detail), ("1", "n1", None));
    assert!(scene.changes.try_recv().is_err(), "no partial state may be emitted");
    client.answer(GATEWAY, "1", &[]).await;
    assert_eq!(names(&scene.change().await), ["a"]);
    client.answer(ENTRY, "2", &[("default/b", "b.com")]).await;
    let change = scene.change().await;
    assert_eq!((names(&change), change.deletes.len()), (vec!["b"], 1));
}

#[tokio::test]
async fn an_invalid_response_gets_a_nack_and_changes_nothing() {
    let mut scene = Scene::begin().await;
    let mut client = scene.client().await;
    client.subscriptions(2).await;
    client.answer(ENTRY, "1", &[("default/a", "a.com")]).await;
    client.answer(GATEWAY, "1", &[]).await;
    scene.change().await;
    client.subscriptions(2).await;
    client.answer(ENTRY, "2", &[("nameless", "a.com")]).await;
    let nack = client.request().await;
    assert_eq!((&*nack.version_info, &*nack.response_nonce), ("1", "n2"));
    assert!(nack.error_detail.unwrap().message.contains("nameless"));
    let change = scene.change().await;
    assert!(change.upserts.is_empty() && change.deletes.is_empty());
    assert!(change.diagnostics.values().flatten().any(|diagnostic| diagnostic.message.contains("nameless")));
}

#[tokio::test]
async fn a_reconnect_resumes_and_emits_only_changes() {
    let mut scene = Scene::begin().await;
    let mut client = scene.client().await;
    client.subscriptions(2).await;
    client.answer(ENTRY, "1", &[("default/a", "a.com"), ("default/b", "b.com")]).await;
    client.answer(GATEWAY, "1", &[]).await;
    scene.change().await;
    drop(client);
    let mut client = scene.client().await;
    let subscriptions = client.subscriptions(2).await;
    assert_eq!(subscriptions[ENTRY].version_info, "1");
    assert!(scene.changes.try_recv().is_err(), "an outage removes nothing");
    // An unchanged response, then a changed one: only the change is emitted.
    client.answer(ENTRY, "1", &[("default/a", "a.com"), ("default/b", "b.com")]).await;
    client.answer(ENTRY, "3", &[("default/b", "c.com")]).await;
    let change = scene.change().await;
    assert_eq!((names(&change), change.deletes.len()), (vec!["b"], 1));
}

/// A CA certificate, and a certificate that it signed for this name with its key, in PEM.
fn certificates(name: &str) -> (String, String, String) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    (signed.pem(), certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn tls_verifies_both_sides() {
    let (server_ca, server_certificate, server_key) = certificates("mesh.test");
    let (client_ca, client_certificate, client_key) = certificates("rutter.test");
    let server = || {
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(&server_certificate, &server_key))
            .client_ca_root(Certificate::from_pem(&client_ca));
        Server::builder().tls_config(config).unwrap()
    };
    // The CA certificate is in a file, the rest is inline.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &server_ca).unwrap();
    let good = Tls {
        ca: Some(file.path().to_str().unwrap().into()),
        identity: Some((client_certificate.into(), client_key.into())),
        server_name: Some("mesh.test".into()),
    };
    let mut scene = Scene::over(server(), Some(good.clone())).await;
    assert_eq!(scene.client().await.subscriptions(2).await.len(), 2);

    let stranger = certificates("rutter.test");
    let bad = [
        Tls { ca: Some(client_ca.as_str().into()), ..good.clone() },
        Tls { server_name: Some("other.test".into()), ..good.clone() },
        Tls { identity: Some((stranger.1.into(), stranger.2.into())), ..good },
    ];
    for tls in bad {
        let settings = format!("{tls:?}");
        let mut scene = Scene::over(server(), Some(tls)).await;
        // The source reconnects after every failed handshake, and never succeeds.
        for _ in 0..3 {
            soon(scene.connections.recv()).await.unwrap();
        }
        assert!(scene.clients.try_recv().is_err(), "{settings} is accepted");
    }
}
