//! Names: hostnames, namespaces, port protocols, cluster names, SPIFFE identities, node ids and cipher suites.
//!
//! ```text
//! text ──parse──► Hostname, ClusterName, Identity, NodeId, Protocol ──Display──► text
//! ```
//!
//! Parsers return a valid value or a [`NameError`]. Only parsers create a [`Hostname`] or a [`TrustDomain`], so that these
//! are always valid. Values are cheap to clone. The crate depends on no other crate of Rutter and knows neither objects
//! nor proxies.

pub mod cipher;
pub mod cluster;
pub mod dns;
pub mod hostname;
pub mod identity;
pub mod node;
pub mod protocol;

pub use cipher::CIPHER_SUITES;
pub use cluster::{ClusterName, Direction};
pub use hostname::Hostname;
pub use identity::{Identity, TrustDomain};
pub use node::{NodeId, NodeType};
pub use protocol::Protocol;

/// The start of Rutter's join tokens. They are valid once, and only for a certificate.
pub const JOIN_TOKEN: &str = "rutter-join.";

/// An invalid name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} {reason}")]
pub struct NameError {
    /// The rejected text, truncated.
    pub text: String,
    /// The reason, to be read after the text.
    pub reason: &'static str,
}

impl NameError {
    /// Creates an error. Truncates long texts, so that untrusted input cannot fill a log.
    pub fn new(text: &str, reason: &'static str) -> NameError {
        NameError { text: text.chars().take(100).collect(), reason }
    }
}
