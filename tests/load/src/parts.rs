//! Splits a gRPC body into the fields of its messages while it arrives.
//!
//! A response can have 20 MB, and thousands of proxies receive one at the same time. Each has at most one incomplete
//! field of it in memory: one resource.

use anyhow::{Context, Result, bail};

use crate::wire;

/// The most memory that is kept for the next incomplete field, in bytes.
const KEPT: usize = 4 << 10;

/// A part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// A length-delimited field of a message: its number and its bytes. Other fields are skipped.
    Field(u64, &'a [u8]),
    /// The end of a message.
    End,
}

/// The state between two chunks of a body.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The begin of a header or field that is incomplete.
    begun: Vec<u8>,
    /// The bytes of the message from `begun` on; `None` before a header.
    left: Option<usize>,
}

impl Parts {
    /// Passes the parts that this chunk completes to `take`.
    ///
    /// # Errors
    /// The body is invalid, or `take` fails.
    pub(crate) fn feed(&mut self, mut chunk: &[u8], mut take: impl FnMut(Part<'_>) -> Result<()>) -> Result<()> {
        loop {
            match self.left {
                None => {
                    if !self.collect(&mut chunk, wire::PREFIX) {
                        return Ok(());
                    }
                    self.left = Some(length(&self.begun)?);
                    self.begun.clear();
                }
                Some(0) => {
                    self.left = None;
                    take(Part::End)?;
                }
                Some(left) => {
                    let Some(length) = self.field(&mut chunk, left, &mut take)? else {
                        return Ok(());
                    };
                    self.left = Some(left - length);
                }
            }
        }
    }

    /// Passes on the next field, and returns its length. `None` if it is incomplete.
    fn field(
        &mut self,
        chunk: &mut &[u8],
        left: usize,
        take: &mut impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Option<usize>> {
        // Most fields are within one chunk, and are not copied.
        if self.begun.is_empty()
            && let Some(head) = head(&chunk[..left.min(chunk.len())], left)?
            && let Some((field, rest)) = chunk.split_at_checked(head.end)
        {
            *chunk = rest;
            pass(&head, field, take)?;
            return Ok(Some(head.end));
        }
        loop {
            let Some(head) = head(&self.begun, left)? else {
                if !self.collect(chunk, self.begun.len() + 1) {
                    return Ok(None);
                }
                continue;
            };
            if !self.collect(chunk, head.end) {
                return Ok(None);
            }
            pass(&head, &self.begun, take)?;
            self.begun.clear();
            self.begun.shrink_to(KEPT);
            return Ok(Some(head.end));
        }
    }

    /// Moves bytes from a chunk until `begun` has this length. Returns whether it has.
    fn collect(&mut self, chunk: &mut &[u8], length: usize) -> bool {
        let missing = length.saturating_sub(self.begun.len());
        let (taken, rest) = chunk.split_at(missing.min(chunk.len()));
        self.begun.extend_from_slice(taken);
        *chunk = rest;
        self.begun.len() >= length
    }
}

/// The length of the message after this header.
fn length(header: &[u8]) -> Result<usize> {
    let (flag, length) = header.split_first_chunk::<1>().context("no header")?;
    if *flag != [0] {
        bail!("a compressed message");
    }
    Ok(u32::from_be_bytes(length.try_into()?) as usize)
}

/// The head of the first field of a message of which `left` bytes are left.
fn head(bytes: &[u8], left: usize) -> Result<Option<wire::Head>> {
    let head = wire::head(bytes)?;
    let end = head.as_ref().map_or(bytes.len() + 1, |head| head.end);
    if end > left {
        bail!("a field ends after its message");
    }
    Ok(head)
}

fn pass(head: &wire::Head, field: &[u8], take: &mut impl FnMut(Part<'_>) -> Result<()>) -> Result<()> {
    match head.value(field) {
        Some(value) => take(Part::Field(head.number, value)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    /// A field with its number, or the end of a message.
    type Owned = Option<(u64, Vec<u8>)>;

    /// The parts of a body in chunks; `None` is the end of a message.
    fn parts<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> Result<Vec<Owned>> {
        let (mut found, mut parts) = (Vec::new(), Parts::default());
        for chunk in chunks {
            parts.feed(chunk, |part| {
                found.push(match part {
                    Part::Field(number, value) => Some((number, value.to_vec())),
                    Part::End => None,
                });
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// A message with all kinds of fields, an empty message, and a small one.
    fn body() -> (Vec<u8>, Vec<Owned>) {
        let mut message = BytesMut::new();
        wire::put(&mut message, 2, &[7; 300]);
        message.extend_from_slice(&[0x08, 0x96, 0x01]);
        wire::put(&mut message, 400, b"");
        message.extend_from_slice(&[0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4]);
        wire::put(&mut message, 5, b"nonce");
        let mut small = BytesMut::new();
        wire::put(&mut small, 6, b"gone");
        let body = [&wire::frame(&message)[..], &wire::frame(b""), &wire::frame(&small)].concat();
        let field = |number, value: &[u8]| Some((number, value.to_vec()));
        let expected =
            vec![field(2, &[7; 300]), field(400, b""), field(5, b"nonce"), None, None, field(6, b"gone"), None];
        (body, expected)
    }

    #[test]
    fn chunks_of_any_size_have_the_same_parts() -> Result<()> {
        let (body, expected) = body();
        for size in 1..=body.len() {
            assert_eq!(parts(body.chunks(size))?, expected, "chunks of {size} bytes");
        }
        Ok(())
    }

    #[test]
    fn a_body_can_be_split_anywhere() -> Result<()> {
        let (body, expected) = body();
        for first in 0..=body.len() {
            for second in first..=body.len() {
                let chunks = [&body[..first], &body[first..second], &body[second..]];
                assert_eq!(parts(chunks)?, expected, "split at {first} and {second}");
            }
        }
        Ok(())
    }

    #[test]
    fn invalid_bodies_are_errors_however_they_are_split() {
        let bodies = [
            // A compressed message.
            vec![1, 0, 0, 0, 0],
            // A tag, a length, a number and a value that end after the message.
            wire::frame(&[0x80]).to_vec(),
            wire::frame(&[0x12, 0x80]).to_vec(),
            wire::frame(&[0x08, 0x80]).to_vec(),
            wire::frame(&[0x12, 0x02, b'x']).to_vec(),
            wire::frame(&[0x19, 1, 2, 3]).to_vec(),
            // The largest length.
            wire::frame(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, b'x']).to_vec(),
            // A number of more than ten bytes, a group, and the field number 0.
            wire::frame(&[0x80; 20]).to_vec(),
            wire::frame(&[0x0b]).to_vec(),
            wire::frame(&[0x02, 0x00]).to_vec(),
        ];
        for body in &bodies {
            for size in 1..=body.len() {
                assert!(parts(body.chunks(size)).is_err(), "{body:?} in chunks of {size} bytes");
            }
        }
    }

    #[test]
    fn any_change_of_a_byte_is_handled_alike_however_the_body_is_split() {
        let (body, _) = body();
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut changed = body.clone();
                changed[at] ^= 1 << bit;
                let whole = parts([&changed[..]]).ok();
                assert_eq!(parts(changed.chunks(7)).ok(), whole, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn memory_for_a_large_field_is_released() -> Result<()> {
        let mut message = BytesMut::new();
        wire::put(&mut message, 2, &[7; 1 << 20]);
        let (body, mut parts) = (wire::frame(&message), Parts::default());
        for chunk in body.chunks(16 << 10) {
            parts.feed(chunk, |_| Ok(()))?;
        }
        assert!(parts.begun.capacity() <= KEPT, "{}", parts.begun.capacity());
        Ok(())
    }
}
