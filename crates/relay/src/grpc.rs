//! gRPC messages over HTTP/2 bodies. A message stays in the buffers in which it was received: it is neither copied nor decoded to be
//! forwarded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use protos::Message;
use tokio::sync::mpsc;
use tonic::Status;

/// The length of a message's prefix: the compression flag and the length.
const PREFIX: usize = 5;
/// The least average size of the received parts of a message, so that small parts do not use more memory than the message.
const LEAST_PART: usize = 256;

/// A message with its prefix, in the parts in which it was received.
#[derive(Clone, Default, Debug)]
pub(crate) struct Framed {
    parts: VecDeque<Bytes>,
    length: usize,
}

impl Framed {
    /// Encodes a message.
    pub(crate) fn of(message: &impl Message) -> Framed {
        let length = message.encoded_len();
        let mut bytes = BytesMut::with_capacity(PREFIX + length);
        bytes.put_u8(0);
        // Messages that are made here are far below 4 GiB.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        bytes.put_slice(&message.encode_to_vec());
        let mut framed = Framed::default();
        framed.push(bytes.freeze());
        framed
    }

    /// The message without its prefix.
    pub(crate) fn payload(&self) -> Framed {
        let mut payload = self.clone();
        payload.advance(PREFIX.min(payload.length));
        payload
    }

    fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.length += part.len();
            self.parts.push_back(part);
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front()?;
        self.length -= part.len();
        Some(part)
    }

    /// Takes the first bytes, sharing their memory. There must be as many.
    fn split_front(&mut self, mut count: usize) -> Framed {
        let mut taken = Framed::default();
        while count > 0
            && let Some(mut part) = self.pop()
        {
            if part.len() > count {
                let rest = part.split_off(count);
                self.length += rest.len();
                self.parts.push_front(rest);
            }
            count -= part.len();
            taken.push(part);
        }
        taken
    }

    /// The length of the first message, if its prefix was received.
    fn announced(&self, limit: usize) -> Result<Option<usize>, Status> {
        if self.length < PREFIX {
            return Ok(None);
        }
        let mut prefix = self.parts.iter().flatten().take(PREFIX);
        if prefix.next() != Some(&0) {
            return Err(Status::unimplemented("compressed messages are not accepted"));
        }
        let length = prefix.fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length > limit {
            return Err(Status::resource_exhausted(format!(
                "a message of {length} bytes; at most {limit} are accepted"
            )));
        }
        Ok(Some(length))
    }
}

impl Buf for Framed {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        slices.iter_mut().zip(&self.parts).map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }

    fn advance(&mut self, count: usize) {
        self.split_front(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        let mut taken = self.split_front(count);
        match taken.parts.len() {
            1 => taken.pop().unwrap_or_default(),
            _ => {
                let mut joined = BytesMut::with_capacity(count);
                joined.extend(taken.parts.iter().flatten());
                joined.freeze()
            }
        }
    }
}

/// An item of a stream that is sent.
#[derive(Debug)]
pub(crate) enum Item {
    /// A message.
    Message(Framed),
    /// The end of a response.
    End(Status),
}

/// The body of a request or response.
pub(crate) struct Outgoing {
    items: Option<mpsc::Receiver<Item>>,
    current: Framed,
}

impl Outgoing {
    /// A body with the items of a channel. It ends when all senders are dropped.
    pub(crate) fn new(items: mpsc::Receiver<Item>) -> Outgoing {
        Outgoing { items: Some(items), current: Framed::default() }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(part) = self.current.pop() {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            let Some(items) = &mut self.items else { return Poll::Ready(None) };
            match ready!(items.poll_recv(cx)) {
                Some(Item::Message(message)) => self.current = message,
                Some(Item::End(status)) => {
                    self.items = None;
                    return Poll::Ready(Some(Ok(Frame::trailers(headers(&status)))));
                }
                None => self.items = None,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.items.is_none() && self.current.length == 0
    }
}

fn headers(status: &Status) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        headers.insert("grpc-status", HeaderValue::from(status.code() as i32));
    }
    headers
}

