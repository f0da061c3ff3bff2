//! The output of a connection: frames without a window, and the data of streams.
//!
//! Data are not copied. They are passed to the socket in place, with the heads of their frames between them; what remains in memory of a
//! client that does not read are the data themselves, which other connections may share.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::{HeaderMap, StatusCode};
use tokio::io::AsyncWrite;

use crate::failure::Code;
use crate::frame::{FIRST_WINDOW, HEAD, Head, MAX_FRAME, flag, kind};
use crate::hpack;

/// The most frames of data that are written together.
const FRAMES: usize = 4;
/// The most pieces of data that are written together.
const PIECES: usize = 256;
/// Data that are not longer are copied, so that several responses are written together.
const COPIED: usize = 1 << 10;
/// The number of bytes from which on nothing is added until they are written.
const FULL: usize = 16 << 10;

/// The data of a stream that are sent next.
pub(crate) trait Sending {
    type Data: Buf;

    fn stream(&self) -> u32;
    /// The data, and the bytes of the stream's window.
    fn data(&mut self) -> Option<(&mut Self::Data, &mut i64)>;
}

/// A frame of data of which only a part was written.
struct Begun {
    stream: u32,
    head: [u8; HEAD],
    /// The number of the head's bytes that were written.
    head_sent: usize,
    /// The number of bytes of the payload that were not written.
    left: usize,
}

