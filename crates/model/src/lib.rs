//! Plain data types that the layers share: resources on the wire, proxies, services, endpoints, listeners, audiences.
//!
//! Nothing here does anything but hold values and uphold their invariants: no I/O, no derivation, no protobuf.

pub mod audience;
pub mod listener;
pub mod mtls;
pub mod network;
pub mod proxy;
pub mod service;
pub mod session;
pub mod tls;
pub mod xds;
