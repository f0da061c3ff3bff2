//! The kinds of the Gateway API (`gateway.networking.k8s.io`, with its experimental fields) and of its neighbours
//! (`gateway.networking.x-k8s.io`, `inference.networking.k8s.io`).
//!
//! What the API requires, bounds, defaults and compares by patterns stands beside each field, and rules in CEL beside the
//! messages that they are about. The rules' counterparts in Rust are in `validate::gateway_api`.

pub mod backend_policy;
mod duration;
pub mod filter;
pub mod gateway;
pub mod grpc_route;
pub mod http_route;
pub mod inference_pool;
pub mod l4_route;
pub mod listener;
pub mod reference;
pub mod session;
pub mod status;
pub(crate) mod text;

pub use backend_policy::{BackendTlsPolicy, BackendTrafficPolicy};
pub use duration::GatewayDuration;
pub use gateway::{Gateway, GatewayClass};
pub use grpc_route::GrpcRoute;
pub use http_route::HttpRoute;
pub use inference_pool::InferencePool;
pub use l4_route::{TcpRoute, TlsRoute, UdpRoute};
pub use listener::{Listener, ListenerSet, ListenerTls};
pub use reference::ReferenceGrant;
