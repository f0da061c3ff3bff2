//! The mesh's own TLS between two Envoys, each with an agent beside it that has its certificate.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::{Buf as _, Bytes, BytesMut};
use e2e::objects::{networking, to};
use e2e::tls::Authority;
use e2e::{Mesh, PATIENCE, envoy_binary};
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parts::run::{Backend, Envoy, Node, Protocol, Result, free_port, http, wait_for};
use protos::Message as _;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use serde_json::json;
use tokio::net::TcpListener;

/// What an agent has.
#[derive(Clone)]
struct Agent {
    certificate: String,
    key: String,
    roots: String,
}

impl Agent {
    /// The agent of a service account.
    fn of(authority: &Authority, account: &str) -> Result<Agent> {
        let (certificate, key) = authority.account(account)?;
        Ok(Agent {
            certificate,
            key,
            roots: authority.pem.clone(),
        })
    }

    fn secret(&self, name: &str) -> Secret {
        let inline = |text: &str| DataSource {
            specifier: Some(Specifier::InlineString(text.to_owned())),
            ..Default::default()
        };
        let content = match name {
            "ROOTCA" => Type::ValidationContext(CertificateValidationContext {
                trusted_ca: Some(inline(&self.roots)),
                ..Default::default()
            }),
            _ => Type::TlsCertificate(TlsCertificate {
                certificate_chain: Some(inline(&self.certificate)),
                private_key: Some(inline(&self.key)),
                ..Default::default()
            }),
        };
        Secret {
            name: name.to_owned(),
            r#type: Some(content),
        }
    }

    /// The answer to a request for secrets, framed as gRPC does it.
    fn answer(&self, request: &DiscoveryRequest) -> Bytes {
        let secrets = request
            .resource_names
            .iter()
            .map(|name| protos::any(&self.secret(name)));
        let response = DiscoveryResponse {
            version_info: "1".to_owned(),
            nonce: "1".to_owned(),
            type_url: request.type_url.clone(),
            resources: secrets.collect(),
            ..Default::default()
        };
        let message = protos::encode(&response);
        let mut framed = BytesMut::from(&[0][..]);
        framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(&message);
        framed.freeze()
    }
}

/// A server of secrets, as agents are: one answer for each stream, which then stays open.
async fn agent(identity: Agent) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let identity = identity.clone();
            let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let identity = identity.clone();
                async move { Ok::<_, Infallible>(stream(identity, request.into_body())) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

type Frames = futures::stream::BoxStream<'static, std::result::Result<Frame<Bytes>, Infallible>>;

fn stream(identity: Agent, mut body: Incoming) -> hyper::Response<StreamBody<Frames>> {
    let first = async move {
        let mut buffer = BytesMut::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            let length = buffer
                .get(1..5)
                .map(|length| u32::from_be_bytes(length.try_into().unwrap()) as usize);
            if let Some(length) = length.filter(|length| buffer.len() >= length + 5) {
                buffer.advance(5);
                let request = DiscoveryRequest::decode(buffer.split_to(length).freeze()).unwrap();
                return (Some(Frame::data(identity.answer(&request))), body);
            }
        }
        (None, body)
    };
    let answer = futures::stream::once(first).flat_map(|(answer, body)| {
        // What the client says of it is not read, but the stream lives as long as the client wants.
        let rest = futures::stream::pending().map(move |frame| {
            let _ = &body;
            frame
        });
        futures::stream::iter(answer.map(Ok)).chain(rest)
    });
    hyper::Response::builder()
        .header("content-type", "application/grpc")
        .body(StreamBody::new(answer.boxed()))
        .unwrap()
}

/// An Envoy with an agent.
async fn gateway(mesh: &Mesh, name: &str, identity: Agent) -> Result<Envoy> {
    let mut node = Node::gateway(name, "test", "127.0.0.3", &[("app", name)]);
    node.metadata["ISTIO_VERSION"] = "1.28.0".into();
    let sds = agent(identity).await?;
    let mut bootstrap = Envoy::bootstrap(&node, Protocol::Delta, mesh.control.grpc());
    let clusters = &mut bootstrap["static_resources"]["clusters"];
    // As the control plane's, with another name elsewhere.
    let mut cluster = clusters[0].clone();
    cluster["name"] = "sds-grpc".into();
    cluster["load_assignment"] = json!({
        "cluster_name": "sds-grpc",
        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
            "socket_address": { "address": sds.ip().to_string(), "port_value": sds.port() } } } }] }],
    });
    clusters.as_array_mut().unwrap().push(cluster);
    Envoy::start_with(envoy_binary(), &bootstrap).await
}

