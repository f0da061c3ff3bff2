//! A small mesh on one machine, made of real parts. The demo and the end-to-end tests use it.
//!
//! [`Control`] is the control plane as a child process, [`Envoy`] a real proxy that connects to it, [`Backend`] an HTTP
//! service that identifies itself and fails on demand, [`Traffic`] a steady stream of requests that counts every
//! response, [`Http2`] a client for HTTP/2 and gRPC, [`Dns`] a DNS server, [`Relay`] a server that requires a preamble
//! on each connection, and [`ConfigDir`] the directory of configuration files. Everything listens on free ports of
//! loopback and ends when it is dropped.

mod backend;
mod config_dir;
mod control;
mod counts;
mod dns;
mod envoy;
pub mod http;
mod http2;
mod ports;
mod relay;
mod traffic;

pub use backend::Backend;
pub use config_dir::ConfigDir;
pub use control::Control;
pub use counts::{publish, read_counts};
pub use dns::Dns;
pub use envoy::{Envoy, Node, Protocol, XdsAddress};
pub use http2::{Http2, grpc_message, next_grpc_message};
pub use ports::free_port;
pub use relay::{Preamble, Relay};
pub use traffic::{Counts, Traffic};

/// An error for people to read.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Polls until `check` returns something, for at most `limit`. The error names what was waited for.
pub async fn wait_for<T, F: Future<Output = Option<T>>>(
    what: &str,
    limit: std::time::Duration,
    mut check: impl FnMut() -> F,
) -> Result<T> {
    let end = tokio::time::Instant::now() + limit;
    loop {
        if let Some(found) = check().await {
            return Ok(found);
        }
        if tokio::time::Instant::now() >= end {
            return Err(format!("waited {limit:?} for {what}").into());
        }
        // The state of another process can only be polled. The interval is short compared to what is measured.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
