//! What validation finds, before it is known where in a file it is.

use crate::decode::Problem;
use crate::diagnostic::{Diagnostic, FieldPath, Severity};
use crate::object::AnyObject;
use crate::yaml::Node;

/// Something that validation found.
#[derive(Debug)]
pub(crate) struct Finding {
    path: FieldPath,
    severity: Severity,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Finding {
    /// Whether it is about the field at `path`, something inside it, or the message that directly holds it.
    pub(crate) fn concerns(&self, path: &FieldPath) -> bool {
        let holds = self.path.contains(path) && path.segments().len() - self.path.segments().len() <= 1;
        !path.is_empty() && (path.contains(&self.path) || holds)
    }

    /// The finding as seen from `spec`.
    pub(crate) fn below_spec(mut self) -> Finding {
        self.path = self.path.without_first();
        self
    }

    /// The finding with its place in the document.
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

    /// The finding for an object that has no file.
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

/// How many warnings are collected for an object; twice as many with errors. Nobody reads more.
const MOST: usize = 1000;

/// Collects findings.
#[derive(Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// What was found, errors first.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.findings
    }

    /// The object must be refused.
    pub(crate) fn error(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Error, code, message.into(), None);
    }

    /// The object must be refused; the hint says what to write instead.
    pub(crate) fn error_with(
        &mut self,
        path: &FieldPath,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(path, Severity::Error, code, message.into(), Some(hint.into()));
    }

    /// The object does something else than it seems to.
    pub(crate) fn warning(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Warning, code, message.into(), None);
    }

    /// The object does something else than it seems to; the hint says what to write instead.
    pub(crate) fn warning_with(
        &mut self,
        path: &FieldPath,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.add(path, Severity::Warning, code, message.into(), Some(hint.into()));
    }

    /// Something that is good to know.
    pub(crate) fn info(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Info, code, message.into(), None);
    }

    fn add(&mut self, path: &FieldPath, severity: Severity, code: &'static str, message: String, hint: Option<String>) {
        // Warnings never crowd out errors.
        let most = if severity == Severity::Error { 2 * MOST } else { MOST };
        if self.findings.len() >= most {
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
