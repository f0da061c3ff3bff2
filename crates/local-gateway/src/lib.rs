//! Runs the Envoys of Gateways on one machine, without Kubernetes: `rutter gateway run`.
//!
//! ```text
//! GatewayClass, Gateway ─► Fleet ─► for each Gateway: a supervisor ─► Envoy ◄─xDS─ control plane
//!                            └─► Request: for a token, or to write its addresses into an annotation
//! ```
//!
//! [`Fleet`] receives the objects from its caller, which watches them: Gateways, their classes and ListenerSets, ProxyConfigs and ConfigMaps
//! with settings of proxies (`parameters`). It starts, changes and ends Envoys. It holds these invariants:
//!
//! - One Envoy for each Gateway of a served class. A label of the Gateway's node binds it to the Gateway; there is no Service.
//! - An Envoy never starts before the one that it replaces has drained and ended.
//! - Envoys share no ports: listeners do not use `SO_REUSEPORT`, so that Envoy rejects a listener whose port another process has,
//!   and the status of the Gateway says so. Two Envoys that get a port at the same moment may both accept the listener, and then
//!   only one opens it. The other one is restarted, and rejects it. Envoys start one after the other, which makes this rare.
//! - A Gateway that cannot run does not affect others.
//! - If the control plane cannot be reached, Envoys serve what they have.
//!
//! Envoy connects to the plaintext port or the Unix socket of the control plane without an agent. Over the socket it receives secrets
//! for HTTPS. With the TLS port, this process does for each Envoy what an agent does: it gets a certificate of the Gateway's service
//! account, first with a token, serves it over SDS, and relays xDS (`mesh`).

mod bootstrap;
mod exchange;
mod fleet;
mod gateway;
mod machine;
mod mesh;
mod parameters;
mod ports;
mod report;
mod run;
mod supervised;

pub use exchange::{Publication, Request, Settings};
pub use fleet::Fleet;
pub use gateway::Id;
pub use machine::{Folder, MachineError, find_envoy};
pub use mesh::{Secure, TokenRequest};

/// The address of the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Xds {
    /// The plaintext port of a host.
    Tcp(String, u16),
    /// The Unix socket.
    Unix(std::path::PathBuf),
    /// The TLS port, where a certificate authenticates the proxy.
    Tls(Secure),
}
