//! Probes that speak gRPC's own xDS: one in Python, over the C library, and one in Go.
//!
//! The Python library is a wheel of the Python package registry, pinned by the checksums of its builds. The Go probe is
//! built from `grpc/go`, whose `go.sum` pins the modules.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::kubernetes::go;
use crate::pip::{self, Package};
use crate::place::{is_program, tools_dir};
use crate::{Error, GRPC_PROBE_VARIABLE};

/// The version of the Python package, as in [`REQUIREMENTS`].
const VERSION: &str = "1.85.1";
/// The requirements file for pip: builds for Python 3.10 to 3.14 on x86-64 and 64-bit ARM.
const REQUIREMENTS: &str = "\
grpcio==1.85.1 \
 --hash=sha256:1f04e51dc65c82af420f6cd177ea76132a78c14dc7adc3044f549b419bc70487 \
 --hash=sha256:83aced2a1c05648cee0de34e531351118b14c58238f0a61b43559ac8851647a8 \
 --hash=sha256:a1a72d19c0ab84b4b73b6c47eeaade76d84b1973a51593ff1160a73df33d03d9 \
 --hash=sha256:de520b1555ae445cdc4f8f1cc7ccba12a19992bfafa7c292ebe7fe1fe5da6c53 \
 --hash=sha256:e0e6d5829b50a2ffcfcd2dbf08d02ac0d6919051a2e97c2ee27c99bc9916a245 \
 --hash=sha256:c5a914b3a3052d841766946ecd1c6ebdacc8bf166d89a42c83fda70ae8f53aeb \
 --hash=sha256:9885436e83eab92dd0d476642baf08a17c55ef2b1db430adcba3e89bb6938a5d \
 --hash=sha256:843aa281a48188621f50880496d35defed51298bcb66d5345d5f282fd3f87354 \
 --hash=sha256:0bde4264ca71aaf3bc56c587380c426b1c959d1db0ab0a3f632bc66515f9726f \
 --hash=sha256:421925365f9a665830eded01b8053033abbc2fbabc9bb4e9c59c3b5b12acbab9
typing-extensions==4.16.0 \
 --hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
";
/// The name of the Go probe.
const PROBE: &str = "grpc-probe";
/// The source files of the Go probe.
const SOURCES: [&[u8]; 3] =
    [include_bytes!("../grpc/go/main.go"), include_bytes!("../grpc/go/go.mod"), include_bytes!("../grpc/go/go.sum")];

/// A probe: a program, its first arguments and its environment. `grpc/probe.py` describes the protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The program.
    pub program: PathBuf,
    /// The arguments before those of the caller.
    pub arguments: Vec<PathBuf>,
    /// The variables with which Python finds the library.
    pub environment: Vec<(&'static str, PathBuf)>,
}

/// Returns the Python probe. Downloads its library if necessary and reports progress to `say`.
///
/// # Errors
/// The library cannot be installed; the error names a remedy.
pub fn python(say: &mut dyn FnMut(&str)) -> Result<Probe, Error> {
    let library = tools_dir().join(format!("grpcio-{VERSION}"));
    if !library.exists() {
        let _lock = locked("grpcio")?;
        // Another process may have installed it meanwhile.
        if !library.exists() {
            fetch(&library, say)?;
        }
    }
    Ok(Probe {
        program: "python3".into(),
        arguments: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("grpc/probe.py")],
        environment: vec![("PYTHONPATH", library)],
    })
}

/// Returns the Go probe: the program named by `RUTTER_GRPC_PROBE`, or else one built here. Reports progress to `say`.
///
/// # Errors
/// The probe cannot be built; the error names a remedy.
pub fn go(say: &mut dyn FnMut(&str)) -> Result<Probe, Error> {
    let named = std::env::var_os(GRPC_PROBE_VARIABLE).filter(|path| !path.is_empty());
    let program = match named.map(PathBuf::from) {
        Some(path) if !is_program(&path) => {
            let variable = GRPC_PROBE_VARIABLE;
            return Err(Error::NotAProgram { variable, path });
        }
        Some(path) => path,
        None => built(say)?,
    };
    Ok(Probe { program, arguments: Vec::new(), environment: Vec::new() })
}

fn fetch(library: &Path, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let draft = library.with_extension("partial");
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(Error::at(&draft))?;
    }
    let package = Package { part: "grpc", name: "grpcio", version: VERSION, requirements: REQUIREMENTS };
    pip::install(&package, &draft, say)?;
    fs::rename(&draft, library).map_err(Error::at(&draft))
}

/// Builds the Go probe in a folder whose name contains a hash of its sources.
fn built(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    let mut hash = Sha256::new();
    SOURCES.iter().for_each(|source| hash.update(source));
    let hash: String = hash.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let program = tools_dir().join(format!("{PROBE}-{hash}")).join(PROBE);
    if is_program(&program) {
        return Ok(program);
    }
    let _lock = locked(PROBE)?;
    if is_program(&program) {
        return Ok(program);
    }
    let tool = go::toolchain(&tools_dir(), say)?;
    say(&format!("{PROBE}: building with {}", tool.display()));
    // Built in a temporary folder and then renamed, so that an interrupted build is not mistaken for a complete one.
    let draft = tools_dir().join(format!(".{PROBE}-{hash}.partial"));
    let output = Command::new(&tool)
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(draft.join(PROBE))
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("grpc/go"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(Error::at(&tool))?;
    if !output.status.success() {
        return Err(Error::Build {
            part: PROBE,
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
            variable: GRPC_PROBE_VARIABLE,
        });
    }
    let place = tools_dir().join(format!("{PROBE}-{hash}"));
    fs::rename(&draft, &place).map_err(Error::at(&draft))?;
    Ok(program)
}

/// Takes a file lock, which keeps other processes from the same work until it is dropped.
fn locked(what: &str) -> Result<File, Error> {
    let tools = tools_dir();
    fs::create_dir_all(&tools).map_err(Error::at(&tools))?;
    let path = tools.join(format!(".{what}.lock"));
    let lock = File::create(&path).map_err(Error::at(&path))?;
    lock.lock().map_err(Error::at(&path))?;
    Ok(lock)
}
