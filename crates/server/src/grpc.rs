//! gRPC framing over HTTP/2 bodies, without a framework. Requests have a size limit; responses are ropes that are not
//! copied.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use http2_server::RequestBody;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::sync::mpsc;

use xds::Rope;

use crate::budget::{Budget, Held, SMALL};

/// The length of a message's prefix: the compression flag and the length.
const PREFIX_BYTES: usize = 5;
/// The time in which a message that has begun must be received.
const MESSAGE_WITHIN: Duration = Duration::from_secs(60);

/// The characters that are escaped in a status message, besides those that are not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    pub(crate) code: u32,
    pub(crate) message: String,
}

impl Status {
    pub(crate) const OK: u32 = 0;
    pub(crate) const UNKNOWN: u32 = 2;
    pub(crate) const INVALID_ARGUMENT: u32 = 3;
    pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
    pub(crate) const NOT_FOUND: u32 = 5;
    pub(crate) const PERMISSION_DENIED: u32 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const FAILED_PRECONDITION: u32 = 9;
    pub(crate) const UNIMPLEMENTED: u32 = 12;
    pub(crate) const INTERNAL: u32 = 13;
    pub(crate) const UNAVAILABLE: u32 = 14;
    pub(crate) const UNAUTHENTICATED: u32 = 16;

    pub(crate) fn new(code: u32, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// The status of a stream whose handling panicked.
    pub(crate) fn failed() -> Status {
        Status::new(Status::INTERNAL, "an internal error; see the log")
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from(self.code));
        if !self.message.is_empty()
            && let Ok(text) = HeaderValue::from_str(&utf8_percent_encode(&self.message, ESCAPED).to_string())
        {
            headers.insert("grpc-message", text);
        }
        headers
    }
}

impl From<xds::Status> for Status {
    fn from(status: xds::Status) -> Status {
        Status::new(status.code as u32, status.message)
    }
}

/// A response that consists of a status only.
pub(crate) fn refuse(status: &Status) -> Response<StreamBody> {
    let mut response = Response::new(StreamBody { down: None });
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().extend(status.headers());
    response
}

