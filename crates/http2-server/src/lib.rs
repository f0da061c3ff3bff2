//! An HTTP/2 server for gRPC (RFC 9113).
//!
//! It serves what discovery needs: few streams for each connection, which live long and send much. It differs from a general library:
//!
//! - A connection is one task with all its streams. While it is idle it has no buffers: it needs about 3 KiB.
//! - Responses are not copied: all frames that the windows allow are passed to the socket together, in place.
//! - The bytes of a request are collected in one buffer for each stream, which its reader takes as a whole.
//! - `:authority` may be anything, such as the encoded path of a Unix socket, which the C library of gRPC sends.
//!
//! # Limits
//! A client may have [`Settings::max_streams`] streams, 16 KiB of header fields for each, and [`Settings::window`] bytes of a body that are
//! not read (64 KiB if the window is smaller, until the client knows it). Of all bodies together, two windows, and at least
//! 64 KiB, may not be read. A client that does not read what it caused is not read. One that resets many open streams, or causes the
//! server to, loses the connection.
//!
//! A panic of a service or of its response resets one stream.
//!
//! Server push, `CONNECT` with a protocol, and priorities do not exist.

mod allowance;
mod body;
mod connection;
mod failure;
mod fields;
mod frame;
mod fuzz;
mod hpack;
mod keepalive;
mod output;
mod reader;
mod receive;
mod stream;

pub use body::RequestBody;
pub use connection::{Connection, Settings};
pub use failure::Broken;
pub use keepalive::Keepalive;

#[doc(hidden)]
pub use fuzz::fuzz;
