//! Diagnostics: problems in the configuration and where they are.

use std::fmt;
use std::sync::Arc;

use crate::object::ObjectKey;
use crate::parse::LEFT_OUT;
use crate::problem::{FieldPath, Severity};

/// A problem at a place in the configuration.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Diagnostic {
    /// File that contains the object; `None` for other sources.
    pub file: Option<Arc<str>>,
    /// Line in the file, counted from 1; 0 if unknown.
    pub line: u32,
    /// Column in the line, in characters counted from 1; 0 if unknown.
    pub column: u32,
    /// Object that the diagnostic is about, if it could be identified.
    pub object: Option<ObjectKey>,
    /// Field, such as `spec.http[0].route[1].weight`; empty for the object or document as a whole.
    pub path: FieldPath,
    /// Severity.
    pub severity: Severity,
    /// Short, stable identifier of the kind of problem, such as `unknown-field`.
    pub code: &'static str,
    /// Description of the problem, without a trailing period.
    pub message: String,
    /// Suggested remedy.
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Code of diagnostics about an object that another object overrides.
    pub const CONFLICT: &'static str = "conflict";
    /// Code of diagnostics about a reference to an object that does not exist.
    pub const MISSING_REFERENCE: &'static str = "missing-reference";
    /// Code of diagnostics about an object of which nothing has an effect.
    pub const WITHOUT_EFFECT: &'static str = "without-effect";

    /// Creates a warning about an applied object. There is no position in a file.
    pub fn warning(object: ObjectKey, code: &'static str, path: FieldPath, message: String, hint: &str) -> Diagnostic {
        Diagnostic {
            file: None,
            line: 0,
            column: 0,
            object: Some(object),
            path,
            severity: Severity::Warning,
            code,
            message,
            hint: Some(hint.to_owned()),
        }
    }

    /// Whether the object is rejected.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Whether a part of the object is left out, because it has an error.
    pub fn leaves_out(&self) -> bool {
        self.message.ends_with(LEFT_OUT)
    }
}

impl fmt::Display for Diagnostic {
    /// `mesh.yaml:7:9: error: VirtualService default/a: spec.http[0].timeout: … [bad-value] (hint: …)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if self.file.is_some() || self.line > 0 {
            f.write_str(" ")?;
        }
        write!(f, "{}: ", self.severity)?;
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} [{}]", self.message, self.code)?;
        match &self.hint {
            Some(hint) => write!(f, " (hint: {hint})"),
            None => Ok(()),
        }
    }
}
