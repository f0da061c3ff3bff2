//! Load tests: a mesh in files, a control plane in its own process, and simulated proxies over real gRPC streams.
//!
//! The proxies are as cheap as possible, so that the figures are those of the control plane. Each uses HTTP/2 directly,
//! reads only the names and the nonce of a response, acknowledges it and drops it.

pub mod api;
pub mod certificates;
mod churn;
pub mod client;
pub mod cluster;
mod facts;
pub mod fleet;
pub mod gateways;
mod kept;
pub mod many;
pub mod mesh;
pub mod objects;
mod parts;
pub mod probe;
pub mod process;
pub mod report;
mod request;
mod rules;
pub mod run;
#[cfg(test)]
mod samples;
pub mod soak;
mod texts;
pub mod wire;
