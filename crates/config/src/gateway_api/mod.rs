//! The kinds of the Gateway API (`gateway.networking.k8s.io`, including its experimental fields) and of related APIs
//! (`gateway.networking.x-k8s.io` and `inference.networking.k8s.io`).
//!
//! Each field declares whether it is required, its bounds, its default and its pattern; each message declares its CEL
//! rules.

pub mod backend_policy;
mod duration;
pub mod filter;
pub mod gateway;
pub mod grpc_route;
pub mod http_route;
pub mod inference_pool;
pub mod l4_route;
pub mod listener;
pub mod mesh;
pub mod reference;
pub mod session;
pub mod status;
pub(crate) mod text;

pub use backend_policy::{BackendTlsPolicy, BackendTrafficPolicy};
pub use duration::GatewayDuration;
pub use gateway::{FromListenerNamespaces, Gateway, GatewayClass};
pub use grpc_route::GrpcRoute;
pub use http_route::HttpRoute;
pub use inference_pool::InferencePool;
pub use l4_route::{TcpRoute, TlsRoute, UdpRoute};
pub use listener::{Listener, ListenerSet, ListenerTls};
pub use mesh::XMesh;
pub use reference::ReferenceGrant;
