//! The commands `wait` and `request` of the command line.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use tokio::time::{Instant, interval, timeout, timeout_at};
use url::Url;

use crate::client::{Connection, Get, GetError, read, request as compose};

/// The ports that [`request`] sends to: Envoy's admin interface, the default status port, and others of the proxy.
pub const ALLOWED_PORTS: &[u16] = &[15000, 15004, 15020, 15021];
/// The time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest response to a request. Configuration dumps are large.
const MAX_RESPONSE: usize = 1 << 30;

/// The parameters of [`wait`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The URL that must answer with 200.
    pub url: String,
    /// The time in which it must do so.
    pub timeout: Duration,
    /// The timeout of a request.
    pub request_timeout: Duration,
    /// The time between requests.
    pub period: Duration,
}

/// The reason why a command fails.
#[derive(thiserror::Error, Debug)]
pub enum CommandError {
    /// The proxy is not ready in time.
    #[error("timeout waiting for Envoy proxy to become ready. Last error: {0}")]
    NotReady(String),
    /// The port must not be used.
    #[error("debug port {0} is not in allowed list {ALLOWED_PORTS:?}")]
    Port(u16),
    /// The method is not valid.
    #[error("{0:?} is not an HTTP method: give GET or POST")]
    Method(String),
    /// There is no response.
    #[error(transparent)]
    Request(#[from] GetError),
    /// The response is not complete.
    #[error("the response ends early, or is larger than 1 GiB")]
    Incomplete,
    /// The response is an error.
    #[error("received unsuccessful status code {}: {body}", .status.as_u16())]
    Status {
        /// The status.
        status: StatusCode,
        /// The body.
        body: String,
    },
}

/// Waits until a URL answers with 200.
///
/// # Errors
/// It does not in time.
pub async fn wait(wait: &Wait) -> Result<(), CommandError> {
    let mut last = "no request was sent".to_owned();
    let polled = async {
        let mut ticks = interval(wait.period.max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            let asked = async { Ok::<_, GetError>(Get::new(&wait.url)?.send().await?.0.status()) };
            last = match timeout(wait.request_timeout, asked).await.map_err(GetError::from) {
                Ok(Ok(StatusCode::OK)) => return,
                Ok(Ok(status)) => format!("HTTP status code {}", status.as_u16()),
                Ok(Err(error)) | Err(error) => error.to_string(),
            };
        }
    };
    timeout_at(Instant::now() + wait.timeout, polled).await.map_err(|_| CommandError::NotReady(last))
}

/// Sends a request to a port of the proxy, and returns the body of the response. As in Istio, 404 is no error. `status_port` is
/// allowed, too: the hook that drains the proxy before a pod ends sends to it, whatever it is.
///
/// # Errors
/// The port is not allowed, or the response is missing or an error.
pub async fn request(port: u16, status_port: u16, method: &str, path: &str, body: &str) -> Result<Bytes, CommandError> {
    if !ALLOWED_PORTS.contains(&port) && port != status_port {
        return Err(CommandError::Port(port));
    }
    let invalid = || CommandError::Method(method.to_owned());
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| invalid())?;
    let text = format!("http://localhost:{port}/{}", path.strip_prefix('/').unwrap_or(path));
    let url = Url::parse(&text).map_err(|_| GetError::Url(text))?;
    let exchange = async {
        let mut connection = Connection::open(&url, false, false).await?;
        let message = compose(method, &url, &HeaderMap::new(), Bytes::copy_from_slice(body.as_bytes()), false)?;
        let response = connection.send(message).await.map_err(|error| GetError::Http(url.to_string(), error))?;
        Ok::<_, GetError>((response.status(), read(response.into_body(), MAX_RESPONSE).await))
    };
    let (status, (body, complete)) = timeout(REQUEST_TIMEOUT, exchange).await.map_err(GetError::from)??;
    if status.as_u16() > 399 && status != StatusCode::NOT_FOUND {
        return Err(CommandError::Status { status, body: String::from_utf8_lossy(&body).into_owned() });
    }
    if complete { Ok(body) } else { Err(CommandError::Incomplete) }
}
