//! Findings of validation, before they are located in a file.

use crate::decode::Problem;
use crate::diagnostic::{Diagnostic, FieldPath, Severity};
use crate::object::AnyObject;
use crate::yaml::Node;

/// A problem found by validation.
#[derive(Debug)]
pub(crate) struct Finding {
    path: FieldPath,
    severity: Severity,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Finding {
    /// Whether the finding is about the field at `path`, a field inside it, or the message that directly contains it.
    pub(crate) fn concerns(&self, path: &FieldPath) -> bool {
        let holds = self.path.contains(path) && path.segments().len() - self.path.segments().len() <= 1;
        !path.is_empty() && (path.contains(&self.path) || holds)
    }

    /// Makes the path relative to `spec`.
    pub(crate) fn below_spec(mut self) -> Finding {
        self.path = self.path.without_first();
        self
    }

    /// Adds the position in the document.
    pub(crate) fn into_problem(self, root: &Node) -> Problem {
        let Finding {
            path,
            severity,
            code,
            message,
            hint,
        } = self;
        Problem {
            at: root.locate(&path),
            path,
            severity,
            code,
            message,
            hint,
        }
    }

    /// Converts a finding about an object that has no file.
    pub(crate) fn into_diagnostic(self, object: &AnyObject) -> Diagnostic {
        let Finding {
            path,
            severity,
            code,
            message,
            hint,
        } = self;
        let object = Some(object.key());
        Diagnostic {
            file: None,
            line: 0,
            column: 0,
            object,
            path,
            severity,
            code,
            message,
            hint,
        }
    }
}

/// Maximum number of warnings per object; the maximum with errors is twice as high.
const MAX_WARNINGS: usize = 1000;

/// Collects findings.
#[derive(Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Returns the findings, errors first.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.findings
    }

    /// Reports an error: the object must be rejected.
    pub(crate) fn error(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Error, code, message.into(), None);
    }

    /// Reports an error with a hint that says what to write instead.
    pub(crate) fn error_with(
        &mut self,
        path: &FieldPath,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(path, Severity::Error, code, message.into(), Some(hint.into()));
    }

    /// Reports a warning: the object does not behave as it appears to.
    pub(crate) fn warning(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Warning, code, message.into(), None);
    }

    /// Reports a warning with a hint that says what to write instead.
    pub(crate) fn warning_with(
        &mut self,
        path: &FieldPath,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(path, Severity::Warning, code, message.into(), Some(hint.into()));
    }

    /// Reports information.
    pub(crate) fn info(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Info, code, message.into(), None);
    }

    fn add(&mut self, path: &FieldPath, severity: Severity, code: &'static str, message: String, hint: Option<String>) {
        // Warnings must not displace errors.
        let max = if severity == Severity::Error {
            2 * MAX_WARNINGS
        } else {
            MAX_WARNINGS
        };
        if self.findings.len() >= max {
            return;
        }
        self.findings.push(Finding {
            path: path.clone(),
            severity,
            code,
            message,
            hint,
        });
    }
}
