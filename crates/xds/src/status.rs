//! What streams end with, and what debug output shows of them.

use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::ResourceType;

use crate::{Moment, StreamId, Variant};

/// gRPC status codes that this crate ends streams with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// 3: the client said something that it may not say.
    InvalidArgument = 3,
    /// 8: the client said too much.
    ResourceExhausted = 8,
    /// 14: the client should connect again.
    Unavailable = 14,
}

/// Why a stream ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// Its kind.
    pub code: Code,
    /// For people.
    pub message: String,
}

impl Status {
    /// A status of this code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status {
            code,
            message: message.into(),
        }
    }
}

/// A response that was sent or accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Its version.
    pub version: Arc<str>,
    /// Its nonce.
    pub nonce: Arc<str>,
    /// When.
    pub at: Moment,
}

/// A response that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The client's words, cut to a bounded length.
    pub message: Arc<str>,
    /// The response's version.
    pub version: Arc<str>,
    /// The response's nonce.
    pub nonce: Arc<str>,
    /// When.
    pub at: Moment,
}

/// A connected stream.
#[derive(Clone, Debug)]
pub struct StreamStatus {
    /// The stream.
    pub id: StreamId,
    /// Who is at its other end.
    pub proxy: Arc<Proxy>,
    /// Which variant of the protocol it speaks.
    pub variant: Variant,
    /// Since when.
    pub connected: Moment,
    /// What it subscribes to, in sending order.
    pub watches: Vec<WatchStatus>,
    /// Types that it asked for and that are not served.
    pub unserved: Vec<Arc<str>>,
}

/// A stream's place in one type.
#[derive(Clone, Debug)]
pub struct WatchStatus {
    /// The type.
    pub kind: ResourceType,
    /// How many names it subscribes to; `None`: all.
    pub names: Option<usize>,
    /// The last response.
    pub sent: Option<Exchange>,
    /// The last response that was accepted.
    pub acked: Option<Exchange>,
    /// The last response, if it was refused.
    pub error: Option<Refusal>,
    /// Whether the client has answered for everything that there is.
    pub synced: bool,
}
