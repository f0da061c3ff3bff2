//! Accepts the `:authority` of gRPC's C library, which is the percent-encoded path of the Unix socket. The HTTP library rejects it.
//!
//! The percent signs of plain `:authority` fields are replaced in the received HEADERS frames. No length changes, so the table of the
//! header compression stays the same on both sides.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The length of the client's preface.
const PREFACE: usize = 24;
/// The length of a frame's head.
const HEAD: usize = 9;
/// The type of HEADERS frames, and their flags.
const HEADERS: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// The largest frame that is accepted.
const MAX_FRAME: usize = 16 << 10;
/// The index of `:authority` in the static table.
const AUTHORITY: usize = 1;

/// A connection whose `:authority` fields are valid.
pub struct Lenient<S> {
    socket: S,
    /// The number of bytes that are passed on as they are.
    pass: usize,
    /// The head of a frame, or a HEADERS frame, as far as it was received.
    held: Vec<u8>,
    /// The length of `held` when it is complete.
    wanted: usize,
    /// The number of bytes of a complete `held` that were passed on.
    passed: Option<usize>,
}

impl<S> Lenient<S> {
    /// Repairs what is read from this connection, from its first byte on.
    pub fn new(socket: S) -> Lenient<S> {
        Lenient { socket, pass: PREFACE, held: Vec::new(), wanted: HEAD, passed: None }
    }

    /// Decides about `held` when it has its wanted length.
    fn complete(&mut self) {
        let [high, middle, low, kind, flags] = [0, 1, 2, 3, 4].map(|index| self.held[index]);
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if self.wanted > HEAD {
            repair(&mut self.held[HEAD..], flags);
        } else if kind == HEADERS && length > 0 && length <= MAX_FRAME {
            self.wanted = HEAD + length;
            return;
        } else {
            self.pass = length;
        }
        self.passed = Some(0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        loop {
            if let Some(passed) = this.passed {
                let part = &this.held[passed..];
                let count = part.len().min(buffer.remaining());
                buffer.put_slice(&part[..count]);
                this.passed = Some(passed + count);
                if passed + count == this.held.len() {
                    (this.held, this.wanted, this.passed) = (Vec::new(), HEAD, None);
                }
                return Poll::Ready(Ok(()));
            }
            if this.pass > 0 {
                let limit = this.pass.min(buffer.remaining());
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
                ready!(Pin::new(&mut this.socket).poll_read(cx, &mut part))?;
                let count = part.filled().len();
                buffer.advance(count);
                this.pass -= count;
                return Poll::Ready(Ok(()));
            }
            let mut space = [0; 1024];
            let limit = space.len().min(this.wanted - this.held.len());
            let mut part = ReadBuf::new(&mut space[..limit]);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut part))?;
            if part.filled().is_empty() {
                // The client has ended within a frame, which is passed on.
                if this.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                this.passed = Some(0);
                continue;
            }
            this.held.extend_from_slice(part.filled());
            if this.held.len() == this.wanted {
                this.complete();
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
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

/// Replaces percent signs of `:authority` in the payload of a HEADERS frame. Stops at bytes that it cannot read.
fn repair(payload: &mut [u8], flags: u8) {
    let skipped = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let mut at = skipped;
    while let Some(next) = repair_field(payload, at) {
        at = next;
    }
}

/// The position after a field.
fn repair_field(block: &mut [u8], at: usize) -> Option<usize> {
    let first = *block.get(at)?;
    let bits = match first {
        0x80.. => 7,
        0x40.. => 6,
        0x20.. => 5,
        _ => 4,
    };
    let (name, mut at) = integer(block, at, bits)?;
    // An indexed field, or the size of the table.
    if bits == 7 || bits == 5 {
        return Some(at);
    }
    let mut is_authority = name == AUTHORITY;
    if name == 0 {
        let (text, end) = string(block, at)?;
        is_authority = text.is_some_and(|range| &block[range] == b":authority");
        at = end;
    }
    let (text, end) = string(block, at)?;
    if let Some(range) = text.filter(|_| is_authority) {
        block[range].iter_mut().filter(|byte| **byte == b'%').for_each(|byte| *byte = b'-');
    }
    Some(end)
}

/// The place of a string, if it is not compressed, and the position after it.
fn string(block: &[u8], at: usize) -> Option<(Option<std::ops::Range<usize>>, usize)> {
    let is_compressed = block.get(at)? & 0x80 != 0;
    let (length, start) = integer(block, at, 7)?;
    let end = start.checked_add(length).filter(|end| *end <= block.len())?;
    Some(((!is_compressed).then_some(start..end), end))
}

/// An integer whose first byte has this number of bits, and the position after it.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let mask = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    if value < mask {
        return Some((value, at + 1));
    }
    for (index, byte) in block.get(at + 1..)?.iter().take(4).enumerate() {
        value += usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + index));
        }
    }
    None
}

