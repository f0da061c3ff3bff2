//! The vocabulary of names: hostnames, namespaces, protocols of ports, cluster names, SPIFFE identities, node ids,
//! cipher suites.
//!
//! Each type is made by a parser that holds the whole promise, is cheap to clone, and knows nothing of where names are
//! used: no objects, no proxies, no tables.

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

/// Why a text is not the name it should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} {reason}")]
pub struct NameError {
    /// The refused text, cut to a bounded length.
    pub text: String,
    /// What is wrong with it, to be read after the text.
    pub reason: &'static str,
}

impl NameError {
    /// An error about this text. Long texts are cut, so that outside bytes cannot fill a log.
    pub fn new(text: &str, reason: &'static str) -> NameError {
        NameError {
            text: text.chars().take(100).collect(),
            reason,
        }
    }
}
