//! Findings of semantic checks, before they are located in a file.

use crate::decode::Problem;
use crate::form::Form;
use crate::problem::{FieldPath, Severity};
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

    /// Adds the position in the document.
    pub(crate) fn into_problem(self, root: &Node) -> Problem {
        let Finding { path, severity, code, message, hint } = self;
        Problem { at: root.locate(&path), path, severity, code, message, hint }
    }
}

/// Maximum number of warnings per object; the maximum with errors is twice as high.
const MAX_WARNINGS: usize = 1000;

/// The relations between the fields of a message, checked when it is decoded.
pub(crate) trait Relations {
    /// Reports violations. `path` is the path of the message.
    fn check(&self, r: &mut Report, path: &FieldPath);
}

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

    /// Reports a text that does not have a format.
    pub(crate) fn form(&mut self, path: &FieldPath, form: Form, text: &str) {
        if let Err(fault) = form(text) {
            self.add(path, fault.severity, fault.code, fault.message, fault.hint);
        }
    }

    /// Reports that all but the first of these fields that are set must not be set.
    pub(crate) fn one_of(&mut self, path: &FieldPath, fields: &[(&'static str, bool)]) {
        let mut set = fields.iter().filter(|(_, set)| *set).map(|(name, _)| *name);
        if let (Some(first), Some(second)) = (set.next(), set.next()) {
            let message = format!("only one of {first} and {second} may be set");
            self.error(&path.field(second), "exclusive-fields", message);
        }
    }

    /// Reports each of these fields that is set.
    pub(crate) fn none_of(
        &mut self,
        path: &FieldPath,
        fields: &[(&'static str, bool)],
        code: &'static str,
        message: impl Fn(&str) -> String,
    ) {
        for (field, _) in fields.iter().filter(|(_, set)| *set) {
            self.error(&path.field(*field), code, message(field));
        }
    }

    /// Reports entries of a list that repeat an earlier one.
    pub(crate) fn unique<T: Ord>(&mut self, entries: impl Iterator<Item = (FieldPath, T, String)>) {
        let mut seen = std::collections::BTreeSet::new();
        for (path, key, name) in entries {
            if !seen.insert(key) {
                self.error(&path, "duplicate", format!("duplicate {name}"));
            }
        }
    }

    /// Reports information.
    pub(crate) fn info(&mut self, path: &FieldPath, code: &'static str, message: impl Into<String>) {
        self.add(path, Severity::Info, code, message.into(), None);
    }

    fn add(&mut self, path: &FieldPath, severity: Severity, code: &'static str, message: String, hint: Option<String>) {
        // Warnings must not displace errors.
        let max = if severity == Severity::Error { 2 * MAX_WARNINGS } else { MAX_WARNINGS };
        if self.findings.len() >= max {
            return;
        }
        self.findings.push(Finding { path: path.clone(), severity, code, message, hint });
    }
}
