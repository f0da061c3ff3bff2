//! Runs the programs that make the rules of [`interception`], and checks that they work.
//!
//! [`host`] collects the facts that the rules depend on, [`run`] makes or removes the rules, and [`validate`] checks that a
//! connection is redirected. Programs are started in the network namespace that the settings name, with `nsenter`.

mod host;
mod process;
mod run;
mod validate;
mod variant;

use interception::iptables::Conflict;
use interception::{ConfigError, Family};

pub use host::host;
pub use run::run;
pub use validate::{VALIDATION_EXIT_CODE, ValidationError, validate};

/// The rules could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// A program could not be started.
    #[error("cannot start {program}: {reason}; install it, or add its directory to PATH")]
    Start {
        /// The program.
        program: String,
        /// The reason.
        reason: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// The program with its arguments.
        program: String,
        /// Its exit status.
        status: String,
        /// The beginning of its error output.
        message: String,
    },
    /// No variant of iptables works.
    #[error("no variant of iptables works for {family:?}: {reasons}")]
    NoVariant {
        /// The family.
        family: Family,
        /// The reason for each variant.
        reasons: String,
    },
    /// A setting cannot be used on this host.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Other rules are there.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The output of the dry run could not be written.
    #[error("cannot write the commands: {0}")]
    Write(#[from] std::io::Error),
}
