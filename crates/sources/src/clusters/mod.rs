//! Remote clusters of the mesh and the connections to their APIs.
//!
//! Secrets of the config cluster define them: each entry is a kubeconfig under a cluster's id ([`secrets`]). Whoever may
//! write these Secrets may be allowed nothing else. So only the parts of a kubeconfig that describe a server are used
//! ([`kubeconfig`]): it cannot run programs or send local files. Neither errors nor `Debug` contain any of its text.

mod kubeconfig;
mod secrets;
#[cfg(test)]
mod tests;

pub use kubeconfig::{Allowed, Kubeconfig, RejectedKubeconfig, UnknownFeature};
pub use secrets::{Secrets, Settled, Step, Text, hash};

/// The label of Secrets with kubeconfigs.
pub const LABEL: &str = "istio/multiCluster";
