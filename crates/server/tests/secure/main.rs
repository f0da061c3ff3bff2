//! The TLS port over real sockets: handshakes, streams and certificates.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used)]

mod certificates;
mod hostile;
mod streams;
mod support;
