//! The HTTP client: one request per connection, to addresses that may be asked, with limits of size and time.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use bytes::Bytes;
use config::{KeySet, KeySetError, MAX_KEY_SET};
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jwks::document::{DiscoveryError, UrlError, key_set_url, parse_url, redirect};
use jwks::{Fetch, Guard, Refusal};
use model::jwt::KeySource;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::roots::Roots;

/// The maximum number of redirects.
const REDIRECTS: usize = 5;
/// The maximum number of addresses of a host that are tried.
const ADDRESSES: usize = 8;
const AGENT: &str = concat!("rutter/", env!("CARGO_PKG_VERSION"));

/// The reason why keys cannot be fetched. The text goes into the status of objects, so it shows nothing of a response, and
/// does not tell closed ports from addresses that do not answer; [`FetchError::detail`] is for the log.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// A URL cannot be used.
    #[error("{0}")]
    Url(#[from] UrlError),
    /// A host or address must not be asked.
    #[error("{0} (allow it with jwks-allowed)")]
    Refused(#[from] Refusal),
    /// The host, or all its addresses, cannot be reached.
    #[error("the server {0} cannot be reached")]
    Unreachable(String, String),
    /// The server's certificate is not accepted, or TLS fails.
    #[error("the TLS handshake with {0} failed")]
    Tls(String, String),
    /// The time is over.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The server does not speak HTTP, or closes the connection.
    #[error("the server {0} sent no valid HTTP response")]
    Http(String, String),
    /// The server reports an error.
    #[error("the server {0} answered with status {1}")]
    Status(String, u16),
    /// The server redirects too often.
    #[error("the server redirects more than {REDIRECTS} times")]
    Redirects,
    /// The discovery document cannot be used.
    #[error("{0}")]
    Discovery(#[from] DiscoveryError),
    /// The key set cannot be used.
    #[error("{0}")]
    Keys(#[from] KeySetError),
    /// The answer is too large.
    #[error("the answer is larger than 1 MiB")]
    TooLarge,
}

impl FetchError {
    /// What the operating system or a library reports; empty if there is no more to say.
    pub fn detail(&self) -> &str {
        match self {
            FetchError::Unreachable(_, detail) | FetchError::Tls(_, detail) | FetchError::Http(_, detail) => detail,
            _ => "",
        }
    }
}

/// Fetches keys.
pub struct Client {
    guard: Guard,
    roots: Roots,
}

/// An answer to one request.
enum Answer {
    Body(Bytes),
    Redirect(String),
}

impl Client {
    /// A client that asks only hosts that `guard` allows, and also trusts the certificate authorities of this file.
    pub fn new(guard: Guard, extra_roots: Option<PathBuf>) -> Client {
        Client { guard, roots: Roots::new(extra_roots) }
    }

    /// Fetches the keys of a source.
    ///
    /// # Errors
    /// The reason why there are none.
    pub async fn fetch(&self, fetch: &Fetch) -> Result<KeySet, FetchError> {
        let keys = timeout(fetch.timeout, self.keys(&fetch.source)).await;
        keys.unwrap_or(Err(FetchError::Timeout(fetch.timeout)))
    }

    async fn keys(&self, source: &KeySource) -> Result<KeySet, FetchError> {
        let first = parse_url(&source.url())?;
        let url = match source {
            KeySource::Uri(_) => first,
            KeySource::Issuer(_) => key_set_url(&self.get(first).await?)?,
        };
        Ok(KeySet::fetched(&self.get(url).await?)?)
    }

    async fn get(&self, mut url: Url) -> Result<Bytes, FetchError> {
        for _ in 0..=REDIRECTS {
            match self.request(&url).await? {
                Answer::Body(body) => return Ok(body),
                Answer::Redirect(location) => url = redirect(&url, &location)?,
            }
        }
        Err(FetchError::Redirects)
    }

    async fn request(&self, url: &Url) -> Result<Answer, FetchError> {
        let host = url.host_str().unwrap_or_default();
        let stream = self.connect(url, host).await?;
        if url.scheme() == "http" {
            return exchange(stream, url, host).await;
        }
        let failed = |detail: String| FetchError::Tls(host.to_owned(), detail);
        let config = self.roots.config().await.map_err(failed)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|error| failed(error.to_string()))?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        exchange(stream.map_err(|error| failed(error.to_string()))?, url, host).await
    }

    /// Connects to the first address that answers. Every address is checked after it was resolved, and the connection uses
    /// this address, so that no name can change in between.
    async fn connect(&self, url: &Url, host: &str) -> Result<TcpStream, FetchError> {
        let port = url.port_or_known_default().unwrap_or_default();
        let unreachable = |detail: String| FetchError::Unreachable(host.to_owned(), detail);
        let addresses: Vec<IpAddr> = match url.host() {
            Some(Host::Ipv4(ip)) => vec![ip.into()],
            Some(Host::Ipv6(ip)) => vec![ip.into()],
            Some(Host::Domain(name)) => {
                self.guard.host(name)?;
                let found = tokio::net::lookup_host((name, port)).await;
                found.map_err(|error| unreachable(error.to_string()))?.map(|address| address.ip()).collect()
            }
            None => return Err(UrlError::Invalid.into()),
        };
        let mut last = unreachable("the host has no address".to_owned());
        for ip in addresses.into_iter().take(ADDRESSES) {
            if let Err(refusal) = self.guard.address(host, ip) {
                last = refusal.into();
                continue;
            }
            match TcpStream::connect(SocketAddr::new(ip, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = unreachable(format!("{ip}: {error}")),
            }
        }
        Err(last)
    }
}

/// Sends one request and reads the answer.
async fn exchange<S>(stream: S, url: &Url, host: &str) -> Result<Answer, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let invalid = |detail: String| FetchError::Http(host.to_owned(), detail);
    let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    let request = Request::get(path)
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, AGENT)
        .body(Empty::<Bytes>::new())
        .map_err(|_| UrlError::Invalid)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| invalid(error.to_string()))?;
    // The connection ends with this function.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| invalid(error.to_string()))?;
    let status = response.status();
    if is_redirect(status) {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.ok_or_else(|| invalid("a redirect without location".to_owned()))?;
        return Ok(Answer::Redirect(location.to_owned()));
    }
    if !status.is_success() {
        return Err(FetchError::Status(host.to_owned(), status.as_u16()));
    }
    let body = Limited::new(response.into_body(), MAX_KEY_SET).collect().await;
    match body {
        Ok(body) => Ok(Answer::Body(body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLarge),
        Err(error) => Err(invalid(error.to_string())),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
