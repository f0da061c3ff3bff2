//! The status of streams, for debug output, and the status that streams end with.

use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::ResourceType;

use crate::{Moment, StreamId, Variant};

/// The gRPC status codes that streams end with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// 3: the client violated the protocol.
    InvalidArgument = 3,
    /// 8: the client exceeded a limit.
    ResourceExhausted = 8,
    /// 14: the client should reconnect.
    Unavailable = 14,
}

/// Why a stream ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The gRPC code.
    pub code: Code,
    /// The message.
    pub message: String,
}

impl Status {
    /// A status of this code and text.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
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

/// A response that was rejected (NACK).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastNack {
    /// The client's error message, truncated.
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
    /// The proxy at its other end.
    pub proxy: Arc<Proxy>,
    /// The protocol variant.
    pub variant: Variant,
    /// When it was opened.
    pub connected: Moment,
    /// Its subscriptions, in sending order.
    pub watches: Vec<WatchStatus>,
    /// Unserved types that it subscribed to.
    pub unserved: Vec<Arc<str>>,
}

/// The status of a stream's subscription to one type.
#[derive(Clone, Debug)]
pub struct WatchStatus {
    /// The type.
    pub kind: ResourceType,
    /// The number of names subscribed to; `None`: wildcard.
    pub names: Option<usize>,
    /// The last response.
    pub sent: Option<Exchange>,
    /// The last response that was acknowledged (ACK).
    pub acked: Option<Exchange>,
    /// The last response, if it was rejected (NACK).
    pub error: Option<LastNack>,
    /// Whether the client has acknowledged the current state.
    pub synced: bool,
}
