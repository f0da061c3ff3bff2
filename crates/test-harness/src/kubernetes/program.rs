//! The program that contains the Kubernetes commands, and `kubectl`.
//!
//! No permanent package registry has recent builds of them, but the Go module proxy has their sources, pinned by
//! `kubernetes/go.sum`. They are linked into one program, because they share most of their code. A recent `kubectl` of
//! the search path is used as it is: it only acts as a user.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use super::go;
use crate::place::{is_program, tools_dir};
use crate::{Error, KUBECTL_VARIABLE, KUBERNETES_VARIABLE};

/// The version of Kubernetes, as in `kubernetes/go.mod`.
pub const VERSION: &str = "1.36.3";
/// The oldest accepted minor version of a `kubectl` of the search path.
const OLDEST: u32 = 32;
/// The names of the program, and of the link that invokes it as `kubectl`.
const NAMES: (&str, &str) = ("kubernetes", "kubectl");
/// The source files.
const SOURCES: [&[u8]; 3] = [
    include_bytes!("../../kubernetes/main.go"),
    include_bytes!("../../kubernetes/go.mod"),
    include_bytes!("../../kubernetes/go.sum"),
];

/// Returns the path of the program that runs `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubelet`,
/// `kube-proxy` or `kubectl`, as selected by its first argument: the one named by `RUTTER_KUBERNETES`, or else one
/// built here, which takes minutes the first time. Reports progress to `say`.
///
/// # Errors
/// The program cannot be built; the error names a remedy.
pub fn program(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    if let Some(named) = named_by_user(KUBERNETES_VARIABLE)? {
        say(&format!("kubernetes: {} (from {KUBERNETES_VARIABLE})", named.display()));
        return Ok(named);
    }
    if let Some(built) = if_present() {
        say(&format!("kubernetes {VERSION}: already in {}", built.display()));
        return Ok(built);
    }
    let tools = tools_dir();
    fs::create_dir_all(&tools).map_err(Error::at(&tools))?;
    let lock_path = tools.join(".kubernetes.lock");
    let lock = File::create(&lock_path).map_err(Error::at(&lock_path))?;
    lock.lock().map_err(Error::at(&lock_path))?;
    // Another process may have built it meanwhile.
    match if_present() {
        Some(built) => Ok(built),
        None => build(&tools, say),
    }
}

/// Returns the path of the program if it need not be built.
pub fn if_present() -> Option<PathBuf> {
    if let Ok(Some(named)) = named_by_user(KUBERNETES_VARIABLE) {
        return Some(named);
    }
    Some(tools_dir().join(folder()).join(NAMES.0)).filter(|path| is_program(path))
}

/// Returns the path of a `kubectl`: the one named by `RUTTER_KUBECTL`, one of the search path of version 1.32 or newer,
/// or that of [`program`], which is built if necessary. Reports progress to `say`.
///
/// # Errors
/// The program cannot be built; the error names a remedy.
pub fn kubectl(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    if let Some(named) = named_by_user(KUBECTL_VARIABLE)? {
        return Ok(named);
    }
    if let Some(path) = on_search_path() {
        say(&format!("kubectl: {}", path.display()));
        return Ok(path);
    }
    program(say)?;
    Ok(tools_dir().join(folder()).join(NAMES.1))
}

/// The minor version of this `kubectl`, such as 36 for 1.36.3; `None` if it cannot be determined.
pub fn kubectl_minor(program: &Path) -> Option<u32> {
    let output = Command::new(program).args(["version", "--client", "--output=json"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // `"gitVersion": "v1.36.3"`.
    text.split("\"v1.").nth(1)?.split('.').next()?.parse().ok()
}

/// Finds a recent `kubectl` in the search path.
fn on_search_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|path| is_program(path))?;
    let minor = kubectl_minor(&found)?;
    (minor >= OLDEST).then_some(found)
}

fn named_by_user(variable: &'static str) -> Result<Option<PathBuf>, Error> {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty());
    match named.map(PathBuf::from) {
        Some(path) if !is_program(&path) => Err(Error::NotAProgram { variable, path }),
        named => Ok(named),
    }
}

/// The folder of this build. Its name contains a hash of the sources.
fn folder() -> String {
    let mut hash = Sha256::new();
    for source in SOURCES {
        hash.update(source);
    }
    let hash: String = hash.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("kubernetes-{VERSION}-{hash}")
}

fn build(tools: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    let go = go::toolchain(tools, say)?;
    say(&format!("kubernetes {VERSION}: building with {}; this takes some minutes", go.display()));
    let stamp = "-X k8s.io/component-base/version.";
    let stamp = format!("-s -w {stamp}gitVersion=v{VERSION} {stamp}gitMajor=1 {stamp}gitMinor=36");
    // Built in a temporary folder and then renamed, so that an interrupted build is not mistaken for a complete one.
    let draft = tools.join(format!(".{}.partial", folder()));
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(Error::at(&draft))?;
    }
    fs::create_dir_all(&draft).map_err(Error::at(&draft))?;
    let output = Command::new(&go)
        .args(["build", "-trimpath", "-ldflags", &stamp, "-o"])
        .arg(draft.join(NAMES.0))
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(Error::at(&go))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Build { part: NAMES.0, output, variable: KUBERNETES_VARIABLE });
    }
    let link = draft.join(NAMES.1);
    symlink(NAMES.0, &link).map_err(Error::at(&link))?;
    let place = tools.join(folder());
    fs::rename(&draft, &place).map_err(Error::at(&draft))?;
    Ok(place.join(NAMES.0))
}
