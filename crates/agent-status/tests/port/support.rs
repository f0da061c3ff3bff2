//! Servers and clients for the tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::exchange::Event;
use agent_core::exchange::Names;
use agent_status::settings::Prober;
use agent_status::{Channels, Running, Settings, start};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus::Registry;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// A status port with its channels.
pub(crate) struct Port {
    pub(crate) running: Running,
    pub(crate) names: watch::Sender<Names>,
    pub(crate) obstacle: watch::Sender<Option<&'static str>>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) registry: Registry,
}

/// Settings without Envoy and application.
pub(crate) fn settings() -> Settings {
    Settings {
        port: 0,
        admin: None,
        envoy_metrics: None,
        targets: vec![],
        local_metrics: false,
        probers: BTreeMap::new(),
        destination: "localhost".to_owned(),
        health_destination: "localhost".to_owned(),
        http2: true,
        keep_alive: false,
        grpc_bootstrap: None,
    }
}

impl Port {
    pub(crate) async fn open(settings: Settings) -> Port {
        Port::open_with(settings, None).await
    }

    /// Opens a port beside a DNS proxy if `names` is given.
    pub(crate) async fn open_with(settings: Settings, dns: Option<Names>) -> Port {
        let (names, receiver) = watch::channel(dns.clone().flatten());
        let (obstacle, obstacles) = watch::channel(None);
        let (sender, events) = mpsc::channel(4);
        let (stop, stopped) = watch::channel(false);
        let registry = Registry::new_custom(Some("istio_agent".to_owned()), None).unwrap();
        let channels = Channels { names: dns.map(|_| receiver), obstacle: obstacles, events: sender };
        let running = start(settings, channels, &registry, stopped).await.unwrap();
        Port { running, names, obstacle, events, stop, registry }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[]).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(SocketAddr::from(([127, 0, 0, 1], self.running.port)), method, path, headers).await
    }
}

/// A response, as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Sends a request in HTTP/1.0, whose responses have no chunks.
pub(crate) async fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{method} {path} HTTP/1.0\r\n{headers}\r\n").as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        response
    };
    let response = tokio::time::timeout(Duration::from_secs(30), exchange).await.expect("no response");
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("no head");
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: response[end + 4..].to_vec() }
}

/// A request that a server received.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) peer: SocketAddr,
    pub(crate) version: Version,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) host: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server that records its requests.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// A server in plain text; in HTTP/2 with prior knowledge if `h2`.
    pub(crate) async fn plain(h2: bool, answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Server {
        Server::run(h2, |stream| Box::pin(async { Ok(stream) }), answer).await
    }

    /// A server in TLS with a certificate of its own, which offers HTTP/2 and HTTP/1.1.
    pub(crate) async fn tls(answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static) -> Server {
        let signed = rcgen::generate_simple_self_signed(["elsewhere.example".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_no_client_auth().with_single_cert(vec![signed.cert.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Server::run(false, move |stream| Box::pin(acceptor.clone().accept(stream).into_fallible_future()), answer).await
    }

    async fn run<S>(
        h2: bool,
        wrap: impl Fn(TcpStream) -> BoxFuture<'static, Result<S, TcpStream>> + Send + 'static,
        answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    ) -> Server
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + Protocol + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Server { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (recorded, answer) = (server.seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (recorded, answer, wrapped) = (recorded.clone(), answer.clone(), wrap(stream));
                tokio::spawn(async move {
                    let Ok(stream) = wrapped.await else { return };
                    let h2 = h2 || stream.is_h2();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (recorded, answer) = (recorded.clone(), answer.clone());
                        async move {
                            let seen = seen(peer, request).await;
                            recorded.lock().unwrap().push(seen.clone());
                            Ok::<_, Infallible>(answer(&seen))
                        }
                    });
                    // The client may close the connection at any time.
                    let stream = TokioIo::new(stream);
                    let _ = if h2 {
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(stream, service)
                            .await
                    } else {
                        hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await
                    };
                });
            }
        });
        server
    }
}

/// The protocol that a connection agreed on.
pub(crate) trait Protocol {
    fn is_h2(&self) -> bool;
}

impl Protocol for TcpStream {
    fn is_h2(&self) -> bool {
        false
    }
}

impl Protocol for tokio_rustls::server::TlsStream<TcpStream> {
    fn is_h2(&self) -> bool {
        self.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}

/// Makes the error of a handshake the stream that failed.
trait Fallible {
    fn into_fallible_future(
        self,
    ) -> impl Future<Output = Result<tokio_rustls::server::TlsStream<TcpStream>, TcpStream>> + Send;
}

impl Fallible for tokio_rustls::Accept<TcpStream> {
    async fn into_fallible_future(self) -> Result<tokio_rustls::server::TlsStream<TcpStream>, TcpStream> {
        self.into_fallible().await.map_err(|(_, stream)| stream)
    }
}

async fn seen(peer: SocketAddr, request: Request<Incoming>) -> Seen {
    let (parts, body) = request.into_parts();
    let authority = parts.uri.authority().map(ToString::to_string);
    let host = parts.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
    Seen {
        peer,
        version: parts.version,
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        host: host.or(authority).unwrap_or_default(),
        headers: parts.headers,
        body: body.collect().await.map(|body| body.to_bytes()).unwrap_or_default(),
    }
}

/// A response.
pub(crate) fn response(status: u16, headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
    }
    response
}

/// A response that begins with some bytes and does not end.
pub(crate) fn endless(begin: &'static str) -> Response<Body> {
    let begin = futures::stream::iter([Ok(Frame::data(Bytes::from_static(begin.as_bytes())))]);
    let body = futures::StreamExt::chain(begin, futures::stream::pending());
    Response::new(StreamBody::new(body).boxed_unsync())
}

/// A response of the gRPC health service.
pub(crate) fn health(serving: u8) -> Response<Body> {
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let message = Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, serving]);
    let frames = futures::stream::iter([Ok(Frame::data(message)), Ok(Frame::trailers(trailers))]);
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// Probes with these paths, made from JSON as the injector writes it.
pub(crate) fn probers(json: &str) -> BTreeMap<String, Prober> {
    agent_status::settings::probers(json).unwrap()
}
