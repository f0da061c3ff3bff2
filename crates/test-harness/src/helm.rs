//! Helm, built from its Go module. Tests compare the output of `rutter`'s chart command with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::kubernetes::go;
use crate::place::{is_program, tools_dir};

/// The version, as in `helm/go.mod`; `helm/go.sum` pins it and its dependencies.
const VERSION: &str = "3.22.0";
/// The environment variable that names a Helm to use instead of building one.
pub const HELM_VARIABLE: &str = "RUTTER_HELM";

/// Returns the path of Helm: the program named by `RUTTER_HELM`, or else one built here, which takes minutes the first
/// time. Reports progress to `say`.
///
/// # Errors
/// The named path is not an executable, or the build fails.
pub fn helm(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    let named = std::env::var_os(HELM_VARIABLE).filter(|path| !path.is_empty());
    if let Some(path) = named.map(PathBuf::from) {
        return match is_program(&path) {
            true => Ok(path),
            false => Err(Error::NotAProgram { variable: HELM_VARIABLE, path }),
        };
    }
    let tools = tools_dir();
    let place = tools.join(format!("helm-{VERSION}"));
    let built = place.join("helm");
    if is_program(&built) {
        say(&format!("helm {VERSION}: already in {}", built.display()));
        return Ok(built);
    }
    fs::create_dir_all(&place).map_err(Error::at(&place))?;
    let lock_path = tools.join(".helm.lock");
    let lock = File::create(&lock_path).map_err(Error::at(&lock_path))?;
    lock.lock().map_err(Error::at(&lock_path))?;
    if !is_program(&built) {
        let go = go::toolchain(&tools, say)?;
        say(&format!("helm {VERSION}: building with {}; this takes some minutes", go.display()));
        // Built under a temporary name and then renamed, so that an interrupted build is not mistaken for a complete
        // one.
        let draft = place.join(".helm.partial");
        build(&go, &draft)?;
        fs::rename(&draft, &built).map_err(Error::at(&draft))?;
    }
    Ok(built)
}

fn build(go: &Path, draft: &Path) -> Result<(), Error> {
    let stamp = format!("-s -w -X helm.sh/helm/v3/internal/version.version=v{VERSION}");
    let output = Command::new(go)
        .args(["build", "-trimpath", "-mod=readonly", "-ldflags", &stamp, "-o"])
        .arg(draft)
        .arg("helm.sh/helm/v3/cmd/helm")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("helm"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(Error::at(go))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Build {
            part: "helm",
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
            variable: HELM_VARIABLE,
        }),
    }
}
