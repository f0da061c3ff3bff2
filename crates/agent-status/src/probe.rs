//! Probes applications for the kubelet, whose requests the proxy would refuse.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING, UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;

use crate::client::{Follow, Get, GetError, Idle, connect, read, source};
use crate::settings::{Action, Prober, Settings};

/// The most bytes of an application's response that are passed on.
const MAX_BODY: usize = 10 << 10;
/// The most bytes that are read after them, to use the connection again.
const MAX_REST: usize = 64 << 10;
/// The timeout of gRPC probes that have none.
const GRPC_TIMEOUT: Duration = Duration::from_secs(1);
/// The method of the gRPC health service.
const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The status `SERVING` of the gRPC health service.
const SERVING: i32 = 1;
/// Headers of the kubelet's connection, which mean nothing to the application's.
const HOP: &[HeaderName] = &[CONNECTION, CONTENT_LENGTH, TE, TRANSFER_ENCODING, UPGRADE];

/// The result of a probe, as the response to the kubelet.
pub type Answer = (StatusCode, Bytes);

/// Sends a probe.
pub async fn probe(settings: &Settings, prober: &Prober, headers: &HeaderMap, status_port: u16, idle: &Idle) -> Answer {
    let failed = |reason: &dyn std::fmt::Display| {
        tracing::warn!(target: "probes", %reason, probe = ?prober.action, "the probe of the application failed");
        (StatusCode::INTERNAL_SERVER_ERROR, Bytes::new())
    };
    let host = &*settings.destination;
    match &prober.action {
        Action::Http { port, path, tls } => {
            let get = match http_probe(settings, *port, path, *tls, headers, status_port) {
                Ok(get) => Get { idle: settings.keep_alive.then_some(idle), ..get },
                Err(error) => return failed(&error),
            };
            limited(prober.timeout, pass_on(get)).await.unwrap_or_else(|error| failed(&error))
        }
        Action::Tcp { port } => {
            let connected = limited(prober.timeout, async {
                connect(host, *port, true).await.map_err(|error| GetError::Connect(format!("{host}:{port}"), error))
            });
            connected.await.map_or_else(|error| failed(&error), |_| (StatusCode::OK, Bytes::new()))
        }
        Action::Grpc { port, service } => {
            let agent = headers.get(USER_AGENT);
            let check = grpc(host, *port, service, agent, true);
            match timeout(prober.timeout.unwrap_or(GRPC_TIMEOUT), check).await {
                Ok(Ok(())) => (StatusCode::OK, Bytes::new()),
                Ok(Err(error)) => failed(&error),
                Err(error) => failed(&error),
            }
        }
    }
}

async fn limited<T>(limit: Option<Duration>, work: impl Future<Output = Result<T, GetError>>) -> Result<T, GetError> {
    match limit {
        Some(limit) => timeout(limit, work).await?,
        None => work.await,
    }
}

/// The request to the application: the kubelet's headers, and its host with the application's port.
fn http_probe(
    settings: &Settings,
    port: u16,
    path: &str,
    tls: bool,
    headers: &HeaderMap,
    status_port: u16,
) -> Result<Get<'static>, GetError> {
    let mut headers = headers.clone();
    HOP.iter().for_each(|name| drop(headers.remove(name)));
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if let Some((name, _)) = host.and_then(|host| host.rsplit_once(':')).filter(|(_, of)| of.parse() == Ok(status_port))
        && let Ok(host) = HeaderValue::from_str(&format!("{name}:{port}"))
    {
        headers.insert(HOST, host);
    }
    let scheme = if tls { "https" } else { "http" };
    let get = Get::new(&format!("{scheme}://{}{path}", authority(&settings.destination, port)))?;
    Ok(Get { headers, probe: true, http2: settings.http2, follow: Follow::SameHost, ..get })
}

/// The status and the beginning of the body. A redirect that was not followed counts as success.
async fn pass_on(get: Get<'_>) -> Result<Answer, GetError> {
    let (idle, origin) = (get.idle, get.origin());
    let (response, connection) = get.send().await?;
    let status = response.status();
    let (mut body, complete) = read(response.into_body(), if idle.is_some() { MAX_REST } else { MAX_BODY }).await;
    if let Some(idle) = idle.filter(|_| complete) {
        idle.keep(origin, connection);
    }
    body.truncate(MAX_BODY);
    Ok(if status.is_redirection() { (StatusCode::OK, Bytes::new()) } else { (status, body) })
}

/// The reason why a gRPC probe failed.
#[derive(thiserror::Error, Debug)]
pub(crate) enum GrpcError {
    #[error("cannot connect to port {0}: {1}")]
    Connect(u16, tonic::transport::Error),
    #[error("the gRPC health service answers {:?}: {}", .0.code(), .0.message())]
    Status(#[from] tonic::Status),
    #[error("the gRPC health service reports another status than SERVING: {0}")]
    NotServing(i32),
}

/// Checks the gRPC health of a server.
pub(crate) async fn grpc(
    host: &str,
    port: u16,
    service: &str,
    agent: Option<&HeaderValue>,
    probe: bool,
) -> Result<(), GrpcError> {
    let failed = |error| GrpcError::Connect(port, error);
    let mut endpoint = Endpoint::from_shared(format!("http://{}", authority(host, port))).map_err(failed)?;
    if let Some(agent) = agent {
        endpoint = endpoint.user_agent(agent.clone()).map_err(failed)?;
    }
    if probe {
        endpoint = endpoint.local_address(Some(source(host)));
    }
    let channel = endpoint.connect().await.map_err(failed)?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(failed)?;
    // The messages of the health service, each with one field, are written like the wrappers of a string and of a number.
    let codec = tonic_prost::ProstCodec::<String, i32>::default();
    let request = tonic::Request::new(service.to_owned());
    let status = client.unary(request, PathAndQuery::from_static(CHECK), codec).await?.into_inner();
    if status == SERVING { Ok(()) } else { Err(GrpcError::NotServing(status)) }
}

/// A host and a port, as in URLs.
pub(crate) fn authority(host: &str, port: u16) -> String {
    host.parse().map_or_else(|_| format!("{host}:{port}"), |ip| SocketAddr::new(ip, port).to_string())
}
