//! MeshConfig and MeshNetworks: mesh-wide configuration with Istio's defaults.

mod access_log;
pub mod config;
mod connection;
pub mod layers;
pub mod networks;
pub mod overrides;
pub mod provider;
pub mod proxy;
pub mod settings;
mod tracing;

pub use access_log::*;
pub use config::MeshConfig;
pub use connection::*;
pub use layers::*;
pub use networks::*;
pub use overrides::ProxyConfigOverride;
pub use provider::*;
pub use proxy::*;
pub use settings::*;
pub use tracing::*;
