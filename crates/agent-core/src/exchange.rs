//! The values that the parts of the agent exchange: an [`Event`] through a queue, all others through [`tokio::sync::watch`].

use std::sync::Arc;

pub use protos::istio::networking::nds::v1::NameTable;

/// The health of the application, as its probes found it. The relay reports it to the control plane.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// No probe has ended yet, or the application has none.
    #[default]
    Unknown,
    /// Requests may be sent to the application.
    Healthy,
    /// No requests may be sent to the application.
    Unhealthy {
        /// The reason, for people.
        reason: String,
    },
}

/// The name table that the control plane sent last; none before the first.
pub type Names = Option<Arc<NameTable>>;

/// The PEM blocks of the trust roots of the mesh configuration, besides the root of the certificate authority. Empty before the
/// control plane sent them.
pub type MeshRoots = Arc<Vec<String>>;

/// A request of the status port to the supervisor of Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// `POST /drain`: Envoy drains now. A later stop ends it at once.
    Drain,
    /// `POST /quitquitquit`: Envoy and the agent end now, without draining.
    Quit,
}
