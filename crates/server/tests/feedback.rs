//! Feedback over real loopback sockets: ACKs and NACKs of clients become the status of objects.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use config::{Diagnostic, FieldPath, Observed, ParseOptions, Severity, parse_documents};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::Message as _;
use protos::envoy::config::core::v3::Node;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::google::rpc::Status as Error;
use registry::inputs::MeshSettings;
use server::{Observations, Options, Pace, SecretAccess, Server, WorldHandle};
use status::{Intent, Settings};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use world::{Batch, World};
use xds::Limits;

const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const LONG: Duration = Duration::from_secs(60);

const SERVICE: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: default, generation: 1, uid: s1}
spec:
  hosts: [shop.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.1.0.1}]
";

fn route(generation: i64, prefix: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: shop, namespace: default, generation: {generation}, uid: v1}}
spec:
  hosts: [shop.example.com]
  http:
  - match: [{{uri: {{prefix: {prefix}}}}}]
    route: [{{destination: {{host: shop.example.com}}}}]
"
    )
}

/// The server, its handle, and the receiver of statuses.
struct Plane {
    server: Server,
    world: WorldHandle,
    statuses: mpsc::Receiver<Vec<Intent>>,
    waiting: Vec<Intent>,
}

impl Plane {
    async fn start() -> Plane {
        let mesh = MeshSettings::default();
        let world = WorldHandle::start(World::new(mesh, 1), Limits::default(), Pace::UNLIMITED).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let options = Options {
            grpc: any,
            http: any,
            monitoring: any,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_connection_age: None,
            vhds: true,
            max_request_bytes: 64 << 10,
            secret_access: SecretAccess::None,
            registrar: None,
            socket: None,
            connections: Default::default(),
            security: Default::default(),
            limits: Limits::default(),
            version: "test".into(),
            instance: "test".into(),
        };
        let server = Server::start(options, world.clone()).await.unwrap();
        server.set_ready();
        // Short intervals for the test; unchanged statuses are delayed as usual.
        let settings = Settings {
            interval: Duration::from_millis(1),
            grace: Duration::from_millis(1),
            floor: Duration::from_millis(1),
            ..Settings::default()
        };
        let statuses = world.feedback(settings).await.unwrap();
        world.lead(true).await.unwrap();
        let waiting = Vec::new();
        Plane { server, world, statuses, waiting }
    }

    async fn apply(&self, yaml: &str) {
        let parsed = parse_documents(yaml.as_bytes(), "test.yaml", &ParseOptions::default());
        assert!(parsed.is_whole(), "{:?}", parsed.diagnostics);
        let (mut batch, mut observed) = (Batch::new(), Observations::new());
        for object in parsed.objects {
            let meta = object.meta();
            let seen = Observed {
                key: meta.key(),
                uid: meta.uid.clone(),
                generation: meta.generation,
                diagnostics: Vec::new(),
                assigned: false,
                parents: Vec::new(),
                status: None,
                original: None,
            };
            observed.insert(meta.key(), Some(seen));
            batch.put(object);
        }
        self.world.commit_observed(batch, observed).await.unwrap();
    }

    /// Waits for a status of the VirtualService with this summary: `REASON RUNNING+REFUSED+PENDING of GENERATION`.
    /// Returns all earlier summaries and the status.
    async fn until(&mut self, wanted: &str) -> (Vec<String>, Intent) {
        let mut seen = Vec::new();
        loop {
            while !self.waiting.is_empty() {
                let intent = self.waiting.remove(0);
                if &*intent.uid != "v1" {
                    continue;
                }
                seen.push(shown(&intent));
                if seen.last().is_some_and(|last| last == wanted) {
                    return (seen, intent);
                }
            }
            let next = tokio::time::timeout(LONG, self.statuses.recv()).await;
            let Ok(Some(batch)) = next else {
                panic!("{wanted} never came, but {seen:?}");
            };
            self.waiting.extend(batch);
        }
    }

    async fn page(&self, path: &str) -> String {
        let socket = TcpStream::connect(self.server.addresses().monitoring).await.unwrap();
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(path).header("host", "localhost:1");
        let response = send.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }
}