/// A response with the messages of `down`.
pub(crate) fn stream(down: mpsc::Receiver<Down>) -> Response<StreamBody> {
    let mut response = Response::new(StreamBody { down: Some(down) });
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A response with one message.
pub(crate) fn single(message: Rope) -> Response<StreamBody> {
    let (sender, receiver) = mpsc::channel(2);
    // There is room for both.
    let _ = sender.try_send(Down::Message(message));
    let _ = sender.try_send(Down::end(Status::new(Status::OK, "")));
    stream(receiver)
}

/// An item of a response stream. It is small, because the queue of each stream has room for 32.
#[derive(Debug)]
pub(crate) enum Down {
    /// A message.
    Message(Rope),
    /// The end of the stream.
    End(Box<Status>),
}

impl Down {
    /// The end of a stream with this status.
    pub(crate) fn end(status: Status) -> Down {
        Down::End(Box::new(status))
    }
}

/// The body of a streaming response.
pub(crate) struct StreamBody {
    down: Option<mpsc::Receiver<Down>>,
}

impl Body for StreamBody {
    type Data = MessageBuf;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<MessageBuf>, Self::Error>>> {
        let Some(down) = &mut self.down else {
            return Poll::Ready(None);
        };
        let next = std::task::ready!(down.poll_recv(cx));
        // The sender was dropped without a status, which only a panic does.
        let next = next.unwrap_or_else(|| Down::end(Status::new(Status::INTERNAL, "the stream's state was lost")));
        Poll::Ready(Some(Ok(match next {
            Down::Message(rope) => Frame::data(MessageBuf::new(rope)),
            Down::End(status) => {
                self.down = None;
                Frame::trailers(status.headers())
            }
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.down.is_none()
    }
}

/// A framed message: the prefix, then the pieces of a rope that all streams share. A stream owns only its position in
/// the rope.
pub(crate) struct MessageBuf {
    prefix: [u8; PREFIX_BYTES],
    rope: Rope,
    /// The current piece: 0 is the prefix, 1 the first of the rope.
    index: usize,
    /// The number of bytes of that piece that were read.
    offset: usize,
    remaining: usize,
}

impl MessageBuf {
    fn new(rope: Rope) -> MessageBuf {
        let mut prefix = [0; PREFIX_BYTES];
        // Responses are limited far below 4 GiB by the size of a mesh; a larger one would exceed the client's limit
        // anyway.
        let length = u32::try_from(rope.len()).unwrap_or(u32::MAX);
        prefix[1..].copy_from_slice(&length.to_be_bytes());
        let remaining = rope.len() + PREFIX_BYTES;
        MessageBuf { prefix, rope, index: 0, offset: 0, remaining }
    }

    /// The pieces from the current one on.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let prefix = (self.index == 0).then_some(&self.prefix[..]);
        let rope = self.rope.pieces_from(self.index.saturating_sub(1));
        prefix.into_iter().chain(rope.map(|piece| &**piece))
    }
}

impl Buf for MessageBuf {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.pieces().next().map_or(&[], |piece| &piece[self.offset..])
    }

    fn advance(&mut self, count: usize) {
        let (mut index, mut offset) = (self.index, self.offset + count);
        // Skips empty pieces: only the last chunk may be empty.
        for piece in self.pieces() {
            if offset < piece.len() {
                break;
            }
            offset -= piece.len();
            index += 1;
        }
        (self.index, self.offset) = (index, offset);
        self.remaining -= count;
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut skip = self.offset;
        for (slice, piece) in slices.iter_mut().zip(self.pieces()) {
            *slice = IoSlice::new(&piece[skip..]);
            skip = 0;
            used += 1;
        }
        used
    }
}

/// A received message, and the memory that it uses.
pub(crate) type Received = (Bytes, Held);

/// Reads the messages of a request.
pub(crate) struct Messages {
    body: RequestBody,
    buffer: BytesMut,
    limit: usize,
    /// The flag that sets the limit, in parentheses; empty if none does.
    flag: &'static str,
    budget: Budget,
    /// The memory for the message that is being received.
    held: Option<Held>,
}

impl Messages {
    /// Creates a reader of messages of at most `limit` bytes, which `--max-request-bytes` sets.
    pub(crate) fn new(body: RequestBody, limit: usize, budget: Budget) -> Messages {
        Messages { flag: " (--max-request-bytes)", ..Messages::fixed(body, limit, budget) }
    }

    /// Creates a reader of messages of at most `limit` bytes, which no setting changes.
    pub(crate) fn fixed(body: RequestBody, limit: usize, budget: Budget) -> Messages {
        Messages { body, buffer: BytesMut::new(), limit, flag: "", budget, held: None }
    }

    /// The next message; `None` if the client has ended the request. May be cancelled.
    ///
    /// # Errors
    /// The framing is invalid, the connection failed, or a message that began does not end in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Received>, Status> {
        let Some(length) = self.begin().await? else { return Ok(None) };
        if self.held.is_none() {
            // The client does not cause this wait, so that no limit applies to it.
            self.held = Some(self.budget.take(length).await);
        }
        if self.buffer.len() < PREFIX_BYTES + length {
            within(self.fill(PREFIX_BYTES + length)).await?;
        }
        Ok(Some((self.take(length), self.held.take().unwrap_or_default())))
    }

    /// Receives the next message, or only the prefix of one that is so large that it may have to wait for memory. Returns its
    /// length; `None` at the end of the request.
    pub(crate) async fn begin(&mut self) -> Result<Option<usize>, Status> {
        if self.buffer.is_empty() && !self.receive().await? {
            return Ok(None);
        }
        // Most messages arrive whole, and need no timer.
        if let Some(length) = self.begun()? {
            return Ok(Some(length));
        }
        let begin = async {
            loop {
                self.receive_more().await?;
                if let Some(length) = self.begun()? {
                    return Ok(length);
                }
            }
        };
        within(begin).await.map(Some)
    }

    /// The length of the next message, if so much was received of it as [`Messages::begin`] waits for.
    fn begun(&self) -> Result<Option<usize>, Status> {
        if self.buffer.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let length = self.length()?;
        let is_begun = length > SMALL || self.buffer.len() >= PREFIX_BYTES + length;
        Ok(is_begun.then_some(length))
    }

    /// Receives until there are so many bytes.
    async fn fill(&mut self, bytes: usize) -> Result<(), Status> {
        while self.buffer.len() < bytes {
            self.receive_more().await?;
        }
        Ok(())
    }

    /// Receives more bytes of a message.
    async fn receive_more(&mut self) -> Result<(), Status> {
        match self.receive().await? {
            true => Ok(()),
            false => Err(Status::new(Status::INVALID_ARGUMENT, "the request ends within a message")),
        }
    }

    /// Receives bytes. False at the end of the request.
    async fn receive(&mut self) -> Result<bool, Status> {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.buffer.extend_from_slice(&data);
                }
                Ok(true)
            }
            Some(Err(_)) => Err(Status::new(Status::UNAVAILABLE, "the connection broke")),
            None => Ok(false),
        }
    }

    /// The length of the next message, whose prefix was received.
    fn length(&self) -> Result<usize, Status> {
        let prefix = &self.buffer[..PREFIX_BYTES];
        if prefix[0] != 0 {
            return Err(Status::new(Status::UNIMPLEMENTED, "compressed messages are not accepted"));
        }
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        if length > self.limit {
            let text = format!("a request of {length} bytes; at most {} are accepted{}", self.limit, self.flag);
            return Err(Status::new(Status::RESOURCE_EXHAUSTED, text));
        }
        Ok(length)
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.buffer.advance(PREFIX_BYTES);
        let message = self.buffer.split_to(length).freeze();
        // Frees the memory of a large request, which would otherwise be kept for the life of the stream.
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        message
    }
}

/// The result of receiving, if it takes no longer than it may.
async fn within<T>(receiving: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::new(Status::DEADLINE_EXCEEDED, format!("a request took longer than {MESSAGE_WITHIN:?}"));
    tokio::time::timeout(MESSAGE_WITHIN, receiving).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_can_be_read_in_chunks_of_any_size() {
        let pieces: Vec<Bytes> = ["", "abc", "", "defgh", "i", ""].into_iter().map(Bytes::from).collect();
        let expected = b"\0\0\0\0\x09abcdefghi";
        for step in 1..=expected.len() {
            let mut message = MessageBuf::new(Rope::from_pieces(pieces.clone()));
            let mut read = Vec::new();
            while message.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 16];
                let used = message.chunks_vectored(&mut slices);
                let together: usize = slices[..used].iter().map(|s| s.len()).sum();
                assert_eq!(together, message.remaining());
                let count = step.min(message.chunk().len());
                read.extend_from_slice(&message.chunk()[..count]);
                message.advance(count);
            }
            assert_eq!(read, expected, "in steps of {step}");
        }
    }

    #[test]
    fn status_messages_are_percent_encoded() {
        let headers = Status::new(Status::INTERNAL, "50% of naïve\n").headers();
        assert_eq!(headers["grpc-message"], "50%25 of na%C3%AFve%0A");
    }

    #[test]
    fn a_status_has_both_headers() {
        let headers = Status::new(Status::INVALID_ARGUMENT, "no node").headers();
        assert!(headers["grpc-status"] == "3" && headers["grpc-message"] == "no node", "{headers:?}");
    }
}
