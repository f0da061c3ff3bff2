//! A body in pieces, some of which other resources share.

use bytes::Bytes;

/// Shorter parts are copied: a piece of its own costs more.
const SHARED: usize = 1024;

/// A body under construction.
#[derive(Default)]
pub struct Pieces {
    /// All copied bytes, which are in one allocation.
    copied: Vec<u8>,
    /// The shared pieces, each with the number of copied bytes before it.
    shared: Vec<(usize, Bytes)>,
}

impl Pieces {
    /// Adds a copy of these bytes.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    /// Adds these bytes without copying them, if they are not few.
    pub fn share(&mut self, bytes: Bytes) {
        match bytes.len() < SHARED {
            true => self.copy(&bytes),
            false => self.share_any(bytes),
        }
    }

    /// Adds these bytes without copying them.
    pub(crate) fn share_any(&mut self, bytes: Bytes) {
        self.shared.push((self.copied.len(), bytes));
    }

    /// The pieces in order.
    pub fn finish(self) -> Box<[Bytes]> {
        // A buffer that grew may be twice as long as its content.
        let copied = Bytes::from(self.copied.into_boxed_slice());
        let (mut pieces, mut begin) = (Vec::with_capacity(2 * self.shared.len() + 1), 0);
        for (end, shared) in self.shared {
            pieces.extend([copied.slice(begin..end), shared]);
            begin = end;
        }
        pieces.push(copied.slice(begin..));
        pieces.retain(|piece| !piece.is_empty());
        pieces.into()
    }
}
