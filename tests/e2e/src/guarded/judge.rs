//! An external authorization service over gRPC, `envoy.service.auth.v3.Authorization`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::HeaderMap;
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderValue;
use hyper_util::rt::{TokioExecutor, TokioIo};
use test_harness::run::{Result, grpc_message};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::objects::static_entry;

/// `CheckResponse` with the status OK, and with PERMISSION_DENIED.
const ALLOWED: [u8; 2] = [0x0a, 0x00];
const DENIED: [u8; 4] = [0x0a, 0x02, 0x08, 0x07];

/// The service.
#[derive(Debug)]
pub struct Judge {
    address: SocketAddr,
    state: Arc<State>,
    server: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    allows: AtomicBool,
    asked: AtomicU64,
}

impl Judge {
    /// Starts a service on a free loopback port. It denies everything.
    pub async fn start() -> Result<Judge> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                    let state = Arc::clone(&state);
                    async move { Ok::<_, Infallible>(answer(&state, request.into_body()).await) }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(connection);
            }
        });
        Ok(Judge { address, state, server })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it allows from now on.
    pub fn allow(&self, allows: bool) {
        self.state.allows.store(allows, Ordering::Release);
    }

    /// How often it was asked.
    pub fn asked(&self) -> u64 {
        self.state.asked.load(Ordering::Acquire)
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A service entry for an authorization service, with the host `HOST` and the port 9000.
pub fn judge_service(host: &str, protocol: &str, address: SocketAddr) -> String {
    static_entry(&host.replace('.', "-"), host, (9000, protocol), address)
}

type Frames = futures::stream::BoxStream<'static, std::result::Result<Frame<Bytes>, Infallible>>;

async fn answer(state: &State, body: Incoming) -> hyper::Response<StreamBody<Frames>> {
    // The question is read before the answer.
    let _ = body.collect().await;
    state.asked.fetch_add(1, Ordering::AcqRel);
    let message: &[u8] = if state.allows.load(Ordering::Acquire) { &ALLOWED } else { &DENIED };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = grpc_message(message).ok().map(Frame::data).into_iter().chain([Frame::trailers(trailers)]);
    let mut response = hyper::Response::new(StreamBody::new(futures::stream::iter(frames.map(Ok)).boxed()));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}
