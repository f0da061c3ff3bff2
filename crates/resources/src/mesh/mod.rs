//! MeshConfig: what holds for the whole mesh, with Istio's defaults.

pub mod config;
pub mod provider;
pub mod proxy;
pub mod settings;

pub use config::MeshConfig;
pub use provider::*;
pub use proxy::*;
pub use settings::*;
