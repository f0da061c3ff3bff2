//! Rules that derive services and endpoints from resources.
//!
//! A service is one hostname of one namespace, whatever defined it; an endpoint is an address with ports, whatever
//! provided it: EndpointSlices, inline endpoints of a ServiceEntry, or workloads (pods, WorkloadEntries) selected by
//! labels, crosswise, too. Gateways and VirtualServices are what users wrote, and what Ingresses stand for. Knows nothing of routes, policy or proxies' configuration.

pub mod accounts;
pub mod aliases;
mod cluster_local;
pub mod endpoints;
mod ingress;
pub mod inputs;
mod joined;
pub mod networks;
pub mod pod_names;
pub mod proxy_settings;
pub mod routing;
pub mod selectors;
pub mod services;
pub mod workloads;

pub use accounts::{Identities, ServiceIdentities};
pub use aliases::{AliasTable, Aliases};
pub use cluster_local::holds as is_cluster_local;
pub use endpoints::{InstancePorts, ServiceEndpoints, ServicesByAddress};
pub use networks::{GatewayNames, NetworkGateways};
pub use pod_names::{PodName, PodNames};
pub use routing::{Gateways, VirtualServices};
pub use services::{Exported, Services, ServicesByExport, ServicesByHost};
pub use workloads::Workloads;

/// Adds this crate's tables and rules to a graph.
pub fn register(b: &mut flow::Builder) {
    inputs::register(b);
    networks::register(b);
    routing::register(b);
    services::register(b);
    selectors::register(b);
    aliases::register(b);
    networks::register_gateways(b);
    workloads::register(b);
    pod_names::register(b);
    proxy_settings::register(b);
    endpoints::register(b);
    accounts::register(b);
}
