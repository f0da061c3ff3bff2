//! Divides received bytes into frames.

use std::borrow::Cow;

use crate::failure::Failure;
use crate::frame::{HEAD, Head, MAX_FRAME, PREFACE};

/// The received part of the next frame. Uses memory only between the parts of a frame.
#[derive(Default)]
pub(crate) struct Reader {
    /// The number of bytes of the client's preface that were received.
    preface: usize,
    held: Vec<u8>,
}

/// A frame.
pub(crate) struct Received<'a> {
    pub(crate) head: Head,
    /// The whole frame.
    bytes: Cow<'a, [u8]>,
}

impl Received<'_> {
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[HEAD..]
    }
}

impl Reader {
    /// Takes the next frame from `bytes`. Keeps the bytes of a frame that is not complete, and returns `None`.
    ///
    /// # Errors
    /// The client does not speak HTTP/2, or the frame is too long.
    pub(crate) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Received<'a>>, Failure> {
        self.skip_preface(bytes)?;
        if self.held.is_empty()
            && let Some(head) = bytes.first_chunk()
        {
            let head = checked(Head::read(head))?;
            if let Some((frame, rest)) = bytes.split_at_checked(HEAD + head.length) {
                *bytes = rest;
                return Ok(Some(Received { head, bytes: Cow::Borrowed(frame) }));
            }
        }
        self.hold(bytes, HEAD);
        let Some(head) = self.held.first_chunk() else { return Ok(None) };
        let head = checked(Head::read(head))?;
        self.hold(bytes, HEAD + head.length);
        if self.held.len() < HEAD + head.length {
            return Ok(None);
        }
        Ok(Some(Received { head, bytes: Cow::Owned(std::mem::take(&mut self.held)) }))
    }

    fn skip_preface(&mut self, bytes: &mut &[u8]) -> Result<(), Failure> {
        let expected = &PREFACE[self.preface..];
        let (part, rest) = bytes.split_at(bytes.len().min(expected.len()));
        if part != &expected[..part.len()] {
            return Err(Failure::protocol("the client does not speak HTTP/2"));
        }
        self.preface += part.len();
        *bytes = rest;
        Ok(())
    }

    /// Moves bytes until `length` are held.
    fn hold(&mut self, bytes: &mut &[u8], length: usize) {
        let missing = length.saturating_sub(self.held.len());
        let (part, rest) = bytes.split_at(bytes.len().min(missing));
        if !part.is_empty() {
            self.held.reserve_exact(missing);
            self.held.extend_from_slice(part);
        }
        *bytes = rest;
    }
}

fn checked(head: Head) -> Result<Head, Failure> {
    if head.length > MAX_FRAME { Err(Failure::FRAME_SIZE) } else { Ok(head) }
}