/// The queue of a connection.
pub(crate) struct Output {
    /// Frames other than data, and short data.
    queued: Vec<u8>,
    /// The number of bytes of `queued` that were written. 0 while a frame is begun.
    sent: usize,
    begun: Option<Begun>,
    /// The window of the connection.
    window: i64,
    /// The stream that was written last.
    last: u32,
    /// Whether bytes were written that may be in the buffer of TLS.
    is_unflushed: bool,
    had_headers: bool,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            queued: Vec::new(),
            sent: 0,
            begun: None,
            window: i64::from(FIRST_WINDOW),
            last: 0,
            is_unflushed: false,
            had_headers: false,
        }
    }

    /// Whether so much is queued that nothing should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.queued.len() >= FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.begun.is_none() && !self.is_unflushed
    }

    /// The window of the connection.
    pub(crate) fn window(&mut self) -> &mut i64 {
        &mut self.window
    }

    /// Queues a frame.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.queued.extend_from_slice(&Head { length: payload.len(), kind, flags, stream }.write());
        self.queued.extend_from_slice(payload);
    }

    pub(crate) fn reset(&mut self, stream: u32, code: Code) {
        self.frame(kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
    }

    pub(crate) fn go_away(&mut self, last: u32, code: Code, text: &str) {
        let payload = [&last.to_be_bytes()[..], &(code as u32).to_be_bytes(), text.as_bytes()].concat();
        self.frame(kind::GOAWAY, 0, 0, &payload);
    }

    pub(crate) fn window_update(&mut self, stream: u32, bytes: usize) {
        if let Ok(bytes) = u32::try_from(bytes)
            && bytes > 0
        {
            self.frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
    }

    /// Queues the head of a response, or trailers, which have no status.
    pub(crate) fn headers(&mut self, stream: u32, status: Option<StatusCode>, headers: &HeaderMap, ends: bool) {
        let mut block = hpack::encode(status, headers);
        if !std::mem::replace(&mut self.had_headers, true) {
            block.insert(0, hpack::NO_TABLE);
        }
        let mut parts = block.chunks(MAX_FRAME).peekable();
        let mut kind = kind::HEADERS;
        let mut flags = if ends { flag::END_STREAM } else { 0 };
        while let Some(part) = parts.next() {
            flags |= if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            self.frame(kind, flags, stream, part);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }

    /// Queues the end of a response with these trailers.
    pub(crate) fn end(&mut self, stream: u32, trailers: &HeaderMap) {
        match trailers.is_empty() {
            true => self.frame(kind::DATA, flag::END_STREAM, stream, &[]),
            false => self.headers(stream, None, trailers, true),
        }
    }

    /// Queues data that are short and fit into the windows. False if they are not.
    pub(crate) fn short_data(&mut self, stream: u32, data: &mut impl Buf, window: &mut i64) -> bool {
        let length = data.remaining();
        if length == 0 {
            return true;
        }
        if length > COPIED || length as i64 > self.window.min(*window) {
            return false;
        }
        self.window -= length as i64;
        *window -= length as i64;
        self.queued.extend_from_slice(&Head { length, kind: kind::DATA, flags: 0, stream }.write());
        while data.has_remaining() {
            let chunk = data.chunk();
            let count = chunk.len();
            self.queued.extend_from_slice(chunk);
            data.advance(count);
        }
        true
    }

    /// Before a stream with these data ends: the rest of a frame that is begun is copied, because the client waits for it.
    pub(crate) fn abandon(&mut self, stream: u32, data: &mut impl Buf) {
        let Some(begun) = self.begun.take_if(|begun| begun.stream == stream) else { return };
        let mut rest = begun.head[begun.head_sent..].to_vec();
        rest.extend_from_slice(&data.copy_to_bytes(begun.left));
        rest.append(&mut self.queued);
        self.queued = rest;
    }

    /// Writes what is queued, and the data that the windows allow. Returns whether anything was written; pending if the socket takes no
    /// more.
    pub(crate) fn poll_write<S: Sending>(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut (impl AsyncWrite + Unpin),
        streams: &mut [S],
    ) -> Poll<Result<bool>> {
        let mut has_written = false;
        while let Some(batch) = self.batch(streams) {
            let pieces = &mut [IoSlice::new(&[]); PIECES];
            let slices = &mut [IoSlice::new(&[]); PIECES + FRAMES + 2];
            let data = batch.at.and_then(|at| streams[at].data().map(|(data, _)| &*data));
            let pieces = data.map_or(&[][..], |data| {
                let count = data.chunks_vectored(pieces);
                &pieces[..count]
            });
            let count = batch.fill(self, pieces, slices);
            let written = ready!(Pin::new(&mut *socket).poll_write_vectored(cx, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(Error::from(ErrorKind::WriteZero)));
            }
            has_written = true;
            self.is_unflushed = true;
            batch.apply(self, streams, written);
        }
        if self.is_unflushed {
            ready!(Pin::new(socket).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(has_written))
    }

    /// The next bytes to write: the queue, and data of one stream, in turn. `None` if there is nothing.
    fn batch<S: Sending>(&mut self, streams: &mut [S]) -> Option<Batch> {
        if let Some(begun) = &self.begun {
            let at = streams.iter().position(|stream| stream.stream() == begun.stream);
            return Some(Batch { at, heads: [[0; HEAD]; FRAMES], lengths: [0; FRAMES], count: 0 });
        }
        // Streams are in the order of their numbers.
        let after = streams.iter().position(|stream| stream.stream() > self.last).unwrap_or(0);
        let (before, rest) = (0..after, after..streams.len());
        let mut batch = Batch { at: None, heads: [[0; HEAD]; FRAMES], lengths: [0; FRAMES], count: 0 };
        for at in rest.chain(before) {
            let stream = streams[at].stream();
            let Some((data, window)) = streams[at].data() else { continue };
            let mut left = data.remaining().min(usize::try_from(self.window.min(*window)).unwrap_or(0));
            while left > 0 && batch.count < FRAMES {
                let length = left.min(MAX_FRAME);
                batch.heads[batch.count] = Head { length, kind: kind::DATA, flags: 0, stream }.write();
                batch.lengths[batch.count] = length;
                batch.count += 1;
                left -= length;
            }
            if batch.count > 0 {
                batch.at = Some(at);
                break;
            }
        }
        (batch.at.is_some() || !self.queued.is_empty()).then_some(batch)
    }
}

/// Bytes that are written together: the rest of a frame and the queue, or the queue and whole frames.
struct Batch {
    /// The place of the stream.
    at: Option<usize>,
    heads: [[u8; HEAD]; FRAMES],
    lengths: [usize; FRAMES],
    count: usize,
}

impl Batch {
    /// Fills `slices` with what is written, as far as there is room. Returns their number.
    fn fill<'a>(&'a self, output: &'a Output, pieces: &'a [IoSlice<'a>], slices: &mut [IoSlice<'a>]) -> usize {
        let mut pieces = Pieces { pieces, offset: 0 };
        let mut count = 0;
        let mut add = |slice: &'a [u8]| {
            let place = slices.get_mut(count)?;
            *place = IoSlice::new(slice);
            count += 1;
            Some(())
        };
        // Nothing may follow a frame that has no room.
        let mut fill = || {
            if let Some(begun) = &output.begun {
                if begun.head_sent < HEAD {
                    add(&begun.head[begun.head_sent..])?;
                }
                pieces.take(begun.left, &mut add)?;
            }
            if output.sent < output.queued.len() {
                add(&output.queued[output.sent..])?;
            }
            for (head, length) in self.heads.iter().zip(self.lengths).take(self.count) {
                add(head)?;
                pieces.take(length, &mut add)?;
            }
            Some(())
        };
        let _ = fill();
        count
    }

    /// Removes what was written.
    fn apply<S: Sending>(&self, output: &mut Output, streams: &mut [S], written: usize) {
        let mut written = written;
        let mut take = |most: usize| {
            let count = written.min(most);
            written -= count;
            count
        };
        let mut sending = self.at.and_then(|at| streams[at].data());
        if let Some(begun) = &mut output.begun {
            begun.head_sent += take(HEAD - begun.head_sent);
            let count = take(begun.left);
            begun.left -= count;
            if let Some((data, _)) = &mut sending {
                data.advance(count);
            }
            if begun.left == 0 {
                output.begun = None;
            }
        }
        output.sent += take(output.queued.len() - output.sent);
        if output.sent == output.queued.len() {
            // Most connections are idle most of the time.
            (output.queued, output.sent) = (Vec::new(), 0);
        }
        for (head, length) in self.heads.iter().zip(self.lengths).take(self.count) {
            let head_sent = take(HEAD);
            let Some((data, window)) = sending.as_mut().filter(|_| head_sent > 0) else { return };
            output.window -= length as i64;
            **window -= length as i64;
            let count = take(length);
            data.advance(count);
            output.last = Head::read(head).stream;
            if head_sent < HEAD || count < length {
                output.begun = Some(Begun { stream: output.last, head: *head, head_sent, left: length - count });
            }
        }
    }
}

/// The pieces of a stream's data that are not used yet.
struct Pieces<'a> {
    pieces: &'a [IoSlice<'a>],
    /// The number of bytes of the first piece that are used.
    offset: usize,
}

