//! Kubernetes: its programs, built from the published Go modules, and (feature `run`) clusters of them.
//!
//! One program contains `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubelet`, `kube-proxy` and
//! `kubectl` ([`program`]). [`ControlPlane`] runs it with a real etcd, without root and in a few seconds. [`Node`] adds
//! a node that runs real pods in Linux namespaces of its own, which requires root and a container runtime. Everything
//! is removed at the end, even if the process that started it crashes.

#[cfg(feature = "run")]
mod certificates;
#[cfg(feature = "run")]
mod client;
#[cfg(feature = "run")]
mod components;
#[cfg(feature = "run")]
mod control_plane;
#[cfg(feature = "run")]
mod failures;
pub(crate) mod go;
#[cfg(feature = "run")]
mod image;
#[cfg(feature = "run")]
mod kept;
#[cfg(feature = "run")]
mod kubeconfig;
#[cfg(feature = "run")]
mod link;
mod machine;
#[cfg(feature = "run")]
pub mod mesh;
#[cfg(feature = "run")]
mod network;
#[cfg(feature = "run")]
pub mod node;
#[cfg(feature = "run")]
mod process;
mod program;
#[cfg(feature = "run")]
mod tar;
#[cfg(feature = "run")]
mod workdir;

#[cfg(feature = "run")]
pub use control_plane::{ControlPlane, Settings};
#[cfg(feature = "run")]
pub use failures::Snapshot;
#[cfg(feature = "run")]
pub use http::Method;
#[cfg(feature = "run")]
pub use image::Image;
#[cfg(feature = "run")]
pub use kept::{Kept, Program, down, status, up};
#[cfg(feature = "run")]
pub use link::{FaultPlan, Link, Passage};
pub use machine::{PACKAGES, install_packages, missing};
#[cfg(feature = "run")]
pub use node::Node;
pub use program::{VERSION, if_present, kubectl, kubectl_minor, program};
