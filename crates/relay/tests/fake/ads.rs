//! A control plane that serves what a test sets, and records all requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use protos::{Any, Message};
use test_harness::run::{grpc_message, next_grpc_message};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A recorded request.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    pub stream: usize,
    pub type_url: String,
    pub version: String,
    pub nonce: String,
    pub error: Option<String>,
    pub is_delta: bool,
}

type Resources = BTreeMap<String, (u64, Vec<(String, Any)>)>;
/// A type, the version of its resources, and the resources.
type Update = (String, u64, Vec<(String, Any)>);

#[derive(Default)]
struct State {
    resources: watch::Sender<Resources>,
    requests: Mutex<Vec<Seen>>,
    headers: Mutex<Vec<HeaderMap>>,
    sent: Mutex<usize>,
    refusal: Mutex<Option<(u32, &'static str)>>,
}

/// The control plane. It ends when it is dropped.
pub struct Ads {
    pub address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

impl Ads {
    pub async fn start() -> Ads {
        Ads::start_at(([127, 0, 0, 1], 0).into()).await
    }

    pub async fn start_at(address: SocketAddr) -> Ads {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        // A proxy asks for listeners when it has the clusters.
        state.resources.send_replace([(CLUSTERS.to_owned(), (1, vec![]))].into());
        let (served, mut tasks) = (state.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let state = served.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| {
                        let response = call(state.clone(), request);
                        async { Ok::<_, Infallible>(response) }
                    });
                    let _ =
                        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
                });
            }
        });
        Ads { address, state, _tasks: tasks }
    }

    /// Sets the resources of a type, and sends them to all streams that subscribed to it.
    pub fn set(&self, type_url: &str, resources: Vec<(&str, Any)>) {
        let resources = resources.into_iter().map(|(name, resource)| (name.to_owned(), resource)).collect();
        self.state.resources.send_modify(|all| {
            let version = all.get(type_url).map_or(1, |(version, _)| version + 1);
            all.insert(type_url.to_owned(), (version, resources));
        });
    }

    /// The requests of a type, or all.
    pub fn requests(&self, type_url: &str) -> Vec<Seen> {
        let requests = self.state.requests.lock().unwrap();
        requests.iter().filter(|seen| type_url.is_empty() || seen.type_url == type_url).cloned().collect()
    }

    pub fn headers(&self) -> Vec<HeaderMap> {
        self.state.headers.lock().unwrap().clone()
    }

    /// Refuses further streams with this status.
    pub fn refuse(&self, code: u32, message: &'static str) {
        *self.state.refusal.lock().unwrap() = Some((code, message));
    }

    /// The number of responses that were sent.
    pub fn sent(&self) -> usize {
        *self.state.sent.lock().unwrap()
    }
}

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

fn call(state: Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let is_delta = request.uri().path().ends_with("/DeltaAggregatedResources");
    let stream = {
        let mut headers = state.headers.lock().unwrap();
        headers.push(request.headers().clone());
        headers.len()
    };
    if let Some((code, message)) = *state.refusal.lock().unwrap() {
        let refused = Response::builder().header("content-type", "application/grpc").header("grpc-status", code);
        let empty = http_body_util::Empty::new().boxed();
        return refused.header("grpc-message", message).body(empty).unwrap();
    }
    let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    tokio::spawn(serve(state, stream, is_delta, request.into_body(), sender));
    let frames = futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let mut response = Response::new(StreamBody::new(frames).boxed());
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    response
}

async fn serve(
    state: Arc<State>,
    stream: usize,
    is_delta: bool,
    mut body: Incoming,
    sender: mpsc::Sender<Result<Frame<Bytes>, Infallible>>,
) {
    let mut changes = state.resources.subscribe();
    let mut received = BytesMut::new();
    let mut sent: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let wanted: Vec<Update> = {
            let all = changes.borrow_and_update();
            let due = sent.iter().filter_map(|(type_url, version)| {
                let (current, resources) = all.get(type_url)?;
                (current > version).then(|| (type_url.clone(), *current, resources.clone()))
            });
            due.collect()
        };
        for (type_url, version, resources) in wanted {
            sent.insert(type_url.clone(), version);
            *state.sent.lock().unwrap() += 1;
            let frame = Frame::data(response(is_delta, &type_url, version, resources));
            if sender.send(Ok(frame)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(frame)) => received.extend_from_slice(&frame.into_data().unwrap_or_default()),
                _ => return,
            },
            changed = changes.changed() => if changed.is_err() { return },
            () = sender.closed() => return,
        }
        while let Some(message) = next_grpc_message(&mut received) {
            let seen = read(&message, stream, is_delta);
            sent.entry(seen.type_url.clone()).or_default();
            state.requests.lock().unwrap().push(seen);
        }
    }
}

fn read(message: &[u8], stream: usize, is_delta: bool) -> Seen {
    if is_delta {
        let request = DeltaDiscoveryRequest::decode(message).unwrap();
        let error = request.error_detail.map(|status| status.message);
        return Seen {
            stream,
            type_url: request.type_url,
            version: String::new(),
            nonce: request.response_nonce,
            error,
            is_delta,
        };
    }
    let request = DiscoveryRequest::decode(message).unwrap();
    let error = request.error_detail.map(|status| status.message);
    Seen {
        stream,
        type_url: request.type_url,
        version: request.version_info,
        nonce: request.response_nonce,
        error,
        is_delta,
    }
}

fn response(is_delta: bool, type_url: &str, version: u64, resources: Vec<(String, Any)>) -> Bytes {
    let (type_url, version_info, nonce) = (type_url.to_owned(), format!("v{version}"), format!("n{version}"));
    let message = if is_delta {
        let resources = resources.into_iter().map(|(name, resource)| Resource {
            name,
            version: version_info.clone(),
            resource: Some(resource),
            ..Resource::default()
        });
        DeltaDiscoveryResponse { type_url, nonce, resources: resources.collect(), ..Default::default() }.encode_to_vec()
    } else {
        let resources = resources.into_iter().map(|(_, resource)| resource).collect();
        DiscoveryResponse { type_url, version_info, nonce, resources, ..Default::default() }.encode_to_vec()
    };
    grpc_message(&message).unwrap()
}
