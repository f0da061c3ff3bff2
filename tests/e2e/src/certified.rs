//! The agent beside a proxy, with the workload's certificate: an SDS server, and an Envoy that uses it.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::Message as _;
use protos::envoy::config::core::v3::{DataSource, data_source::Specifier};
use protos::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret, TlsCertificate, secret::Type,
};
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use serde_json::json;
use test_harness::run::{Envoy, Node, Protocol, Result, grpc_message, next_grpc_message};
use tokio::net::TcpListener;

use crate::tls::Authority;
use crate::{Mesh, envoy_binary};

/// Starts an Envoy beside an agent with the certificate of a service account in the namespace `test`.
pub async fn certified(
    mesh: &Mesh,
    mut node: Node,
    protocol: Protocol,
    (authority, account): (&Authority, &str),
) -> Result<Envoy> {
    // Agents report their version. A proxy without one is treated as having no certificates.
    node.metadata["ISTIO_VERSION"] = "1.28.0".into();
    node.metadata["SERVICE_ACCOUNT"] = account.into();
    let sds = serve(Agent::of(authority, account)?).await?;
    let mut bootstrap = Envoy::bootstrap(&node, protocol, mesh.control.grpc());
    let clusters = &mut bootstrap["static_resources"]["clusters"];
    // A cluster like that of the control plane, with another name and address.
    let mut cluster = clusters[0].clone();
    cluster["name"] = "sds-grpc".into();
    cluster["load_assignment"] = json!({
        "cluster_name": "sds-grpc",
        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
            "socket_address": { "address": sds.ip().to_string(), "port_value": sds.port() } } } }] }],
    });
    clusters.as_array_mut().ok_or("no clusters")?.push(cluster);
    Envoy::start_with(envoy_binary(), &bootstrap).await
}

/// The secrets of an agent.
#[derive(Clone)]
struct Agent {
    certificate: String,
    key: String,
    roots: String,
}

impl Agent {
    /// Creates the agent of a service account.
    fn of(authority: &Authority, account: &str) -> Result<Agent> {
        let (certificate, key) = authority.account(account)?;
        Ok(Agent { certificate, key, roots: authority.pem.clone() })
    }

    fn secret(&self, name: &str) -> Secret {
        let inline =
            |text: &str| DataSource { specifier: Some(Specifier::InlineString(text.to_owned())), ..Default::default() };
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
        Secret { name: name.to_owned(), r#type: Some(content) }
    }

    /// The response to a request for secrets, framed for gRPC.
    fn answer(&self, request: &DiscoveryRequest) -> Result<Bytes> {
        let secrets = request.resource_names.iter().map(|name| protos::any(&self.secret(name)));
        let response = DiscoveryResponse {
            version_info: "1".to_owned(),
            nonce: "1".to_owned(),
            type_url: request.type_url.clone(),
            resources: secrets.collect(),
            ..Default::default()
        };
        grpc_message(&protos::encode(&response))
    }
}

/// An SDS server like that of agents: one response for each stream, which then stays open.
async fn serve(identity: Agent) -> Result<SocketAddr> {
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
            if let Some(message) = next_grpc_message(&mut buffer) {
                let request = DiscoveryRequest::decode(message).ok();
                let answer = request.and_then(|request| identity.answer(&request).ok());
                return (answer.map(Frame::data), body);
            }
        }
        (None, body)
    };
    let answer = futures::stream::once(first).flat_map(|(answer, body)| {
        // The client's further messages are not read, but the stream stays open as long as the client keeps it.
        let rest = futures::stream::pending().map(move |frame| {
            let _ = &body;
            frame
        });
        futures::stream::iter(answer.map(Ok)).chain(rest)
    });
    let mut response = hyper::Response::new(StreamBody::new(answer.boxed()));
    let kind = hyper::header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}
