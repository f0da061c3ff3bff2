//! An endpoint picker of an InferencePool: an external processor over gRPC, `envoy.service.ext_proc.v3.ExternalProcessor`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::HeaderMap;
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderValue;
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::envoy::config::core::v3::Metadata;
use protos::wire::{Reader, Value, put_bytes};
use protos::{Message as _, Struct, value};
use test_harness::run::{Result, grpc_message, next_grpc_message};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The namespace of the metadata in which picker and proxy tell each other the endpoint.
const NAMESPACE: &str = "envoy.lb";

/// A picker that selects the same endpoints for all requests.
#[derive(Debug)]
pub struct Picker {
    address: SocketAddr,
    state: Arc<State>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    selected: Mutex<String>,
    asked: AtomicU64,
    /// The bytes of bodies of requests.
    received: AtomicU64,
    served: Mutex<String>,
}

impl Picker {
    /// Starts a picker on a free loopback port.
    pub async fn start() -> Result<Picker> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(answer(state, request.into_body())) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        Ok(Picker { address, state, server })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Selects these endpoints (`IP:PORT,…`) from now on.
    pub fn select(&self, endpoints: &str) {
        *self.state.selected.lock().unwrap_or_else(PoisonError::into_inner) = endpoints.to_owned();
    }

    /// The number of requests that it was asked about.
    pub fn asked(&self) -> u64 {
        self.state.asked.load(Ordering::Acquire)
    }

    /// The number of bytes that it received of bodies of requests.
    pub fn received(&self) -> u64 {
        self.state.received.load(Ordering::Acquire)
    }

    /// The endpoint that served the last request, as the proxy reports it.
    pub fn served(&self) -> String {
        self.state.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Picker {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Frames = BoxStream<'static, std::result::Result<Frame<Bytes>, Infallible>>;

/// Answers each message of a stream with one.
fn answer(state: Arc<State>, body: Incoming) -> hyper::Response<StreamBody<Frames>> {
    struct Call {
        state: Arc<State>,
        body: Incoming,
        received: BytesMut,
        ready: VecDeque<Frame<Bytes>>,
        ended: bool,
    }
    let call = Call { state, body, received: BytesMut::new(), ready: VecDeque::new(), ended: false };
    let frames = futures::stream::unfold(call, |mut call| async move {
        loop {
            if let Some(frame) = call.ready.pop_front() {
                return Some((Ok(frame), call));
            }
            if call.ended {
                return None;
            }
            match call.body.frame().await {
                Some(Ok(frame)) => call.received.extend_from_slice(&frame.into_data().unwrap_or_default()),
                _ => {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    call.ready.push_back(Frame::trailers(trailers));
                    call.ended = true;
                }
            }
            while let Some(message) = next_grpc_message(&mut call.received) {
                let reply = call.state.reply(&message).and_then(|reply| grpc_message(&reply).ok());
                call.ready.extend(reply.map(Frame::data));
            }
        }
    });
    let mut response = hyper::Response::new(StreamBody::new(frames.boxed()));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

impl State {
    /// The `ProcessingResponse` to a `ProcessingRequest`. Headers and bodies stay as they are.
    fn reply(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut reader = Reader::new(request);
        while let Ok(Some((field, value))) = reader.field() {
            let Value::Bytes(content) = value else { continue };
            match field {
                // Headers of the request.
                2 => {
                    self.asked.fetch_add(1, Ordering::AcqRel);
                    put_bytes(&mut out, 1, &[]);
                    put_bytes(&mut out, 8, &self.choice());
                }
                // Headers of the response.
                3 => put_bytes(&mut out, 2, &[]),
                // Bodies of both.
                4 | 5 => {
                    let length = Reader::new(content).field().ok().flatten().map_or(0, |(_, value)| match value {
                        Value::Bytes(body) => body.len() as u64,
                        _ => 0,
                    });
                    let counted = if field == 4 { length } else { 0 };
                    self.received.fetch_add(counted, Ordering::AcqRel);
                    put_bytes(&mut out, if field == 4 { 3 } else { 4 }, &streamed(content));
                }
                // Trailers of both.
                6 | 7 => put_bytes(&mut out, if field == 6 { 5 } else { 6 }, &[]),
                8 => self.note(&Metadata::decode(content).ok()?),
                _ => {}
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// The metadata with the selected endpoints.
    fn choice(&self) -> Vec<u8> {
        let selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |key: &str, kind: value::Kind| Struct {
            fields: [(key.to_owned(), protos::Value { kind: Some(kind) })].into(),
        };
        let inner = of("x-gateway-destination-endpoint", value::Kind::StringValue(selected));
        of(NAMESPACE, value::Kind::StructValue(inner)).encode_to_vec()
    }

    /// Notes the endpoint that served the request.
    fn note(&self, metadata: &Metadata) {
        let fields = metadata.filter_metadata.get(NAMESPACE).map(|row| &row.fields);
        let served = fields.and_then(|fields| fields.get("x-gateway-destination-endpoint-served"));
        if let Some(value::Kind::StringValue(served)) = served.and_then(|value| value.kind.as_ref()) {
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = served.clone();
        }
    }
}

/// A `BodyResponse` that passes on a part of a body: an `HttpBody` has the fields of a `StreamedBodyResponse`.
fn streamed(body: &[u8]) -> Vec<u8> {
    let wrap = |field: u8, inner: &[u8]| {
        let mut out = Vec::new();
        put_bytes(&mut out, field, inner);
        out
    };
    wrap(1, &wrap(3, &wrap(3, body)))
}
