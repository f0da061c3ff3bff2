//! The SDS server of an agent, with the workload's certificate.

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
use test_harness::run::{Result, grpc_message, next_grpc_message};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::client::Key;

/// The secrets of an agent, in PEM.
#[derive(Clone)]
pub struct Secrets {
    /// The certificate chain without the root.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// The roots.
    pub roots: String,
    /// The version of the certificate in responses, by which an Envoy shows what it uses.
    pub version: u64,
    /// The version of the roots. Envoy keeps the version of a secret that has not changed.
    pub roots_version: u64,
}

impl Secrets {
    /// The secrets after the answer to a request for a certificate: the chain with the root at its end, and its key.
    pub fn issued(mut chain: Vec<String>, key: &Key, old: Option<&Secrets>) -> Result<Secrets> {
        let roots = chain.pop().ok_or("no certificate")?;
        let version = old.map_or(1, |old| old.version + 1);
        let roots_version = old.map_or(1, |old| old.roots_version + u64::from(old.roots != roots));
        Ok(Secrets { certificate: chain.concat(), key: key.pem(), roots, version, roots_version })
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
        let of_roots = request.resource_names.iter().any(|name| name == "ROOTCA");
        let version = if of_roots { self.roots_version } else { self.version };
        let response = DiscoveryResponse {
            version_info: version.to_string(),
            nonce: self.version.to_string(),
            type_url: request.type_url.clone(),
            resources: secrets.collect(),
            ..Default::default()
        };
        grpc_message(&protos::encode(&response))
    }
}

/// An SDS server like that of agents: each stream gets the secrets, and gets them again when they change.
pub async fn serve(secrets: watch::Sender<Secrets>) -> Result<SocketAddr> {
    serve_at(([127, 0, 0, 1], 0).into(), secrets).await
}

/// Does the same at this address.
pub async fn serve_at(address: SocketAddr, secrets: watch::Sender<Secrets>) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let secrets = secrets.subscribe();
            let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let secrets = secrets.clone();
                async move { Ok::<_, Infallible>(stream(secrets, request.into_body())) }
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

type Frames = futures::stream::BoxStream<'static, std::result::Result<Frame<Bytes>, Infallible>>;

fn stream(secrets: watch::Receiver<Secrets>, body: Incoming) -> hyper::Response<StreamBody<Frames>> {
    let answers = futures::stream::once(first(body)).flat_map(move |(request, body)| {
        let mut secrets = secrets.clone();
        secrets.mark_changed();
        // The client's further messages are not read, but the stream stays open as long as the client keeps it.
        futures::stream::unfold((secrets, request, body), |(mut secrets, request, body)| async move {
            if secrets.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let frame = secrets.borrow_and_update().answer(request.as_ref()?).ok().map(Frame::data)?;
            Some((Ok(frame), (secrets, request, body)))
        })
    });
    let mut response = hyper::Response::new(StreamBody::new(answers.boxed()));
    let kind = hyper::header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// The first request of a stream, and the rest of its messages.
async fn first(mut body: Incoming) -> (Option<DiscoveryRequest>, Incoming) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        if let Some(message) = next_grpc_message(&mut buffer) {
            return (DiscoveryRequest::decode(message).ok(), body);
        }
    }
    (None, body)
}
