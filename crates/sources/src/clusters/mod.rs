//! Other clusters of the mesh: which there are, and the ways to their APIs.
//!
//! They are named by Secrets of the home cluster, whose data has a kubeconfig below each cluster's id ([`secrets`]). What
//! stands in a Secret may come from somebody who may write that Secret and nothing else, so that of a kubeconfig no more
//! counts than what leads to a server ([`kubeconfig`]): nothing in it runs a program or sends a file of this machine
//! anywhere. Its text is told to nobody: neither errors nor `Debug` repeat it.

mod kubeconfig;
mod secrets;
#[cfg(test)]
mod tests;

pub use kubeconfig::{Allowed, Connection, Kubeconfig, Refusal};
pub use secrets::{Secrets, Settled, Step, Text, hash};

/// The label of the Secrets.
pub const LABEL: &str = "istio/multiCluster";
