//! Gateways: merged servers, listeners and route tables of the `Gateway` objects of a proxy.

mod auto_passthrough;
mod listeners;
mod merge;
mod routes;

pub use listeners::{GatewayListeners, OwnAddresses};
pub use merge::{
    MergedGateway, MergedGateways, MergedPort, PortKind, Server, ServerHost, ServerTls, Unserved, UnservedReason,
};
pub use routes::gateway_table;

/// Adds the rules that route tables need.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<MergedGateways>();
}

/// Adds the rules of gateways' listeners.
pub(crate) fn register_listeners(b: &mut flow::Builder) {
    b.view::<OwnAddresses>();
    b.view::<GatewayListeners>();
}
