//! The network edge: discovery over HTTP/2, readiness, metrics, debug pages.
//!
//! One thread ([`pilot`]) owns the derived world and the hub of streams; everything else talks to it through a bounded
//! channel. A stream is two halves: a task that reads requests, and a body that HTTP/2 pulls responses from. A response is
//! a rope of shared bytes; this crate copies only pieces too small to be worth a write of their own.
//!
//! Decides nothing: what is served comes from `world`, when it is sent from `ads`, what is told of objects from `plan`.

mod config_dump;
mod debug;
mod discovery;
mod feedback;
mod grpc;
mod listen;
mod mcp;
mod metrics;
mod origin;
mod pages;
mod shares;
mod syncz;
mod world_handle;

pub use feedback::Observation;
pub use listen::{Addresses, Options, Server};
pub use mcp::Configuration;
pub use metrics::Gauge;
pub use pages::Standing;
pub use world_handle::{Closed, Names, WorldHandle};
