//! A client of the relay that reads only when a test wants it.

use std::convert::Infallible;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use protos::Message;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use test_harness::run::{grpc_message, next_grpc_message};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

pub const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

type Body = BoxBody<Bytes, Infallible>;

/// A connection to the relay.
#[derive(Clone)]
pub struct Client(SendRequest<Body>);

impl Client {
    pub async fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client(sender)
    }

    /// Opens a stream.
    pub async fn open(&mut self, path: &str) -> Stream {
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(8);
        let frames =
            futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        let request = Request::post(format!("http://xds{path}")).body(StreamBody::new(frames).boxed()).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let headers = response.headers().clone();
        Stream { sender, body: response.into_body(), received: BytesMut::new(), headers }
    }
}

/// A stream.
pub struct Stream {
    sender: mpsc::Sender<Result<Frame<Bytes>, Infallible>>,
    body: Incoming,
    received: BytesMut,
    headers: HeaderMap,
}

impl Stream {
    /// Sends bytes.
    pub async fn send(&self, bytes: Bytes) {
        // An ended stream shows its status.
        let _ = self.sender.send(Ok(Frame::data(bytes))).await;
    }

    /// Sends a request for a type, with this nonce.
    pub async fn request(&self, type_url: &str, nonce: &str) {
        let (type_url, response_nonce) = (type_url.to_owned(), nonce.to_owned());
        let request = DiscoveryRequest { type_url, response_nonce, ..Default::default() };
        self.send(grpc_message(&request.encode_to_vec()).unwrap()).await;
    }

    /// The next response.
    pub async fn next(&mut self) -> DiscoveryResponse {
        self.try_next().await.unwrap()
    }

    /// The next response; none if the stream has ended.
    pub async fn try_next(&mut self) -> Option<DiscoveryResponse> {
        loop {
            if let Some(message) = next_grpc_message(&mut self.received) {
                return Some(DiscoveryResponse::decode(message).unwrap());
            }
            let frame = self.body.frame().await?.unwrap();
            self.received.extend_from_slice(&frame.into_data().ok()?);
        }
    }

    /// The status with which the stream ends.
    pub async fn status(&mut self) -> (u32, String) {
        while let Some(frame) = self.body.frame().await {
            if let Ok(trailers) = frame.unwrap().into_trailers() {
                self.headers = trailers;
            }
        }
        let text = |name: &str| self.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (text("grpc-status").parse().unwrap(), text("grpc-message"))
    }
}
