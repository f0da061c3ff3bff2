//! Encodes resources for Envoy, gRPC clients and Istio's agent, and reads their node messages.
//!
//! ```text
//! traffic: keys and rows ─► Clusters, Endpoints, Listeners, RouteConfigs, … ─► bytes ─► envoy-filter, world
//! ```
//!
//! `traffic` decides which resources a proxy gets; the result is in the keys and rows that these rules read. A message is
//! built, encoded and dropped: only the bytes are kept, and all streams share them. [`types`] describes the resource types,
//! [`register_types`] registers those that no EnvoyFilter changes, and [`parse_node`] reads the facts of a proxy.
//!
//! Invariants:
//!
//! - Equal keys and rows give equal bytes, in any order of changes.
//! - Envoy's stock build accepts every resource: a value outside its range is left out or limited, and extensions of Istio's
//!   build need a capability in the key.

mod access_log;
mod assignment;
mod cluster;
mod dns_cache;
mod endpoints;
mod grpc;
mod headers;
mod jwt;
mod listener;
mod name_table;
mod node;
mod parts;
mod pickers;
mod pieces;
mod rbac;
mod route;
mod secret;
mod serving;
#[cfg(test)]
mod testing;
mod tls;
mod tracing;
mod trust_bundle;
pub mod types;
mod wire;

pub use cluster::Clusters;
pub use endpoints::{Endpoints, LoadAssignments, OwnInstances};
pub use grpc::{EncodedGrpcClusters, GrpcClusters, GrpcKubeRoutes, GrpcListeners, GrpcRoutes};
pub use listener::{Listeners, equal_parts};
pub use name_table::{NameTables, ServiceNames};
pub use node::{NodeError, decode_node, parse_node};
pub use pieces::Pieces;
pub use rbac::{AuthorizationFilters, Filters as AuthorizationFilterList};
pub use route::{
    EncodedRoutes, HttpRoutes, KubeRoutes, Options as TableOptions, RouteConfigs, RouteShells, SharedVirtualHosts,
    VirtualHostResources, VirtualHosts, route_configuration, virtual_host_resource,
};
pub use secret::Secrets;
pub use serving::register_types;
pub use trust_bundle::TrustBundles;

/// Adds this crate's rules to a graph. The rules of `registry`, `gateway-api`, `security` and `traffic` must be registered first.
pub fn register(b: &mut flow::Builder) {
    b.view::<Clusters>();
    b.view::<LoadAssignments>();
    b.view::<Endpoints>();
    b.view::<OwnInstances>();
    b.view::<HttpRoutes>();
    b.view::<KubeRoutes>();
    b.view::<VirtualHosts>();
    b.view::<SharedVirtualHosts>();
    b.view::<GrpcRoutes>();
    b.view::<GrpcKubeRoutes>();
    b.view::<RouteConfigs>();
    b.view::<RouteShells>();
    b.view::<VirtualHostResources>();
    b.view::<EncodedGrpcClusters>();
    b.view::<GrpcClusters>();
    b.view::<GrpcListeners>();
    b.view::<AuthorizationFilters>();
    b.view::<equal_parts::EqualParts>();
    b.view::<Listeners>();
    b.view::<Secrets>();
    b.view::<ServiceNames>();
    b.view::<NameTables>();
    b.view::<TrustBundles>();
}
