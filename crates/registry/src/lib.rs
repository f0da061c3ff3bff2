//! Rules that derive services, endpoints and workloads from configuration objects, whatever their source.
//!
//! ```text
//! Service, ServiceImport, ServiceEntry, InferencePool ──► Services ─┐
//! Pod, WorkloadEntry ──► Workloads ─────────────────────────────────┼──► ServiceEndpoints ──► readers in traffic, envoy
//! EndpointSlice ────────────────────────────────────────────────────┘
//! Gateway, VirtualService, Ingress ──► Gateways, VirtualServices
//! ```
//!
//! A service ([`Services`]) is one hostname of one namespace. An endpoint ([`ServiceEndpoints`]) is an address with
//! ports: from EndpointSlices, from inline endpoints of a ServiceEntry, or from workloads that a service selects by
//! labels. An InferencePool is the service of the pods that it selects. ServiceEntries may select pods, and Services may select WorkloadEntries. [`Gateways`] and
//! [`VirtualServices`] include those that Ingresses are translated to.
//!
//! Sources may define the same object: the tables ([`inputs`]) contain the ones in effect ([`tables`]).
//!
//! Invariants: the rules read tables and each other only, and know no routes, policies or proxies. Each hostname has one
//! service per namespace; precedence between definitions is decided here.

pub mod accounts;
pub mod aliases;
mod cluster_local;
pub mod endpoints;
pub mod ingress;
pub mod inputs;
mod joined;
pub mod networks;
pub mod objects;
pub mod pod_names;
pub mod pools;
pub mod proxy_settings;
pub mod routing;
pub mod selectors;
pub mod services;
pub mod tables;
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
