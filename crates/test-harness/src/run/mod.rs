//! A small mesh on one machine, made of real parts: the demo and the end-to-end tests run on it.
//!
//! [`Control`] is the control plane as a child process, [`Envoy`] a real proxy with a bootstrap that finds it,
//! [`Backend`] an HTTP service that says who it is and misbehaves when asked to, [`Traffic`] a steady stream of requests
//! that counts every answer, [`Http2`] a client that speaks HTTP/2 and gRPC, [`Dns`] a server of names, [`Relay`] one that wants
//! connections to begin in some way, [`ConfigDir`] the directory in which an operator would edit files. Everything listens on
//! loopback, on ports that are free at the time; everything ends when it is dropped.

mod backend;
mod config_dir;
mod control;
mod dns;
mod envoy;
pub mod http;
mod http2;
mod ports;
mod relay;
mod tally;
mod traffic;

pub use backend::Backend;
pub use config_dir::ConfigDir;
pub use control::Control;
pub use dns::Dns;
pub use envoy::{Envoy, Node, Protocol};
pub use http2::{Http2, grpc_message, next_grpc_message};
pub use ports::free_port;
pub use relay::{Preamble, Relay};
pub use tally::{publish, read_counts};
pub use traffic::{Counts, Traffic};

/// What goes wrong here is for a person to read.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Polls until `check` returns something, at most for `limit`; the error says what was waited for.
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
        // There is no event to wait for in another process's state; this is short against what is measured.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
