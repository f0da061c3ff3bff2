//! Adapts the frames that a client sends over HTTP/2 to the HTTP library.
//!
//! - The `:authority` of gRPC's C library is repaired ([`authority`](crate::authority)).
//! - Long DATA frames are divided. The library's buffer grows to the longest frame, and keeps that size as long as the connection
//!   lives: 8 KiB more for each proxy that has subscribed to a thousand names.

use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::authority::{PADDED, repair};

/// The length of the client's preface.
const PREFACE: usize = 24;
/// The length of a frame's head.
const HEAD: usize = 9;
/// The types of DATA and HEADERS frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// A flag of DATA frames.
const END_STREAM: u8 = 1;
/// The largest frame that is accepted.
const MAX_FRAME: usize = 16 << 10;
/// The longest DATA frame that is passed on as it is. The library's buffer has twice this size at first.
const LONGEST: usize = 4 << 10;

/// The maximum number of bytes that are read together.
const TOGETHER: usize = 8 << 10;

/// A connection whose frames are adapted.
pub struct Adapted<S> {
    socket: S,
    /// Bytes that were received, but are not adapted yet, because there was no room for them.
    received: Bytes,
    /// The number of bytes that are passed on as they are.
    pass: usize,
    /// The head of a frame, or a HEADERS frame, as far as it was received.
    held: Vec<u8>,
    /// The length of `held` when it is complete.
    wanted: usize,
    /// Adapted bytes that are passed on next.
    adapted: Bytes,
    /// The head of a DATA frame that is divided, and the length of the part that is not passed on yet.
    divided: Option<([u8; HEAD], usize)>,
}

impl<S> Adapted<S> {
    /// Adapts what is read from this connection, from its first byte on.
    pub fn new(socket: S) -> Adapted<S> {
        let (received, adapted) = (Bytes::new(), Bytes::new());
        Adapted { socket, received, pass: PREFACE, held: Vec::new(), wanted: HEAD, adapted, divided: None }
    }

    /// Passes on what there is room for, and removes it from `received`.
    fn adapt(&mut self, received: &mut impl Buf, room: &mut ReadBuf<'_>) {
        while room.remaining() > 0 {
            if self.adapted.has_remaining() {
                let count = self.adapted.remaining().min(room.remaining());
                room.put((&mut self.adapted).take(count));
            } else if self.pass == 0
                && let Some((head, left)) = self.divided
            {
                self.next_part(head, left);
            } else if !received.has_remaining() {
                return;
            } else if self.pass > 0 {
                let count = self.pass.min(room.remaining()).min(received.remaining());
                room.put(received.take(count));
                self.pass -= count;
            } else {
                let count = received.remaining().min(self.wanted - self.held.len());
                self.held.put(received.take(count));
                if self.held.len() == self.wanted {
                    self.complete();
                }
            }
        }
    }

    /// Decides about `held` when it has its wanted length.
    fn complete(&mut self) {
        let head: [u8; HEAD] = std::array::from_fn(|index| self.held[index]);
        let [high, middle, low, kind, flags, ..] = head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if self.wanted > HEAD {
            repair(&mut self.held[HEAD..], flags);
        } else if kind == HEADERS && length > 0 && length <= MAX_FRAME {
            self.wanted = HEAD + length;
            return;
        } else if kind == DATA && flags & PADDED == 0 && length > LONGEST && length <= MAX_FRAME {
            self.divided = Some((head, length));
            return self.held.clear();
        } else {
            self.pass = length;
        }
        self.release();
    }

    /// Passes `held` on, complete or not.
    fn release(&mut self) {
        (self.adapted, self.wanted) = (std::mem::take(&mut self.held).into(), HEAD);
    }

