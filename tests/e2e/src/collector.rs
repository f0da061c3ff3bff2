//! A collector of telemetry: receives what proxies send over HTTP and gRPC, and keeps it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use test_harness::run::{Result, next_grpc_message, wait_for};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::PATIENCE;

/// A server that keeps everything that it receives.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    told: Arc<Mutex<Vec<Told>>>,
    server: JoinHandle<()>,
}

/// A received message: the body of a request, or a message of a gRPC stream.
#[derive(Clone, Debug)]
pub struct Told {
    /// The path of the request.
    pub path: String,
    /// Its header `x-token`; empty if it has none.
    pub token: String,
    /// The content.
    pub body: Bytes,
}

impl Collector {
    /// Starts a collector on a free port of the loopback address.
    pub async fn start() -> Result<Collector> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&told);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keep = Arc::clone(&keep);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(request, Arc::clone(&keep)));
                    // A proxy that disconnects is not a failure of the test.
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Collector { address, told, server })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a message to this path that the test accepts, while traffic continues.
    pub async fn wait_for<T>(
        &self,
        path: &str,
        traffic: impl AsyncFn() -> Result<()>,
        wanted: impl Fn(&Told) -> Option<T>,
    ) -> Result<T> {
        let found = || async {
            traffic().await.ok()?;
            let told = self.told.lock().ok()?;
            told.iter().filter(|told| told.path == path).find_map(&wanted)
        };
        wait_for(&format!("what is wanted at {path}"), PATIENCE, found)
            .await
            .map_err(|error| format!("{error}; told: {:?}", self.told.lock()).into())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(
    request: Request<Incoming>,
    keep: Arc<Mutex<Vec<Told>>>,
) -> std::result::Result<Response<Empty<Bytes>>, Infallible> {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let grpc = header("content-type").starts_with("application/grpc");
    let (path, token) = (request.uri().path().to_owned(), header("x-token"));
    let take = |body: Bytes| {
        if let Ok(mut told) = keep.lock() {
            told.push(Told { path: path.clone(), token: token.clone(), body });
        }
    };
    let (mut body, mut buffer) = (request.into_body(), BytesMut::new());
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(frame.data_ref().map(|data| &data[..]).unwrap_or_default());
        while grpc && let Some(message) = next_grpc_message(&mut buffer) {
            take(message);
        }
    }
    let mut response = Response::new(Empty::new());
    if grpc {
        let headers = response.headers_mut();
        headers.insert("content-type", hyper::header::HeaderValue::from_static("application/grpc"));
        headers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
    } else {
        take(buffer.freeze());
    }
    Ok(response)
}
