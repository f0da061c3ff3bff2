//! The server over real loopback sockets: responses to clients that violate the protocol, and shutdown.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use config::MeshConfig;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::Message as _;
use protos::envoy::config::core::v3::Node;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse};
use registry::inputs::MeshSettings;
use server::{Options, Pace, SecretAccess, Server, WorldHandle};
use tokio::net::TcpStream;
use world::World;
use xds::Limits;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LIMIT: usize = 64 << 10;

fn world() -> WorldHandle {
    let config = MeshConfig::default();
    let mesh = MeshSettings { config, ..MeshSettings::default() };
    WorldHandle::start(World::new(mesh, 1), Limits::default(), Pace::UNLIMITED).unwrap()
}

fn options() -> Options {
    let any = "127.0.0.1:0".parse().unwrap();
    Options {
        grpc: any,
        http: any,
        monitoring: any,
        keepalive_interval: Duration::from_secs(30),
        keepalive_timeout: Duration::from_secs(10),
        max_connection_age: None,
        vhds: true,
        max_request_bytes: LIMIT,
        secret_access: SecretAccess::None,
        registrar: None,
        socket: None,
        connections: Default::default(),
        security: Default::default(),
        limits: Limits::default(),
        version: "test".into(),
        instance: "test".into(),
    }
}

async fn start() -> Server {
    start_with(options()).await
}

async fn start_with(options: Options) -> Server {
    Server::start(options, world()).await.unwrap()
}

fn framed(flag: u8, message: &[u8]) -> Bytes {
    let mut out = BytesMut::from(&[flag][..]);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(message);
    out.freeze()
}

fn node() -> Node {
    Node { id: "sidecar~10.0.0.1~a.default~default.svc.cluster.local".into(), ..Default::default() }
}

/// Begins HTTP/2. Returns the connection, which ends with an error if the server violates the protocol.
async fn http2<B>(
    socket: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
) -> (hyper::client::conn::http2::SendRequest<B>, tokio::task::JoinHandle<hyper::Result<()>>)
where
    B: http_body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + Unpin + 'static,
{
    let (send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    (send, tokio::spawn(connection))
}

/// Sends one complete request. Returns the final status (`None` if the call is still open) and the messages before it.
async fn call(server: &Server, path: &str, body: Bytes) -> (Option<String>, Vec<Bytes>) {
    let (mut send, _) = http2(TcpStream::connect(server.addresses().grpc).await.unwrap()).await;
    let request = Request::post(format!("http://rutter{path}"))
        .header("content-type", "application/grpc")
        .body(Full::new(body))
        .unwrap();
    let mut response = send.send_request(request).await.unwrap();
    let status = |headers: &http::HeaderMap| headers.get("grpc-status").map(|s| s.to_str().unwrap().to_owned());
    if let Some(status) = status(response.headers()) {
        return (Some(status), Vec::new());
    }
    let mut messages = Vec::new();
    while let Some(frame) = response.frame().await {
        match frame.unwrap().into_data() {
            Ok(data) => messages.push(data),
            Err(frame) => return (status(frame.trailers_ref().unwrap()), messages),
        }
    }
    (None, messages)
}

async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    get_as(address, path, "localhost:1").await
}