/// Repairs any bytes, for fuzzing.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let mut repaired = bytes.to_vec();
    repair(&mut repaired, bytes.first().copied().unwrap_or_default());
    assert!(repaired.iter().zip(bytes).all(|(new, old)| new == old || (*old == b'%' && *new == b'-')));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// `:path` by its index and value, a field with a name, and `:authority` in this representation.
    fn block(authority: &[u8]) -> Vec<u8> {
        [&b"\x83\x44\x02%2\x40\x02%a\x01%"[..], authority, b"\x86"].concat()
    }

    #[test]
    fn only_the_authority_is_repaired() {
        for (flags, before, head, value) in [
            (0, &b""[..], &b"\x41\x04"[..], &b"%2Fx"[..]),
            (0, b"", b"\x01\x04", b"%2Fx"),
            (0, b"", b"\x10\x0a:authority\x04", b"%2Fx"),
            (PADDED | PRIORITY, b"\0\0\0\0\0\x10", b"\x41\x04", b"%2Fx"),
        ] {
            let payload = |value: &[u8]| [before, &block(&[head, value].concat())].concat();
            let mut repaired = payload(value);
            repair(&mut repaired, flags);
            assert_eq!(repaired, payload(b"-2Fx"), "{head:?}");
        }
        // A compressed value stays as it is.
        let mut compressed = block(b"\x41\x82%%");
        repair(&mut compressed, 0);
        assert_eq!(compressed, block(b"\x41\x82%%"));
    }

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 4, 0, 0, 0, 1], payload].concat()
    }

    proptest! {
        #[test]
        fn frames_are_passed_on_in_parts_of_any_size(kinds in prop::collection::vec((0..3u8, 0..2000usize), 0..6), size in 1..3000usize, cut in 0..20usize) {
            let (mut sent, mut expected) = (vec![b'%'; PREFACE], vec![b'%'; PREFACE]);
            for (kind, length) in kinds {
                let (before, after) = match kind {
                    HEADERS => (block(b"\x41\x04%2Fx"), block(b"\x41\x04-2Fx")),
                    _ => (vec![b'%'; length], vec![b'%'; length]),
                };
                sent.extend(frame(kind, &before));
                expected.extend(frame(kind, &after));
            }
            // A frame that was cut off is not repaired.
            if cut > 0 {
                let last = frame(HEADERS, &block(b"\x41\x04%2Fx"));
                let part = &last[..cut.min(last.len() - 1)];
                sent.extend(part);
                expected.extend(part);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut read = Vec::new();
            runtime.block_on(async {
                let mut lenient = Lenient::new(&*sent);
                // As the HTTP library does, into memory that is not initialized.
                let mut buffer = bytes::BytesMut::with_capacity(size);
                while lenient.read_buf(&mut buffer).await.unwrap() > 0 {
                    read.extend_from_slice(&buffer.split());
                    buffer.reserve(size);
                }
            });
            prop_assert!(read == expected);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            fuzz(&bytes);
        }
    }
}