    /// Begins the next part of a divided frame. The last one ends the stream if the frame did.
    fn next_part(&mut self, mut head: [u8; HEAD], left: usize) {
        let length = left.min(LONGEST);
        self.divided = (left > length).then_some((head, left - length));
        if left > length {
            head[4] &= !END_STREAM;
        }
        // It fits in two bytes.
        head[..3].copy_from_slice(&[0, (length >> 8) as u8, length as u8]);
        (self.pass, self.adapted) = (length, Bytes::copy_from_slice(&head));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Adapted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let mut received = std::mem::take(&mut this.received);
        this.adapt(&mut received, buffer);
        this.received = received;
        while buffer.filled().len() == before && buffer.remaining() > 0 {
            // Most clients send little at a time. A read that leaves room tells the runtime that there is no more: one
            // system call for the head of a frame, what follows it, and the end.
            let mut space = [MaybeUninit::uninit(); TOGETHER];
            let mut part = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut part))?;
            let mut received = part.filled();
            if received.is_empty() {
                // The client has ended, maybe within a frame, which is passed on.
                if this.held.is_empty() {
                    break;
                }
                this.release();
            }
            this.adapt(&mut received, buffer);
            this.received = Bytes::copy_from_slice(received);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Adapted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

/// Reads any bytes as frames, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut adapted = Adapted::new(bytes);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut count = 0;
    loop {
        let mut space = [0; 64];
        let mut buffer = ReadBuf::new(&mut space);
        let read = Pin::new(&mut adapted).poll_read(&mut cx, &mut buffer);
        assert!(matches!(read, Poll::Ready(Ok(()))), "a slice is always ready");
        if buffer.filled().is_empty() {
            break;
        }
        count += buffer.filled().len();
    }
    // Divided frames have further heads.
    assert!(count >= bytes.len());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::authority::tests::block;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// What is read in parts of this size.
    fn read(sent: &[u8], size: usize) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut read = Vec::new();
        runtime.block_on(async {
            let mut adapted = Adapted::new(sent);
            // As the HTTP library does, into memory that is not initialized.
            let mut buffer = bytes::BytesMut::with_capacity(size);
            while adapted.read_buf(&mut buffer).await.unwrap() > 0 {
                read.extend_from_slice(&buffer.split());
                buffer.reserve(size);
            }
        });
        read
    }

    /// A long DATA frame as it is passed on.
    fn divided(flags: u8, payload: &[u8]) -> Vec<u8> {
        let count = payload.chunks(LONGEST).count();
        let parts = payload.chunks(LONGEST).enumerate();
        parts
            .flat_map(|(n, part)| frame(DATA, if n + 1 == count { flags } else { flags & !END_STREAM }, part))
            .collect()
    }

    #[test]
    fn frames_that_arrive_together_are_read_together() {
        let sent = [&[b'%'; PREFACE][..], &frame(8, 0, &[1; 4]), &frame(DATA, 0, &[7; 80])].concat();
        let mut space = [0; 8192];
        let mut buffer = ReadBuf::new(&mut space);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let read = Pin::new(&mut Adapted::new(&sent[..])).poll_read(&mut cx, &mut buffer);
        assert!(read.is_ready() && buffer.filled() == sent);
    }

    #[test]
    fn frames_that_may_not_be_divided_are_passed_on() {
        let payload = vec![7; MAX_FRAME + 1];
        for (kind, flags, length) in
            [(DATA, PADDED, MAX_FRAME), (DATA, 0, LONGEST), (DATA, 0, MAX_FRAME + 1), (9, 1, MAX_FRAME)]
        {
            let sent = [&[b'%'; PREFACE][..], &frame(kind, flags, &payload[..length])].concat();
            assert!(read(&sent, 8192) == sent, "{kind} {flags} {length}");
        }
        let sent = [&[b'%'; PREFACE][..], &frame(DATA, END_STREAM, &payload[..MAX_FRAME])].concat();
        assert_eq!(read(&sent, 8192).len(), sent.len() + 3 * HEAD);
    }

    proptest! {
        #[test]
        fn frames_are_passed_on_in_parts_of_any_size(
            frames in prop::collection::vec((0..3u8, prop_oneof![0..2000usize, 0..=MAX_FRAME], any::<bool>()), 0..6),
            size in 1..9000usize,
            cut in 0..20usize,
        ) {
            let (mut sent, mut expected) = (vec![b'%'; PREFACE], vec![b'%'; PREFACE]);
            for (kind, length, ends) in frames {
                let payload: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
                let flags = u8::from(ends);
                match kind {
                    HEADERS => {
                        sent.extend(frame(kind, flags, &block(b"\x41\x04%2Fx")));
                        expected.extend(frame(kind, flags, &block(b"\x41\x04-2Fx")));
                    }
                    DATA if length > 0 => {
                        sent.extend(frame(kind, flags, &payload));
                        expected.extend(divided(flags, &payload));
                    }
                    _ => {
                        sent.extend(frame(kind, flags, &payload));
                        expected.extend(frame(kind, flags, &payload));
                    }
                }
            }
            // A frame that was cut off is not repaired.
            if cut > 0 {
                let last = frame(HEADERS, 4, &block(b"\x41\x04%2Fx"));
                let part = &last[..cut.min(last.len() - 1)];
                sent.extend(part);
                expected.extend(part);
            }
            prop_assert!(read(&sent, size) == expected);
        }

        #[test]
        fn all_bytes_are_passed_on(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }
    }
}
