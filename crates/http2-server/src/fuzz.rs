//! A client that sends any bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::RequestBody;
use crate::connection::{Connection, Settings};
use crate::frame::{Head, PREFACE, kind};

/// Serves a client that sends these bytes after its settings. It takes few bytes at a time, so that frames are divided.
pub fn fuzz(bytes: &[u8]) {
    struct Client<'a>(&'a [u8]);
    impl AsyncRead for Client<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let (part, rest) = self.0.split_at(self.0.len().min(buffer.remaining()));
            buffer.put_slice(part);
            self.0 = rest;
            Poll::Ready(Ok(()))
        }
    }
    impl AsyncWrite for Client<'_> {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len().min(7)))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
    let settings = Settings { max_streams: 3, window: 1 << 10, keepalive: None };
    // Requests are answered with their bodies.
    let answer = |request: Request<RequestBody>| std::future::ready(Response::new(request.into_body()));
    // Few random bytes begin as each client does.
    let bytes = [PREFACE, &Head { length: 0, kind: kind::SETTINGS, flags: 0, stream: 0 }.write(), bytes].concat();
    let connection = Connection::new(Client(&bytes), settings, answer);
    let polled = std::pin::pin!(connection).poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(polled.is_ready(), "the client has disconnected");
}