/// A response with the items of a channel.
pub(crate) fn respond(items: mpsc::Receiver<Item>) -> Response<Outgoing> {
    let mut response = Response::new(Outgoing::new(items));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A response that consists of a status only.
pub(crate) fn refuse(status: &Status) -> Response<Outgoing> {
    let mut response = Response::new(Outgoing { items: None, current: Framed::default() });
    response.headers_mut().extend(headers(status));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// Reads the messages of a body.
pub(crate) struct Messages<B> {
    body: B,
    received: Framed,
    limit: usize,
    trailers: Option<Status>,
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    /// A reader of messages of at most `limit` bytes.
    pub(crate) fn new(body: B, limit: usize) -> Messages<B> {
        Messages { body, received: Framed::default(), limit, trailers: None }
    }

    /// The next message; `None` at the end of the body. May be cancelled.
    ///
    /// # Errors
    /// The framing is invalid, a message is too large, or the connection failed.
    pub(crate) async fn next(&mut self) -> Result<Option<Framed>, Status> {
        loop {
            let announced = self.received.announced(self.limit)?;
            if let Some(length) = announced.filter(|length| self.received.length >= PREFIX + length) {
                return Ok(Some(self.received.split_front(PREFIX + length)));
            }
            if self.received.parts.len() > 64 + self.limit / LEAST_PART {
                return Err(Status::resource_exhausted("a message is sent in too many small parts"));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.received.push(data),
                    Err(frame) => {
                        self.trailers =
                            frame.into_trailers().ok().and_then(|trailers| Status::from_header_map(&trailers));
                    }
                },
                Some(Err(error)) => return Err(Status::unavailable(format!("the connection broke: {error}"))),
                None if self.received.length == 0 => return Ok(None),
                None => return Err(Status::internal("the stream ends within a message")),
            }
        }
    }

    /// The status with which the body ended.
    pub(crate) fn status(&mut self) -> Status {
        self.trailers.take().unwrap_or_else(|| Status::unavailable("the stream ended without a status"))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use proptest::prelude::*;
    use protos::envoy::service::discovery::v3::DiscoveryRequest;

    use super::*;

    async fn all(bytes: &[u8], step: usize, limit: usize) -> Result<Vec<Framed>, Status> {
        let parts = bytes.chunks(step).map(|part| Ok::<_, Infallible>(Frame::data(Bytes::copy_from_slice(part))));
        let mut messages = Messages::new(StreamBody::new(futures::stream::iter(parts)), limit);
        let mut read = Vec::new();
        while let Some(message) = messages.next().await? {
            read.push(message);
        }
        Ok(read)
    }

    fn block<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    proptest! {
        #[test]
        fn messages_are_read_unchanged_in_parts_of_any_size(names in prop::collection::vec("[a-z]{0,40}", 0..4), step in 1usize..50) {
            let written: Vec<DiscoveryRequest> =
                names.iter().map(|name| DiscoveryRequest { type_url: name.clone(), ..Default::default() }).collect();
            let bytes: Vec<u8> = written.iter().flat_map(|message| Framed::of(message).copy_to_bytes_all()).collect();
            let read = block(all(&bytes, step, 1000)).unwrap();
            for message in &read {
                let mut slices = [IoSlice::new(&[]); 64];
                let used = message.chunks_vectored(&mut slices);
                prop_assert_eq!(slices[..used].iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), message.clone().copy_to_bytes_all());
            }
            let decoded: Vec<_> = read.iter().map(|message| DiscoveryRequest::decode(message.payload()).unwrap()).collect();
            prop_assert_eq!(decoded, written);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), step in 1usize..9) {
            for message in block(all(&bytes, step, 16)).unwrap_or_default() {
                prop_assert!(message.payload().remaining() <= 16);
            }
        }
    }

    impl Framed {
        fn copy_to_bytes_all(&self) -> Bytes {
            let mut copy = self.clone();
            copy.copy_to_bytes(copy.length)
        }
    }

    #[test]
    fn large_compressed_and_truncated_messages_are_refused() {
        for (bytes, code) in [
            (&b"\0\0\0\0\x11"[..], tonic::Code::ResourceExhausted),
            (b"\x01\0\0\0\x01x", tonic::Code::Unimplemented),
            (b"\0\0\0\0\x02x", tonic::Code::Internal),
        ] {
            assert_eq!(block(all(bytes, 3, 16)).unwrap_err().code(), code, "{bytes:?}");
        }
    }
}
