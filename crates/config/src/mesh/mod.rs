//! MeshConfig and MeshNetworks: mesh-wide configuration with Istio's defaults.

pub mod config;
pub mod layers;
pub mod networks;
pub mod overrides;
pub mod provider;
pub mod proxy;
pub mod settings;

pub use config::MeshConfig;
pub use layers::*;
pub use networks::*;
pub use overrides::ProxyConfigOverride;
pub use provider::*;
pub use proxy::*;
pub use settings::*;
