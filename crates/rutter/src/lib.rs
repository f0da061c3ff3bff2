//! What the program `rutter` is made of and others use, too: the tests, which put a store behind a world of their own.

pub mod objects;

use config::{Diagnostic, Severity};

/// One line of the log for a diagnostic.
pub fn log_diagnostic(diagnostic: &Diagnostic) {
    match diagnostic.severity {
        Severity::Error => tracing::error!(code = diagnostic.code, "{diagnostic}"),
        Severity::Warning => tracing::warn!(code = diagnostic.code, "{diagnostic}"),
        Severity::Info => tracing::info!(code = diagnostic.code, "{diagnostic}"),
    }
}
