//! The location of installed parts, and the programs that the user selected instead.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::{ENVOY_VARIABLE, Error};

/// The directory of installed parts: `RUTTER_TOOLS` if it is set, else `target/tools` of the workspace that contains
/// the current directory, else a folder of the user's cache.
pub fn tools_dir() -> PathBuf {
    if let Some(dir) = env::var_os("RUTTER_TOOLS").filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    let here = env::current_dir().unwrap_or_default();
    if let Some(root) = workspace_above(&here) {
        return root.join("target/tools");
    }
    let home = || env::home_dir().map(|home| home.join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    cache.or_else(home).unwrap_or_else(env::temp_dir).join("rutter/tools")
}

/// The program that the user selected with an environment variable, if any.
pub(crate) fn named_by_user() -> Result<Option<PathBuf>, Error> {
    let Some(path) = env::var_os(ENVOY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return Ok(None);
    };
    if is_program(&path) { Ok(Some(path)) } else { Err(Error::NotAProgram { variable: ENVOY_VARIABLE, path }) }
}

/// Whether this is an executable file.
pub(crate) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The root of this project's workspace, if it contains `dir`.
fn workspace_above(dir: &Path) -> Option<&Path> {
    // The `xtask` folder distinguishes this workspace from another one in which the demo is run.
    dir.ancestors().find(|dir| dir.join("Cargo.lock").is_file() && dir.join("crates/rutter").is_dir())
}