fn service(name: &str, account: &str, address: SocketAddr) -> String {
    let spec = format!(
        "hosts: [{name}.test], resolution: STATIC, location: MESH_INTERNAL, \
         ports: [{{ number: 80, name: http, protocol: HTTP }}], \
         endpoints: [{{ address: {}, ports: {{ http: {} }}, serviceAccount: {account} }}]",
        address.ip(),
        address.port()
    );
    networking("ServiceEntry", name, &spec)
}

fn route(name: &str, gateway: &str, host: &str) -> String {
    let target = to(&format!("{host}.test"), 80);
    let spec = format!("hosts: [{name}.test], gateways: [{gateway}], http: [{{ {target} }}]");
    networking("VirtualService", &format!("{name}-{host}"), &spec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_envoys_of_a_mesh_prove_who_they_are() {
    run().await.unwrap_or_else(|error| panic!("{error}"));
}

async fn run() -> Result<()> {
    let authority = Authority::new("mesh")?;
    let backend = Backend::start("v1", "one").await?;
    let (inner, outer) = (free_port(), free_port());
    let gateway_object = |name: &str, port: u16, protocol: &str, tls: &str| {
        let server = format!("port: {{ number: {port}, name: p, protocol: {protocol} }}, hosts: ['*']{tls}");
        networking(
            "Gateway",
            name,
            &format!("selector: {{ app: {name} }}, servers: [{{ {server} }}]"),
        )
    };
    let rule = |name: &str| {
        let spec = format!("host: {name}.test, trafficPolicy: {{ tls: {{ mode: ISTIO_MUTUAL }} }}");
        networking("DestinationRule", name, &spec)
    };
    let at: SocketAddr = ([127, 0, 0, 1], inner).into();
    let mesh = Mesh::start(&[
        (
            "inner.yaml",
            &gateway_object("inner", inner, "HTTPS", ", tls: { mode: ISTIO_MUTUAL }"),
        ),
        ("outer.yaml", &gateway_object("outer", outer, "HTTP", "")),
        ("web.yaml", &service("web", "web", backend.address())),
        ("good.yaml", &service("good", "inner", at)),
        ("other.yaml", &service("other", "somebody", at)),
        ("good-rule.yaml", &rule("good")),
        ("other-rule.yaml", &rule("other")),
        ("a.yaml", &route("good", "inner", "web")),
        ("b.yaml", &route("other", "inner", "web")),
        ("c.yaml", &route("good", "outer", "good")),
        ("d.yaml", &route("other", "outer", "other")),
    ])
    .await?;
    let server = gateway(&mesh, "inner", Agent::of(&authority, "inner")?).await?;
    let client = gateway(&mesh, "outer", Agent::of(&authority, "outer")?).await?;
    server.wait_for_listener(([0, 0, 0, 0], inner).into()).await?;
    client.wait_for_listener(([0, 0, 0, 0], outer).into()).await?;
    let address: SocketAddr = ([127, 0, 0, 1], outer).into();
    let answered = || async {
        let answer = http::get(address, "/", &[("host", "good.test")]).await.ok()?;
        Some(()).filter(|()| answer.header("x-version") == "v1")
    };
    if let Err(error) = wait_for("an answer over the mesh's TLS", PATIENCE, answered).await {
        return Err(format!("{error}\nclient: {}\nserver: {}", client.log()?, server.log()?).into());
    }
    // The same server is not who the endpoints of the other service are said to be.
    let before = backend.requests();
    assert_eq!(
        http::get(address, "/", &[("host", "other.test")])
            .await?
            .status
            .as_u16(),
        503
    );
    assert_eq!(backend.requests(), before);
    // Without a certificate of the mesh nobody is let in, nor in plain text.
    let plain = http::get(([127, 0, 0, 1], inner).into(), "/", &[("host", "good.test")]).await;
    assert!(plain.is_err() || plain.is_ok_and(|answer| answer.header("x-version").is_empty()));
    Ok(())
}
