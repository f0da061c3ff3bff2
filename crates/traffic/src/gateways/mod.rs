//! Gateways: merged servers, listeners and route tables of the `Gateway` objects of a proxy.

mod auto_passthrough;
mod connections;
mod kube;
mod listeners;
mod merge;
mod misdirected;
mod routes;
mod server;

pub(crate) use connections::proxy;
pub(crate) use kube::destinations;
pub use listeners::{GatewayListeners, OwnAddresses};
pub use merge::{MergedGateway, MergedGateways, MergedPort, PortKind, Unserved, UnservedReason};
pub use routes::{ServersOfTable, gateway_table};
pub use server::{Server, ServerHost, ServerOwner, ServerTls};

/// Adds the rules that route tables need.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<MergedGateways>();
    routes::register(b);
    kube::register(b);
}

/// Adds the rules of gateways' listeners.
pub(crate) fn register_listeners(b: &mut flow::Builder) {
    b.view::<OwnAddresses>();
    b.view::<GatewayListeners>();
}
