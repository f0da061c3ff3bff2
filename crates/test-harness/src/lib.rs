//! Real test and demo parts (Envoy, etcd, Kubernetes), pinned by version and checksum.
//!
//! A part is a program that users have and a test must not imitate. It is fetched once from the package registry, checked
//! against the checksum that is written here, and kept in the project's own folder (`target/tools`); nothing is installed
//! into the machine. [`envoy`] finds it or fetches it; `RUTTER_ENVOY` names another build to use instead.

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
/// The environment variable that names a program that holds Kubernetes' commands, to use instead of the pinned one.
pub const KUBERNETES_VARIABLE: &str = "RUTTER_KUBERNETES";

/// The path of an Envoy: what `RUTTER_ENVOY` names, else the pinned one, which is fetched first if it is not there yet.
/// `say` is told, in one line each, what is done.
pub fn envoy(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    match place::named_by_user()? {
        Some(path) => {
            say(&format!("envoy: {} (from {ENVOY_VARIABLE})", path.display()));
            Ok(path)
        }
        None => Installer::for_this_machine(tools_dir()).install(&ENVOY, say),
    }
}

/// The path of an Envoy that is there already; `None` if one would have to be fetched.
pub fn envoy_if_present() -> Option<PathBuf> {
    match place::named_by_user() {
        Ok(Some(path)) => Some(path),
        _ => Installer::for_this_machine(tools_dir()).present(&ENVOY),
    }
}
