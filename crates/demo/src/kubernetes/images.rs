//! The container images of the demo, built from programs of this machine.

use std::path::{Path, PathBuf};

use test_harness::kubernetes::{Image, mesh};
use test_harness::run::Result;

/// The image of this program: for Rutter, the shop and the client.
pub(super) const RUTTER: &str = "localhost/rutter-demo/rutter:1";
/// The image of sidecars and of the init container that sets up traffic capture: the agent and Envoy.
pub(super) const PROXY: &str = "localhost/rutter-demo/proxy:1";

/// The path of this program in its image.
pub(super) const PROGRAM: &str = mesh::RUTTER;

/// The image of this program.
pub(super) fn rutter() -> Result<Image> {
    mesh::control_plane(RUTTER, &std::env::current_exe()?)
}

/// The image of the agent and this Envoy.
pub(super) fn proxy(envoy: &Path) -> Result<Image> {
    mesh::proxy(PROXY, &agent()?, envoy)
}

/// The agent, which is built into the directory of this program.
fn agent() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("rutter-agent");
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} does not exist; build it with `cargo build --package rutter-agent`", path.display()).into())
}
