//! Frames (RFC 9113, sections 4 and 6).

use crate::failure::{Code, Failure};

/// The length of a frame's head.
pub(crate) const HEAD: usize = 9;
/// The longest payload that is accepted and sent: the maximum that every implementation supports.
pub(crate) const MAX_FRAME: usize = 16 << 10;
/// The bytes with which a client begins.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest window, and the mask of numbers that have 31 bits.
pub(crate) const MAX_WINDOW: u32 = (1 << 31) - 1;
/// The windows of a connection and of its streams before any setting.
pub(crate) const FIRST_WINDOW: u32 = 65_535;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// Settings.
pub(crate) mod setting {
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// The length of the payload.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// 0 is the connection.
    pub(crate) stream: u32,
}

impl Head {
    pub(crate) fn read(bytes: &[u8; HEAD]) -> Head {
        let [high, middle, low, kind, flags, stream @ ..] = *bytes;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        Head { length, kind, flags, stream: u32::from_be_bytes(stream) & MAX_WINDOW }
    }

    pub(crate) fn write(self) -> [u8; HEAD] {
        // No frame that is sent is longer than 16 KiB.
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        let [a, b, c, d] = self.stream.to_be_bytes();
        [high, middle, low, self.kind, self.flags, a, b, c, d]
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload without padding, and without what a HEADERS frame says about priority.
    pub(crate) fn unpadded(self, payload: &[u8]) -> Result<&[u8], Failure> {
        let mut rest = payload;
        let mut padding = 0;
        if self.has(flag::PADDED) {
            let Some((length, after)) = rest.split_first() else { return Err(Failure::FRAME_SIZE) };
            (padding, rest) = (usize::from(*length), after);
        }
        if self.kind == kind::HEADERS && self.has(flag::PRIORITY) {
            rest = rest.get(5..).ok_or(Failure::FRAME_SIZE)?;
        }
        let length = rest.len().checked_sub(padding);
        length.map(|length| &rest[..length]).ok_or(Failure::Connection(Code::Protocol, "more padding than payload"))
    }
}

/// The number of 32 bits with which a payload begins.
pub(crate) fn number(payload: &[u8]) -> Result<u32, Failure> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(Failure::FRAME_SIZE)
}