async fn get_as(address: std::net::SocketAddr, path: &str, host: &str) -> (u16, String) {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(path).header("host", host).body(Full::<Bytes>::default()).unwrap();
    let response = send.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_client_that_violates_the_protocol_gets_a_status() {
    let server = start().await;
    server.set_ready();
    let no_node = DiscoveryRequest { type_url: CDS.into(), ..Default::default() }.encode_to_vec();
    let odd = Node { id: "sidecar~nowhere".into(), ..Default::default() };
    let odd = DiscoveryRequest { node: Some(odd), type_url: CDS.into(), ..Default::default() }.encode_to_vec();
    let cases = [
        ("an unknown method", "/no.Such/Method", framed(0, b""), "12"),
        ("garbage", SOTW, framed(0, b"\xff\xff\xff"), "3"),
        ("garbage, incremental", DELTA, framed(0, b"\xff\xff\xff"), "3"),
        ("no node", SOTW, framed(0, &no_node), "3"),
        ("an odd node", SOTW, framed(0, &odd), "3"),
        ("a compressed message", DELTA, framed(1, b"x"), "12"),
        ("a message cut short", SOTW, framed(0, b"abc").slice(..6), "3"),
        ("a large message", SOTW, framed(0, &vec![0; LIMIT + 1]), "8"),
        ("nothing", SOTW, Bytes::new(), "0"),
    ];
    for (what, path, body, expected) in cases {
        let (status, messages) = call(&server, path, body).await;
        assert_eq!((status.as_deref(), messages.len()), (Some(expected), 0), "{what}");
    }
    server.shut_down(Duration::from_secs(10)).await;
}

/// Requests a debug type over xDS. Returns the final status and the response.
async fn debug(server: &Server, kind: &str, names: &[&str]) -> (Option<String>, Option<DiscoveryResponse>) {
    let request = DiscoveryRequest {
        type_url: kind.into(),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        // `istioctl` sends a time.
        response_nonce: "2026-11-24 01:00:00.000000001 +0000 UTC m=+0.1".into(),
        ..Default::default()
    };
    let acknowledged = DiscoveryRequest { response_nonce: "1".into(), ..request.clone() };
    let requests = [framed(0, &request.encode_to_vec()), framed(0, &acknowledged.encode_to_vec())].concat().into();
    let (status, messages) = call(server, SOTW, requests).await;
    assert!(messages.concat().len() < 5 || is_single(&messages.concat()), "an ACK has no response");
    let response = messages.concat().get(5..).map(|message| DiscoveryResponse::decode(message).unwrap());
    (status, response)
}

/// Whether bytes are one message of gRPC.
fn is_single(bytes: &[u8]) -> bool {
    let length = bytes.get(1..5).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
    length.is_some_and(|length| bytes.len() == 5 + length as usize)
}

#[tokio::test]
async fn istioctl_reads_debug_pages_over_xds() {
    let server = start().await;
    server.set_ready();
    let (status, response) = debug(&server, "istio.io/debug", &["mesh"]).await;
    let response = response.unwrap();
    assert_eq!(status.as_deref(), Some("0"));
    let identifier = response.control_plane.unwrap().identifier;
    assert_eq!(identifier, r#"{"Component":"istiod","ID":"test","Info":{"version":"test"}}"#);
    let page: serde_json::Value = serde_json::from_slice(&response.resources[0].value).unwrap();
    assert!(page.is_object(), "{page}");
    assert_eq!(response.resources[0].type_url, "istio.io/debug");
    let (_, unknown) = debug(&server, "istio.io/debug", &["config_dump?proxyID=nobody.here"]).await;
    let text = String::from_utf8(unknown.unwrap().resources[0].value.to_vec()).unwrap();
    // istioctl asks the next instance if it finds this text.
    assert!(text.starts_with("Proxy not connected to this Pilot instance"), "{text}");

    let (status, response) = debug(&server, "istio.io/debug/syncz", &[]).await;
    assert_eq!((status.as_deref(), response.unwrap().resources.len()), (Some("0"), 0));
    for (kind, names, expected) in [
        ("istio.io/debug", &[][..], "3"),
        ("istio.io/debug/nothing", &[], "3"),
        ("istio.io/debug/config_dump", &["nobody.here"], "5"),
    ] {
        let (status, response) = debug(&server, kind, names).await;
        assert_eq!((status.as_deref(), response), (Some(expected), None), "{kind} {names:?}");
    }
    server.shut_down(Duration::from_secs(10)).await;
}

/// A client with a stream that stays open.
struct Subscriber {
    response: hyper::Response<hyper::body::Incoming>,
    connection: tokio::task::JoinHandle<hyper::Result<()>>,
    _kept: (tokio::sync::mpsc::Sender<Bytes>, Sender),
}

impl Subscriber {
    /// Subscribes to clusters, and receives them.
    async fn connect(server: &Server) -> (Subscriber, DiscoveryResponse) {
        let (send, connection) = http2(TcpStream::connect(server.addresses().grpc).await.unwrap()).await;
        let first = DiscoveryRequest { node: Some(node()), type_url: CDS.into(), ..Default::default() };
        let (kept, mut response) = open(send, &framed(0, &first.encode_to_vec())).await;
        let mut received = BytesMut::new();
        while received.len() < 5 || received.len() < 5 + u32::from_be_bytes(received[1..5].try_into().unwrap()) as usize
        {
            received.extend_from_slice(&response.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        let message = DiscoveryResponse::decode(&received[5..]).unwrap();
        (Subscriber { response, connection, _kept: kept }, message)
    }

    /// Waits for the end of the stream, and returns its status.
    async fn end(&mut self) -> String {
        loop {
            if let Ok(trailers) = self.response.frame().await.unwrap().unwrap().into_trailers() {
                return trailers["grpc-status"].to_str().unwrap().to_owned();
            }
        }
    }
}

#[tokio::test]
async fn a_connection_ends_at_its_maximum_age() {
    let server = start_with(Options { max_connection_age: Some(Duration::from_secs(1)), ..options() }).await;
    server.set_ready();
    let (mut subscriber, _) = Subscriber::connect(&server).await;
    assert_eq!(subscriber.end().await, "14");
    // The server has sent GOAWAY: the client sends no new call, although its half of the stream is open.
    subscriber.connection.await.unwrap().unwrap();
    let (mut again, message) = Subscriber::connect(&server).await;
    assert_eq!(message.type_url, CDS);
    assert_eq!(again.end().await, "14");
    server.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_stream_is_answered_and_ends_with_the_server() {
    let server = Arc::new(start().await);
    server.set_ready();
    let (mut subscriber, message) = Subscriber::connect(&server).await;
    assert_eq!(message.type_url, CDS);
    assert_eq!(message.resources.len(), 3, "the three fixed clusters of a sidecar");
    let (status, page) = get(server.addresses().monitoring, "/debug/syncz").await;
    assert_eq!(status, 200);
    assert!(page.contains("\"a.default\""), "{page}");
    let (_, metrics) = get(server.addresses().monitoring, "/metrics").await;
    for line in [
        "# TYPE pilot_xds_pushes counter",
        "pilot_xds_pushes{type=\"cds\"} 1",
        "pilot_xds_push_time_count{type=\"cds\"} 1",
        "pilot_xds_config_size_bytes_count{type=\"cds\"} 1",
        "istio_build{component=\"pilot\",tag=\"test\"} 1",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line} is not in:\n{metrics}");
    }
    // The syncz page over xDS, in Envoy's form.
    let (_, synced) = debug(&server, "istio.io/debug/syncz", &[]).await;
    let client =
        protos::json("type.googleapis.com/envoy.service.status.v3.ClientConfig", &synced.unwrap().resources[0].value)
            .unwrap();
    assert_eq!(client["node"]["id"], "a.default");
    assert_eq!(client["genericXdsConfigs"][0]["typeUrl"], CDS);
    assert_eq!(client["genericXdsConfigs"][0]["configStatus"], "STALE");
    let (_, dump) = debug(&server, "istio.io/debug/config_dump", &["a.default"]).await;
    let kinds: Vec<String> = dump.unwrap().resources.into_iter().map(|section| section.type_url).collect();
    assert!(kinds.contains(&"type.googleapis.com/envoy.admin.v3.ClustersConfigDump".to_owned()), "{kinds:?}");
    let http = server.addresses().http;
    assert_eq!(get(http, "/ready").await.0, 200);
    let server = Arc::into_inner(server).unwrap();
    let ended = tokio::spawn(server.shut_down(Duration::from_secs(10)));
    assert_eq!(subscriber.end().await, "14");
    drop(subscriber);
    ended.await.unwrap();
}

#[tokio::test]
async fn the_server_is_not_ready_before_set_ready() {
    let server = start().await;
    assert_eq!(get(server.addresses().http, "/ready").await.0, 503);
    for path in ["/version", "//version"] {
        assert_eq!(get(server.addresses().monitoring, path).await, (200, "test".to_owned()), "{path}");
    }
    assert_eq!(get(server.addresses().monitoring, "/debug/config_dump").await.0, 400);
    assert_eq!(get(server.addresses().monitoring, "/debug/config_dump?proxyID=nobody").await.0, 404);
    assert_eq!(get(server.addresses().monitoring, "/debug/nothing").await.0, 404);
    assert!(get(server.addresses().monitoring, "/debug/recompute").await.1.contains("\"agrees\": true"));
    server.set_ready();
    assert_eq!(get(server.addresses().http, "/ready").await.0, 200);
    let wrong = DeltaDiscoveryRequest { type_url: CDS.into(), ..Default::default() }.encode_to_vec();
    assert_eq!(call(&server, DELTA, framed(0, &wrong)).await.0.as_deref(), Some("3"));
    server.shut_down(Duration::from_secs(10)).await;
}

/// A body that ends with its channel.
struct Open(tokio::sync::mpsc::Receiver<Bytes>);

impl http_body::Body for Open {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|next| next.map(|data| Ok(http_body::Frame::data(data))))
    }
}

/// The options of tests, with short limits of time.
fn impatient() -> Options {
    let short = listeners::Limits {
        shared: None,
        connections: 4,
        first_request: Duration::from_millis(200),
        idle: Duration::from_millis(200),
    };
    let connections = server::ConnectionLimits { grpc: short.clone(), http: short.clone(), monitoring: short };
    Options { connections, ..options() }
}

/// Reads until the server closes the connection.
async fn closed(mut socket: impl tokio::io::AsyncRead + Unpin) {
    let mut received = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut received);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the connection is closed");
}

#[tokio::test]
async fn silent_connections_are_closed_and_do_not_lock_out_others() {
    let server = start_with(impatient()).await;
    server.set_ready();
    let at = server.addresses();
    let mut silent = Vec::new();
    for address in [at.grpc, at.http, at.monitoring] {
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
    }
    assert_eq!(get(at.http, "/ready").await.0, 200);
    assert_eq!(get(at.monitoring, "/version").await.0, 200);
    let (status, _) = call(&server, SOTW, Bytes::new()).await;
    assert_eq!(status.as_deref(), Some("0"));
    for socket in silent {
        closed(socket).await;
    }
    server.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_stream_without_a_request_ends() {
    let server = start_with(impatient()).await;
    server.set_ready();
    let (send, _) = http2(TcpStream::connect(server.addresses().grpc).await.unwrap()).await;
    // A message that is not complete is no request, either.
    let (kept, mut response) = open(send, &framed(0, b"abc").slice(..6)).await;
    let trailers = response.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(trailers["grpc-status"], "4");
    drop(kept);
}

#[tokio::test]
async fn a_large_first_request_may_wait_for_memory() {
    let largest = 128 << 10;
    let limits = Limits::sized(largest, 100_000);
    let server = start_with(Options { max_request_bytes: largest, limits, ..impatient() }).await;
    server.set_ready();
    let at = server.addresses().grpc;
    let names = (0..5_000).map(|number| format!("a-cluster-{number}")).collect();
    let first =
        DiscoveryRequest { node: Some(node()), type_url: CDS.into(), resource_names: names, ..Default::default() };
    let first = framed(0, &first.encode_to_vec());
    assert!(first.len() > largest / 2 && first.len() < largest);
    let connect = async || http2(TcpStream::connect(at).await.unwrap()).await.0;
    // It has the memory of its address until its rest arrives.
    let (begun, _) = open(connect().await, &first.slice(..10)).await;
    let (_kept, mut waiting) = open(connect().await, &first).await;
    let (_silent, mut silent) = open(connect().await, &Bytes::from_static(b"\0")).await;
    let late = silent.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(late["grpc-status"], "4", "the time for a first request is over");
    begun.0.send(first.slice(10..)).await.unwrap();
    assert!(waiting.frame().await.unwrap().unwrap().is_data());
}

#[tokio::test]
async fn a_unix_socket_proves_the_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let socket = server::UnixSocket { path: path.clone(), users: Vec::new(), required: true };
    let secret_access = SecretAccess::Authenticated;
    let server = start_with(Options { socket: Some(socket), secret_access, ..options() }).await;
    server.set_ready();
    let first = DiscoveryRequest { node: Some(node()), type_url: CDS.into(), ..Default::default() };
    let body = framed(0, &first.encode_to_vec());
    let (send, _) = http2(tokio::net::UnixStream::connect(&path).await.unwrap()).await;
    let (_local, mut local_response) = open(send, &body).await;
    assert!(local_response.frame().await.unwrap().unwrap().is_data());
    let (_, page) = get(server.addresses().monitoring, "/debug/syncz").await;
    assert!(page.contains("\"secrets\": \"served\""), "{page}");
    let (send, _) = http2(TcpStream::connect(server.addresses().grpc).await.unwrap()).await;
    let (_remote, mut remote_response) = open(send, &body).await;
    assert!(remote_response.frame().await.unwrap().unwrap().is_data());
    let (_, page) = get(server.addresses().monitoring, "/debug/syncz").await;
    assert!(page.contains("refused (--secrets-for)"), "{page}");
}

type Sender = hyper::client::conn::http2::SendRequest<Open>;

/// Opens a stream with this first message. It stays open as long as the returned sender.
async fn open(
    mut send: Sender,
    first: &Bytes,
) -> ((tokio::sync::mpsc::Sender<Bytes>, Sender), http::Response<hyper::body::Incoming>) {
    let (requests, body) = tokio::sync::mpsc::channel::<Bytes>(4);
    requests.send(first.clone()).await.unwrap();
    let request = Request::post(format!("http://rutter{SOTW}")).header("content-type", "application/grpc");
    let response = send.send_request(request.body(Open(body)).unwrap()).await.unwrap();
    ((requests, send), response)
}

#[tokio::test]
async fn a_request_may_be_as_large_as_the_settings_say() {
    let limits = Limits::sized(8 << 20, 300_000);
    let server = start_with(Options { max_request_bytes: 8 << 20, limits, ..options() }).await;
    server.set_ready();
    // Larger than gRPC's usual limit of 4 MiB.
    let names = (0..200_000).map(|number| format!("a-cluster-that-the-proxy-has-{number}")).collect();
    let first =
        DiscoveryRequest { node: Some(node()), type_url: CDS.into(), resource_names: names, ..Default::default() };
    let encoded = first.encode_to_vec();
    assert!(encoded.len() > 4 << 20);
    // The client ends the request at once, so that it may get no response.
    assert_eq!(call(&server, SOTW, framed(0, &encoded)).await.0.as_deref(), Some("0"));
}

#[tokio::test]
async fn another_control_plane_does_not_get_everything_again_without_end() {
    let world = world();
    let configuration = world.configuration();
    let server = Server::start_with(options(), world, Some(configuration)).await.unwrap();
    server.set_ready();
    let fields =
        [("GENERATOR".to_owned(), protos::Value { kind: Some(protos::value::Kind::StringValue("api".into())) })];
    let metadata = protos::Struct { fields: fields.into() };
    let node = Node { metadata: Some(metadata), ..node() };
    let mesh = DiscoveryRequest { node: Some(node), type_url: "core/v1alpha1/MeshConfig".into(), ..Default::default() };
    let body: Vec<u8> = (0..100).flat_map(|_| framed(0, &mesh.encode_to_vec())).collect();
    let (status, messages) = call(&server, SOTW, body.into()).await;
    assert_eq!(status.as_deref(), Some("8"));
    assert!((1..100).contains(&messages.len()), "{}", messages.len());
}

#[tokio::test]
async fn pages_check_the_host_and_readiness_fails_at_once() {
    let server = start().await;
    server.set_ready();
    let at = server.addresses();
    for (host, path, expected) in [
        ("evil.example", "/debug/configz", 421),
        ("evil.example:15014", "/metrics", 421),
        ("evil.example", "/ready", 200),
        ("127.0.0.1:1", "/metrics", 200),
        ("[::1]:1", "/debug", 200),
        ("localhost", "/debug/syncz", 200),
    ] {
        assert_eq!(get_as(at.monitoring, path, host).await.0, expected, "{host}{path}");
    }
    server.set_stopping();
    assert_eq!(get(at.http, "/ready").await, (503, "not ready: the server is shutting down\n".to_owned()));
}
