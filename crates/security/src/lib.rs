//! Rules that derive which policies hold for a workload: who may connect to it and how, and what its proxy tells of its traffic.
//!
//! A policy is chosen by a workload's namespace and labels, never by a proxy: what a workload takes holds for who calls it,
//! too. Knows nothing of routes, listeners and protobuf.

pub mod peers;
pub mod plain;
pub mod telemetry;

/// Adds this crate's rules to a graph. The rules of `registry` must be there.
pub fn register(b: &mut flow::Builder) {
    peers::register(b);
    plain::register(b);
    telemetry::register(b);
}
