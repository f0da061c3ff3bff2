//! The webhooks that the API server of Kubernetes calls over HTTPS: `/inject`, `/validate` and `/ready`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listeners::{Usage, accept};
use rustls::sign::CertifiedKey;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::listen;
use crate::log_limit::LogLimit;
use crate::tls;

/// Maximum size of a request. The API server sends the new and the old object, each of 3 MiB at most.
const BODY_BYTES: usize = 8 << 20;
/// The time in which a request must arrive and be answered. The API server waits for 10 seconds.
const WITHIN: Duration = Duration::from_secs(10);
/// The time in which the head of a request must arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The number of connections. An API server uses few.
const CONNECTIONS: usize = 256;

/// The port of the webhooks.
pub struct WebhookPort {
    /// The address.
    pub address: SocketAddr,
    /// The certificate and key. The port accepts connections once there is one.
    pub certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
}

/// Answers the calls of the API server.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// Answers a body in JSON; none if nothing is served at the path.
    async fn answer(&self, path: &str, body: Bytes) -> Option<Bytes>;

    /// Notes a request that was refused before it was read as a call.
    fn refused(&self, path: &str, status: StatusCode);
}

/// Serves the webhooks until `stopped` is true.
///
/// # Errors
/// TLS is not usable.
pub(crate) fn serve(
    listener: TcpListener,
    mut certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    webhooks: Arc<dyn Webhooks>,
    ready: Arc<AtomicBool>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<impl Future<Output = ()> + Send + 'static> {
    let acceptor = TlsAcceptor::from(tls::of_webhooks(certificate.clone()).map_err(std::io::Error::other)?);
    Ok(async move {
        if !tls::has_certificate(&mut certificate, &mut stopped).await {
            return;
        }
        let limits = listeners::Limits::of(CONNECTIONS);
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
        let (log, ending) = (Arc::new(LogLimit::default()), stopped.clone());
        accept(
            "webhooks",
            limits,
            move |cx| listener.poll_accept(cx),
            stopped,
            move |accepted, usage| {
                let (acceptor, builder, log, ending) = (acceptor.clone(), builder.clone(), log.clone(), ending.clone());
                let (webhooks, ready) = (webhooks.clone(), ready.clone());
                async move {
                    let failed = "a TLS handshake of a webhook call failed";
                    let Some(socket) = tls::handshake(&acceptor, accepted, &log, failed).await else { return };
                    let service = service_fn(move |request| {
                        let (webhooks, ready, open) = (webhooks.clone(), ready.clone(), usage.begin());
                        async move {
                            let response = respond(request, &*webhooks, &ready).await;
                            Ok::<_, Infallible>(Usage::count(response, open))
                        }
                    });
                    listen::serve(builder.serve_connection(TokioIo::new(socket), service), ending).await;
                }
            },
        )
        .await;
    })
}

async fn respond(request: Request<Incoming>, webhooks: &dyn Webhooks, ready: &AtomicBool) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    if path == "/ready" {
        return match ready.load(Ordering::Acquire) {
            true => plain(StatusCode::OK, "ready\n"),
            false => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        };
    }
    match tokio::time::timeout(WITHIN, call(request, &path, webhooks)).await {
        Ok(Ok(body)) => {
            let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
            response.body(Full::new(body)).unwrap_or_default()
        }
        Ok(Err((status, text))) => {
            webhooks.refused(&path, status);
            plain(status, text)
        }
        Err(_) => {
            webhooks.refused(&path, StatusCode::REQUEST_TIMEOUT);
            plain(StatusCode::REQUEST_TIMEOUT, "the call took longer than 10 seconds\n")
        }
    }
}

async fn call(
    request: Request<Incoming>,
    path: &str,
    webhooks: &dyn Webhooks,
) -> Result<Bytes, (StatusCode, &'static str)> {
    if request.method() != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "webhooks are called by POST\n"));
    }
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().unwrap_or_default().trim() != "application/json" {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid Content-Type, want `application/json`\n"));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES).collect().await;
    let body = body.map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
        true => (StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than 8 MiB\n"),
        false => (StatusCode::BAD_REQUEST, "the request could not be read\n"),
    })?;
    let body = body.to_bytes();
    if body.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "no body found\n"));
    }
    webhooks.answer(path, body).await.ok_or((StatusCode::NOT_FOUND, "nothing is served at this path\n"))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}
