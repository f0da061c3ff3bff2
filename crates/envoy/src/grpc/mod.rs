//! Resources for gRPC's own discovery client: applications that are clients and servers of the mesh without a proxy.
//!
//! gRPC takes a subset of what Envoy takes, and refuses a whole response for some of what is outside of it (an HTTP filter
//! or a load balancer that it does not know, a listener with filters). What it would refuse is not written; what it would
//! understand otherwise than Envoy (conditions that it does not look at) is decided here or left out. What it ignores is
//! left as it is. The features are those of the documents A27 to A52 of grpc/proposal.

mod cluster;
mod listener;
mod route;
mod tls;

pub use cluster::{EncodedGrpcClusters, GrpcClusters};
pub use listener::GrpcListeners;
pub use route::GrpcRoutes;
pub(crate) use route::route_configuration;
