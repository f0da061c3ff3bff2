//! Resources for proxyless gRPC clients and servers.
//!
//! gRPC supports a subset of Envoy's API, and rejects a whole response for some features outside of it (an unknown HTTP filter
//! or load balancer, a listener with filters). Such features are left out. Features that gRPC interprets differently than Envoy
//! (conditions that it ignores) are resolved here or left out. Other features that it ignores are kept. The supported features
//! are those of the documents A27 to A52 of grpc/proposal.

mod cluster;
mod listener;
mod route;
mod tls;

pub use cluster::{EncodedGrpcClusters, GrpcClusters};
pub use listener::GrpcListeners;
pub(crate) use route::route_configuration;
pub use route::{GrpcKubeRoutes, GrpcRoutes};
