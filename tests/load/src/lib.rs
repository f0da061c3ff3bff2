//! Load: a mesh in files, a control plane in a process of its own, and N simulated proxies over N real gRPC streams.
//!
//! The proxies are as cheap as they can be, so that what is measured is the control plane: each speaks HTTP/2 directly,
//! looks at a response's names and nonce, acknowledges, and forgets it.

pub mod client;
pub mod cluster;
pub mod mesh;
pub mod probe;
pub mod report;
mod rules;
pub mod run;
pub mod wire;
