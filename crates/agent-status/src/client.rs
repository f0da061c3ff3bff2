//! The HTTP client of the agent, for programs on this machine: probes, scrapes and Envoy's admin interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use agent_core::tls::{Possession, unverified};
use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use url::Url;

/// The most redirects that are followed.
const REDIRECTS: usize = 10;
/// The most addresses of a host that are tried.
const ADDRESSES: usize = 8;
/// The source addresses of probes, which the capture of traffic leaves alone.
const SOURCES: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(127, 0, 0, 6), Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6));

/// The reason why there is no response.
#[derive(thiserror::Error, Debug)]
pub enum GetError {
    /// The URL cannot be requested.
    #[error("{0} is not a URL that can be requested: give http://HOST:PORT/PATH")]
    Url(String),
    /// The connection cannot be established.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, io::Error),
    /// The server does not speak HTTP, or closes the connection.
    #[error("no valid HTTP response from {0}: {1}")]
    Http(String, hyper::Error),
    /// The server redirects too often.
    #[error("stopped after {REDIRECTS} redirects")]
    Redirects,
    /// The time is over.
    #[error("no response within the timeout")]
    Timeout(#[from] tokio::time::error::Elapsed),
}

/// Redirects that are followed; the response to others is a redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// All.
    All,
    /// Redirects to the same host are followed, as the kubelet does.
    SameHost,
}

/// A request without a body.
#[derive(Clone, Debug)]
pub struct Get<'a> {
    /// The URL.
    pub url: Url,
    /// The headers. `host` replaces the host of the URL.
    pub headers: HeaderMap,
    /// Whether the request comes from the source address of probes.
    pub probe: bool,
    /// Whether HTTPS connections offer HTTP/2.
    pub http2: bool,
    /// The redirects that are followed.
    pub follow: Follow,
    /// Connections that may be used again; none if each request has its own.
    pub idle: Option<&'a Idle>,
}

/// The idle connections of one probe: the last one.
#[derive(Default, Debug)]
pub struct Idle(std::sync::Mutex<Option<(String, Connection)>>);

/// A connection. It is closed when this is dropped.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    _driver: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A response whose body can be read until the connection is dropped.
pub type Exchange = (Response<Incoming>, Connection);

impl Get<'_> {
    /// A request to a URL, with all redirects.
    ///
    /// # Errors
    /// The text is not an `http` or `https` URL.
    pub fn new(text: &str) -> Result<Get<'static>, GetError> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let url = url.ok_or_else(|| GetError::Url(format!("{:?}", text.chars().take(200).collect::<String>())))?;
        Ok(Get { url, headers: HeaderMap::new(), probe: false, http2: false, follow: Follow::All, idle: None })
    }

    /// Sends the request, and follows redirects.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(mut self) -> Result<Exchange, GetError> {
        let first = self.url.host_str().map(str::to_owned);
        for _ in 0..REDIRECTS {
            let (response, connection) = self.send_once().await?;
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.filter(|_| is_followed(response.status())).and_then(|text| self.url.join(text).ok());
            match next {
                Some(next) if self.follow == Follow::All || next.host_str() == first.as_deref() => {
                    if next.host_str() != self.url.host_str()
                        || next.port_or_known_default() != self.url.port_or_known_default()
                    {
                        self.headers.remove(HOST);
                    }
                    self.url = next;
                }
                _ => return Ok((response, connection)),
            }
        }
        Err(GetError::Redirects)
    }

    async fn send_once(&self) -> Result<Exchange, GetError> {
        let origin = self.url.origin().ascii_serialization();
        let request = || request(Method::GET, &self.url, &self.headers, Bytes::new(), self.idle.is_some());
        let idle = self.idle.and_then(|idle| idle.take(&origin));
        if let Some(mut connection) = idle
            && let Ok(response) = connection.send(request()?).await
        {
            return Ok((response, connection));
        }
        let mut connection = Connection::open(&self.url, self.probe, self.http2).await?;
        let response = connection.send(request()?).await;
        Ok((response.map_err(|error| GetError::Http(origin, error))?, connection))
    }

    /// The origin of the URL: scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

impl Idle {
    fn take(&self, origin: &str) -> Option<Connection> {
        let mut place = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        place.take_if(|(of, _)| of == origin).map(|(_, connection)| connection)
    }

    /// Keeps a connection whose last response was read completely.
    pub(crate) fn keep(&self, origin: String, connection: Connection) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((origin, connection));
    }
}