fn shown(intent: &Intent) -> String {
    let proxies = &intent.status.proxies;
    let counts = &proxies.counts;
    let (reason, generation) = (&intent.status.programmed.reason, proxies.generation);
    let (running, rejected, pending) = (counts.running, counts.rejected, counts.pending);
    format!("{reason} {running}+{rejected}+{pending} of {generation}")
}

/// A client with one stream, which sends ACKs and NACKs when the test calls for them.
struct Client {
    requests: mpsc::Sender<Bytes>,
    response: hyper::Response<Incoming>,
    received: BytesMut,
    _send: hyper::client::conn::http2::SendRequest<Open>,
}

impl Client {
    /// Connects as this pod, subscribes to clusters and acknowledges them, subscribes to the routes of port 80, and
    /// receives them.
    async fn connect(plane: &Plane, pod: &str) -> (Client, DiscoveryResponse) {
        let socket = TcpStream::connect(plane.server.addresses().grpc).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let (requests, body) = mpsc::channel(4);
        let request = Request::post(format!("http://rutter{SOTW}")).header("content-type", "application/grpc");
        let first = DiscoveryRequest {
            node: Some(Node {
                id: format!("sidecar~10.0.0.1~{pod}.default~default.svc.cluster.local"),
                ..Node::default()
            }),
            type_url: CDS.into(),
            ..DiscoveryRequest::default()
        };
        requests.send(framed(&first)).await.unwrap();
        let response = send.send_request(request.body(Open(body)).unwrap()).await.unwrap();
        let mut client = Client { requests, response, received: BytesMut::new(), _send: send };
        let clusters = client.next().await;
        client.answer(&clusters, None).await;
        client
            .say(DiscoveryRequest {
                type_url: RDS.into(),
                resource_names: vec!["80".into()],
                ..DiscoveryRequest::default()
            })
            .await;
        let routes = client.next().await;
        assert_eq!(routes.type_url, RDS);
        (client, routes)
    }

    async fn next(&mut self) -> DiscoveryResponse {
        let whole = |bytes: &BytesMut| {
            let head = bytes.get(1..5)?;
            let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
            (bytes.len() >= 5 + length).then_some(length)
        };
        let length = loop {
            if let Some(length) = whole(&self.received) {
                break length;
            }
            let frame = tokio::time::timeout(LONG, self.response.frame()).await;
            let data = frame.unwrap().unwrap().unwrap().into_data().unwrap();
            self.received.extend_from_slice(&data);
        };
        self.received.advance(5);
        DiscoveryResponse::decode(self.received.split_to(length).freeze()).unwrap()
    }

    async fn answer(&self, response: &DiscoveryResponse, rejection: Option<&str>) {
        let names = if response.type_url == RDS { vec!["80".into()] } else { Vec::new() };
        self.say(DiscoveryRequest {
            type_url: response.type_url.clone(),
            version_info: response.version_info.clone(),
            response_nonce: response.nonce.clone(),
            resource_names: names,
            error_detail: rejection.map(|message| Error { code: 13, message: message.into(), ..Error::default() }),
            ..DiscoveryRequest::default()
        })
        .await;
    }

    async fn say(&self, request: DiscoveryRequest) {
        self.requests.send(framed(&request)).await.unwrap();
    }
}

fn framed(request: &DiscoveryRequest) -> Bytes {
    let message = request.encode_to_vec();
    let mut out = BytesMut::from(&[0][..]);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&message);
    out.freeze()
}

/// A body that ends with its channel.
struct Open(mpsc::Receiver<Bytes>);

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

