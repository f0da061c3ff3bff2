//! A small HTTP/2 client: requests and gRPC calls that share one connection.

use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::Full;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::http::{BODY_LIMIT, PATIENCE, Response};
use super::{Error, Result};

/// The length of the prefix of a gRPC message: the compression flag and the length.
const GRPC_PREFIX: usize = 5;

/// Frames an uncompressed gRPC message.
///
/// # Errors
/// The message is too long for gRPC.
pub fn grpc_message(message: &[u8]) -> Result<Bytes> {
    let mut framed = BytesMut::with_capacity(GRPC_PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len())?);
    framed.put_slice(message);
    Ok(framed.freeze())
}

/// Takes the next gRPC message from the received bytes, if it is complete.
pub fn next_grpc_message(received: &mut BytesMut) -> Option<Bytes> {
    let length = received.get(1..GRPC_PREFIX)?.try_into().map(u32::from_be_bytes).ok()? as usize;
    if received.len() < GRPC_PREFIX + length {
        return None;
    }
    received.advance(GRPC_PREFIX);
    Some(received.split_to(length).freeze())
}

/// An HTTP/2 connection with prior knowledge.
#[derive(Clone, Debug)]
pub struct Http2 {
    sender: SendRequest<Full<Bytes>>,
}

impl Http2 {
    /// Opens a connection.
    pub async fn connect(address: SocketAddr) -> Result<Http2> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped.
        tokio::spawn(connection);
        Ok(Http2 { sender })
    }

    /// Sends a `GET` to a host.
    pub async fn get(&self, host: &str, path: &str, headers: &[(&str, &str)]) -> Result<Response> {
        self.send(Method::GET, host, path, headers, Bytes::new()).await
    }

    /// Makes a gRPC call with one message. `path` is `/SERVICE/METHOD`.
    pub async fn call(&self, host: &str, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Result<Response> {
        let framed = grpc_message(message)?;
        let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
        let headers: Vec<_> = headers.iter().copied().chain(grpc).collect();
        self.send(Method::POST, host, path, &headers, framed).await
    }

    /// Sends a request with this body to a host.
    pub async fn send(
        &self,
        method: Method,
        host: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response> {
        let mut builder = Request::builder().method(method).uri(format!("http://{host}{path}"));
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let request = builder.body(Full::new(body))?;
        let mut sender = self.sender.clone();
        let exchange = async {
            let response = sender.send_request(request).await?;
            Response::read(response, BODY_LIMIT).await
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .map_err(|_| Error::from(format!("{host}{path} did not answer")))?
    }
}

impl Response {
    /// The gRPC status: from the trailers, or from the headers if there are no messages.
    pub fn grpc_status(&self) -> Option<u32> {
        let status = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"))?;
        status.to_str().ok()?.parse().ok()
    }

    /// The message of a gRPC response.
    pub fn grpc_message(&self) -> &[u8] {
        self.body.get(5..).unwrap_or_default()
    }
}
