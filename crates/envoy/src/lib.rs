//! Rules that encode clusters, endpoints, listeners and routes for Envoy.
//!
//! What a proxy gets was decided before, in `traffic`, and is in the keys and the rows that these rules read; here it
//! becomes bytes. A message is built, encoded and dropped: only bytes are kept, and every stream that gets a resource
//! shares them. Equal keys and rows make equal bytes, whatever order things happened in.
//!
//! Knows nothing of proxies, subscriptions and streams. What Envoy's stock build would refuse is never written: a value
//! out of its range is left out or cut, and extensions of Istio's build need a capability in the key.

mod access_log;
mod assignment;
mod cluster;
mod dns_cache;
mod endpoints;
mod grpc;
mod headers;
mod listener;
mod name_table;
mod parts;
mod route;
mod secret;
#[cfg(test)]
mod testing;
mod tls;
mod tracing;
mod wire;

pub use cluster::Clusters;
pub use endpoints::{EndpointCatalogue, EndpointCollections, Endpoints, LbEndpoints, LoadAssignments, generation_of};
pub use grpc::{EncodedGrpcClusters, GrpcClusters, GrpcListeners, GrpcRoutes};
pub use listener::Listeners;
pub use name_table::{NameTables, ServiceNames};
pub use route::{
    EncodedRoutes, HttpRoutes, Options as TableOptions, RouteConfigs, RouteShells, VirtualHostResources, VirtualHosts,
    route_configuration,
};
pub use secret::Secrets;

/// Adds this crate's rules to a graph. The rules of `registry`, `policy` and `traffic` must be there.
pub fn register(b: &mut flow::Builder) {
    b.view::<Clusters>();
    b.view::<LoadAssignments>();
    b.view::<Endpoints>();
    b.view::<EndpointCollections>();
    b.view::<EndpointCatalogue>();
    b.view::<LbEndpoints>();
    b.view::<HttpRoutes>();
    b.view::<VirtualHosts>();
    b.view::<GrpcRoutes>();
    b.view::<RouteConfigs>();
    b.view::<RouteShells>();
    b.view::<VirtualHostResources>();
    b.view::<EncodedGrpcClusters>();
    b.view::<GrpcClusters>();
    b.view::<GrpcListeners>();
    b.view::<Listeners>();
    b.view::<Secrets>();
    b.view::<ServiceNames>();
    b.view::<NameTables>();
}
