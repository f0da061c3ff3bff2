//! A body in pieces, some of which other resources share.

use bytes::{Bytes, BytesMut};

/// Shorter parts are copied: a piece of its own costs more.
const SHARED: usize = 1024;

/// A body under construction.
#[derive(Default)]
pub struct Pieces {
    done: Vec<Bytes>,
    open: BytesMut,
}

impl Pieces {
    /// Adds a copy of these bytes.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
    }

    /// Adds these bytes without copying them, if they are not few.
    pub fn share(&mut self, bytes: Bytes) {
        if bytes.len() < SHARED {
            return self.copy(&bytes);
        }
        self.close();
        self.done.push(bytes);
    }

    /// The pieces in order.
    pub fn finish(mut self) -> Box<[Bytes]> {
        self.close();
        self.done.into()
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            // A buffer that grew may be twice as long as its content.
            self.done.push(Bytes::copy_from_slice(&std::mem::take(&mut self.open)));
        }
    }
}