impl<'a> Pieces<'a> {
    /// Passes on so many bytes. `None` if there is no room, or the pieces end before.
    fn take(&mut self, length: usize, add: &mut impl FnMut(&'a [u8]) -> Option<()>) -> Option<()> {
        let mut left = length;
        while left > 0 {
            let (first, rest) = self.pieces.split_first()?;
            let piece = &first[self.offset..];
            let part = &piece[..piece.len().min(left)];
            if !part.is_empty() {
                add(part)?;
            }
            left -= part.len();
            self.offset += part.len();
            if self.offset == first.len() {
                (self.pieces, self.offset) = (rest, 0);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;

    use super::*;

    /// A socket that takes few bytes at a time.
    struct Slow(usize, Vec<u8>);

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
            let count = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Data(u32, Bytes, i64);

    impl Sending for Data {
        type Data = Bytes;

        fn stream(&self) -> u32 {
            self.0
        }

        fn data(&mut self) -> Option<(&mut Bytes, &mut i64)> {
            (!self.1.is_empty()).then_some((&mut self.1, &mut self.2))
        }
    }

    #[test]
    fn bytes_do_not_depend_on_how_many_are_taken() {
        let written = |most: usize| {
            let (mut output, mut socket) = (Output::new(), Slow(most, Vec::new()));
            let mut trailers = HeaderMap::new();
            trailers.insert("a", HeaderValue::from_static("b"));
            output.headers(1, Some(StatusCode::OK), &trailers, false);
            output.headers(3, None, &trailers, true);
            let mut streams = [Data(1, vec![1; 20_000].into(), 1 << 20), Data(5, vec![5; 40_000].into(), 30_000)];
            let polled =
                output.poll_write(&mut Context::from_waker(std::task::Waker::noop()), &mut socket, &mut streams);
            assert!(matches!(polled, Poll::Ready(Ok(true))) && output.is_empty());
            assert_eq!((streams[0].1.len(), streams[1].1.len(), output.window), (0, 10_000, 15_535));
            socket.1
        };
        let all = written(usize::MAX);
        assert_eq!(all.len(), 9 + 7 + 9 + 5 + 50_000 + 4 * HEAD);
        // The table of fields is given up once.
        assert!(all[HEAD] == hpack::NO_TABLE && all[HEAD + 7 + HEAD] == 0, "{:x?}", &all[..40]);
        for most in 1..40 {
            assert!(written(most) == all, "{most} bytes at a time");
        }
    }
}
