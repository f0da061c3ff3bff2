//! Rules that derive security and telemetry policies of workloads: inbound mTLS modes, the policies that authorize and
//! authenticate requests, and access logs, traces and metrics.
//!
//! ```text
//! PeerAuthentication ──► peers (modes by workload) ──► inbound listeners, gRPC servers
//!                              └──► plain (plain-text endpoints) ──► clusters and endpoints of clients
//! AuthorizationPolicy, RequestAuthentication ──► selection (which policies select a workload) ──► audiences
//! AuthorizationPolicy ──► authorization (checks by set of policies) ──► inbound and gateway listeners
//! RequestAuthentication, fetched keys ──► request_authentication (verification of tokens) ──► inbound and gateway listeners
//! MeshConfig ──► telemetry (logs, tracer, metrics) ──► listeners, clusters of telemetry services
//! ```
//!
//! Invariants: a policy is selected by a workload's namespace and labels, never by a proxy, because it concerns the
//! workload's clients, too. The crate knows no routes, listeners or protobuf.

pub mod authorization;
mod backend;
pub mod peers;
pub mod plain;
pub mod request_authentication;
pub mod selection;
pub mod telemetry;

pub use backend::{Backend, Flaw};

/// Adds this crate's rules to a graph. The rules of `registry` must be there.
pub fn register(b: &mut flow::Builder) {
    peers::register(b);
    plain::register(b);
    request_authentication::register(b);
    selection::register(b);
    authorization::register(b);
    telemetry::register(b);
}
