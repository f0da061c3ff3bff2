//! A small HTTP client: one request per connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
pub use hyper::Method;
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Result;

/// The maximum size of a response.
pub(crate) const BODY_LIMIT: usize = 256 << 20;
/// The timeout of a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers.
    pub trailers: HeaderMap,
}

impl Response {
    /// Reads a response of at most `limit` bytes.
    pub(crate) async fn read<B>(response: hyper::Response<B>, limit: usize) -> Result<Response>
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, limit).collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Response { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    /// A header as text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// Sends one request without a body. `headers` may contain `host`; the default is the address.
pub async fn send(address: SocketAddr, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Response> {
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        ask(stream, request(address, method, path, headers)?, BODY_LIMIT).await
    };
    tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| format!("{address}{path} did not answer"))?
}

/// Sends a request on an existing connection and reads a response of at most `limit` bytes.
pub(crate) async fn ask<S, B>(stream: S, request: Request<B>, limit: usize) -> Result<Response>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = Response::read(sender.send_request(request).await?, limit).await;
    driver.abort();
    response
}

/// Sends a `GET` with these headers.
pub async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Result<Response> {
    send(address, Method::GET, path, headers).await
}

pub(crate) fn request(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Request<Empty<Bytes>>> {
    let mut builder = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        builder = builder.header("host", address.to_string());
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    Ok(builder.body(Empty::new())?)
}