/// A request as it is sent. `keep`: the connection stays open after the response.
///
/// # Errors
/// The URL cannot be requested.
pub fn request(
    method: Method,
    url: &Url,
    headers: &HeaderMap,
    body: Bytes,
    keep: bool,
) -> Result<Request<Full<Bytes>>, GetError> {
    let uri: Uri = url.as_str().parse().map_err(|_| GetError::Url(url.to_string()))?;
    let mut request = Request::new(Full::new(body));
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers.clone());
    if !keep {
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(request)
}

impl Connection {
    /// Connects to the host of a URL.
    ///
    /// # Errors
    /// The connection or the TLS handshake fails.
    pub async fn open(url: &Url, probe: bool, http2: bool) -> Result<Connection, GetError> {
        let (host, port) =
            url.host_str().zip(url.port_or_known_default()).ok_or_else(|| GetError::Url(url.to_string()))?;
        let failed = |error| GetError::Connect(format!("{host}:{port}"), error);
        let host = host.trim_matches(['[', ']']);
        let stream = connect(host, port, probe).await.map_err(failed)?;
        let handshake = if url.scheme() == "https" {
            let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
            let config = if http2 { &TLS.1 } else { &TLS.0 };
            let stream = TlsConnector::from(config.clone()).connect(name, stream).await.map_err(failed)?;
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Connection::start(stream, h2).await
        } else {
            Connection::start(stream, false).await
        };
        handshake.map_err(|error| GetError::Http(format!("{host}:{port}"), error))
    }

    async fn start<S>(stream: S, h2: bool) -> Result<Connection, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut driver = JoinSet::new();
        let stream = TokioIo::new(stream);
        let sender = if h2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            // An error of the connection is also one of its request.
            driver.spawn(async { drop(connection.await) });
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            driver.spawn(async { drop(connection.await) });
            Sender::Http1(sender)
        };
        Ok(Connection { sender, _driver: driver })
    }

    /// Sends a request with an absolute URI.
    ///
    /// # Errors
    /// The connection ends, or the response is not valid HTTP.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        let mut parts = request.uri().clone().into_parts();
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).and_then(|host| host.parse().ok());
        match &mut self.sender {
            Sender::Http1(sender) => {
                let authority = host.or(parts.authority.take());
                if let Some(host) = authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok()) {
                    request.headers_mut().insert(HOST, host);
                }
                let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
                *request.uri_mut() = Uri::from(path);
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                request.headers_mut().remove(CONNECTION);
                request.headers_mut().remove(HOST);
                parts.authority = host.or(parts.authority);
                if let Ok(uri) = Uri::from_parts(parts) {
                    *request.uri_mut() = uri;
                }
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Connects to the first address that answers.
pub(crate) async fn connect(host: &str, port: u16, probe: bool) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => tokio::net::lookup_host((host, port)).await?.take(ADDRESSES).collect(),
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        let attempt = async {
            if !probe {
                return TcpStream::connect(address).await;
            }
            let (socket, source) = match address {
                SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::V4(SOURCES.0)),
                SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::V6(SOURCES.1)),
            };
            socket.bind(SocketAddr::new(source, 0))?;
            socket.connect(address).await
        };
        match attempt.await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The source address of probes for a host, which is an address.
pub(crate) fn source(host: &str) -> IpAddr {
    if host.parse::<Ipv6Addr>().is_ok() { SOURCES.1.into() } else { SOURCES.0.into() }
}

/// Reads the first bytes of a body, and reports whether this is all of it.
pub async fn read(body: Incoming, limit: usize) -> (Bytes, bool) {
    let (mut read, mut body) = (Vec::new(), body);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (read.into(), false) };
        let data = frame.into_data().unwrap_or_default();
        read.extend_from_slice(&data[..data.len().min(limit - read.len())]);
        if read.len() == limit {
            return (read.into(), false);
        }
    }
    (read.into(), true)
}

fn is_followed(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// TLS without and with HTTP/2. Certificates are not verified, as by the kubelet: probes stay on this machine.
static TLS: LazyLock<(Arc<ClientConfig>, Arc<ClientConfig>)> = LazyLock::new(|| {
    let config = |protocols: &[&[u8]]| {
        let mut config = unverified(Possession::Ignored)
            .unwrap_or_else(|_| unreachable!("the provider supports the default versions"));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    };
    (config(&[]), config(&[b"h2", b"http/1.1"]))
});
