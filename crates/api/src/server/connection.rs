//! Handling of one connection.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use listeners::Usage;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::browsers;
use super::limits::{Buckets, ServerLimits};
use super::tls::Config;
use crate::access::{Peer, User};
use crate::answer::Answer;
use crate::api::{Api, stopped};
use crate::body::Body;
use crate::error::ApiError;
use crate::places::{Place, Places};
use crate::request::Request;

/// Maximum duration of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Paths that need no authentication.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// State shared by all connections.
pub(super) struct Shared {
    api: Api,
    pub limits: ServerLimits,
    buckets: Buckets,
    places: Places,
}

impl Shared {
    pub(super) fn new(api: Api, limits: ServerLimits) -> Shared {
        Shared {
            api,
            buckets: Buckets::new(limits.rate, limits.burst),
            places: Places::new(limits.requests, limits.requests_per_user),
            limits,
        }
    }
}

/// Serves a connection until it ends, or until shutdown and the end of open requests.
pub(super) async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Config>,
    shared: Arc<Shared>,
    usage: Usage,
    stop: watch::Receiver<bool>,
) {
    let Some(config) = tls else {
        let peer = Peer { trusted: address.ip().is_loopback(), ..Peer::default() };
        return speak(stream, address.ip(), peer, shared, usage, stop).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(Arc::clone(&config.server)).accept(stream)).await;
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(peer = %address, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(peer = %address, "TLS handshake timed out"),
    };
    let peer = config.client(stream.get_ref().1);
    if let Some(reason) = &peer.rejected {
        tracing::warn!(peer = %address, reason, "refused a client certificate");
    }
    speak(stream, address.ip(), peer, shared, usage, stop).await;
}

async fn speak<S>(stream: S, ip: IpAddr, peer: Peer, shared: Arc<Shared>, usage: Usage, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = shared.limits.clone();
    let peer = Arc::new(peer);
    let service = service_fn(move |request| {
        let (shared, peer, open) = (Arc::clone(&shared), Arc::clone(&peer), usage.begin());
        async move { Ok::<_, Infallible>(Usage::count(respond(&shared, ip, &peer, request).await, open)) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers_within)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        // Keepalive detects clients that vanished, and ends their watches.
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = %ip, %error, "API connection ended with an error");
    }
}

async fn respond(shared: &Shared, ip: IpAddr, peer: &Peer, request: hyper::Request<Incoming>) -> Response<Body> {
    let answer = answer(shared, ip, peer, request).await.unwrap_or_else(Answer::from);
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

async fn answer(
    shared: &Shared,
    ip: IpAddr,
    peer: &Peer,
    request: hyper::Request<Incoming>,
) -> Result<Answer, ApiError> {
    let (head, body) = request.into_parts();
    let public = PUBLIC.contains(&head.uri.path().trim_end_matches('/'));
    let user = if public {
        User::new("system:anonymous", [], [])
    } else {
        browsers::check(peer.trusted, &head)?;
        let access = &shared.api.0.options.access;
        access.impersonate(access.authenticate(&head.headers, peer)?, &head.headers)?
    };
    if let Err(seconds) = shared.buckets.take(&user.name, ip, std::time::Instant::now()) {
        shared.api.0.metrics.limited();
        return Err(ApiError::too_many_requests(seconds));
    }
    shared.api.authorize(&head.method, &head.uri, &user)?;
    // Health checks need no place, so that they are answered when all places are taken.
    let place = match public {
        true => None,
        false => Some(place(shared, &user).await?),
    };
    // These methods have no body. Whatever a client sends is not read.
    let body = match public || head.method == Method::GET || head.method == Method::HEAD {
        true => Bytes::new(),
        false => read(shared, &head.headers, body).await?,
    };
    let request = Request { method: head.method, uri: head.uri, headers: head.headers, body, user };
    let api = shared.api.clone();
    // Runs in its own task, so that a started write completes even if the client disconnects, and a panic ends only this
    // request.
    let answered = tokio::spawn(async move { api.call(request).await }).await;
    drop(place);
    answered.map_err(|error| {
        tracing::error!(%error, "API request failed");
        ApiError::internal("the request failed")
    })
}

/// Waits for a place of the user.
async fn place(shared: &Shared, user: &User) -> Result<Place, ApiError> {
    let place = tokio::time::timeout(shared.limits.place_within, shared.places.take(user)).await;
    place.ok().flatten().ok_or_else(|| {
        shared.api.0.metrics.limited();
        ApiError::too_many_requests(1)
    })
}

/// Reads the whole body within time and size limits.
async fn read(shared: &Shared, headers: &HeaderMap, body: Incoming) -> Result<Bytes, ApiError> {
    let limit = shared.api.0.options.limits.body;
    let too_large = || ApiError::too_large(format!("Request entity too large: limit is {limit}"));
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let reading = Limited::new(body, limit).collect();
    match tokio::time::timeout(shared.limits.body_within, reading).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ApiError::bad_request(format!("the body cannot be read: {error}"))),
        Err(_) => Err(ApiError::new(408, "Timeout", "timed out while reading the body")),
    }
}