#[tokio::test]
async fn acks_nacks_and_pending_responses_are_counted() {
    let mut plane = Plane::start().await;
    plane.apply(&format!("{SERVICE}---{}", route(1, "/a"))).await;
    let (seen, _) = plane.until("NoProxies 0+0+0 of 1").await;
    assert_eq!(seen.len(), 1);

    let (mut good, first) = Client::connect(&plane, "good").await;
    good.answer(&first, None).await;
    let (mut bad, first) = Client::connect(&plane, "bad").await;
    bad.answer(&first, None).await;
    let (mut silent, first) = Client::connect(&plane, "silent").await;
    silent.answer(&first, None).await;

    plane.apply(&route(2, "/b")).await;
    // Intermediate statuses depend on timing, so only the result is checked.
    plane.until("Pending 0+0+3 of 2").await;
    let response = good.next().await;
    assert_eq!(response.type_url, RDS);
    good.answer(&response, None).await;
    let (seen, _) = plane.until("Pending 1+0+2 of 2").await;
    assert_eq!(seen.len(), 1);

    let words = "route 80: no such filter";
    let rejected = bad.next().await;
    bad.answer(&rejected, Some(words)).await;
    // The table with the last good version of what changed: the proxy accepts it, so the change is to blame.
    let without = bad.next().await;
    let holds = |text: &str| without.resources[0].value.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(holds("/a") && !holds("/b"));
    bad.answer(&without, None).await;
    let (seen, intent) = plane.until("Rejected 1+1+1 of 2").await;
    assert_eq!(seen.len(), 1);
    let json = intent.status.to_json();
    let rejection = serde_json::json!({"proxy": "bad.default", "type": "RDS", "resource": "80", "message": words});
    assert_eq!(json["proxies"]["rejection"], rejection);
    assert_eq!(json["conditions"][0]["status"], "True");
    assert_eq!(json["conditions"][1]["message"], format!("1 of 3 proxies rejects it; bad.default: {words}"));

    let page = plane.page("/debug/objectz").await;
    assert!(page.contains(words), "{page}");
    let metrics = plane.page("/metrics").await;
    assert!(metrics.contains("rutter_objects{state=\"rejected\"} 1"), "{metrics}");

    // A valid version fixes the NACK, and a disconnected proxy is no longer counted.
    plane.apply(&route(3, "/c")).await;
    for client in [&mut good, &mut bad] {
        let response = client.next().await;
        client.answer(&response, None).await;
    }
    plane.until("Pending 2+0+1 of 3").await;
    let late = silent.next().await;
    silent.answer(&late, None).await;
    let latest = silent.next().await;
    assert_ne!(late.nonce, latest.nonce);
    silent.answer(&latest, None).await;
    let (_, intent) = plane.until("Programmed 3+0+0 of 3").await;
    assert!(intent.status.to_json()["proxies"].get("rejection").is_none());
    drop((good, bad, silent));
    plane.server.shut_down(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn invalid_and_deleted_objects_are_reported() {
    let mut plane = Plane::start().await;
    plane.apply(&format!("{SERVICE}---{}", route(1, "/a"))).await;
    plane.until("NoProxies 0+0+0 of 1").await;
    let key = config::ObjectKey::new(config::Kind::VirtualService, "default", "shop");
    let problem = Diagnostic {
        file: None,
        line: 0,
        column: 0,
        object: Some(key.clone()),
        path: FieldPath::spec().field("http").index(0),
        severity: Severity::Error,
        code: "bad-value",
        message: "has no route".into(),
        hint: None,
    };
    let subject = Observed {
        key: key.clone(),
        uid: "v1".into(),
        generation: 2,
        diagnostics: vec![problem],
        assigned: false,
        parents: Vec::new(),
        status: None,
        original: None,
    };
    let seen = [(key.clone(), Some(subject))].into();
    plane.world.commit_observed(Batch::new(), seen).await.unwrap();
    let (_, intent) = plane.until("Invalid 0+0+0 of 1").await;
    let json = intent.status.to_json();
    assert_eq!(json["observedGeneration"], 2);
    assert_eq!(json["conditions"][0]["message"], "spec.http[0]: has no route");
    assert!(plane.page("/debug/objectz").await.contains("VirtualService"));

    let mut batch = Batch::new();
    batch.remove(&key);
    plane.world.commit_observed(batch, [(key, None)].into()).await.unwrap();
    assert!(!plane.page("/debug/objectz").await.contains("VirtualService"));
    plane.server.shut_down(Duration::from_secs(10)).await;
}
