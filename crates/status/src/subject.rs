//! The status facts of an object: whether it was accepted, and its problems.

use config::{Diagnostic, Kind, Severity, effects};

/// The maximum number of diagnostics listed in one message.
const NAMED: usize = 5;

/// Whether Rutter writes the status of objects of this kind: those of Istio's API groups.
pub fn has_status(kind: Kind) -> bool {
    !kind.is_setting() && kind.group().ends_with(".istio.io")
}

/// The result of validation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) accepted: bool,
    pub(crate) message: String,
    /// The parts that are not implemented; empty if there are none.
    pub(crate) idle: String,
}

impl Verdict {
    pub(crate) fn of(diagnostics: &[Diagnostic]) -> Verdict {
        let of = |severity| diagnostics.iter().filter(move |d| d.severity == severity);
        let errors: Vec<&Diagnostic> = of(Severity::Error).collect();
        if !errors.is_empty() {
            return Verdict { accepted: false, message: summary(&errors), idle: String::new() };
        }
        let warnings: Vec<&Diagnostic> = of(Severity::Warning).collect();
        let message = match warnings.len() {
            0 => "the object is valid".to_owned(),
            _ => format!("the object is valid, but: {}", summary(&warnings)),
        };
        let idle: Vec<&Diagnostic> = diagnostics.iter().filter(|d| d.code == effects::CODE).collect();
        Verdict { accepted: true, message, idle: summary(&idle) }
    }
}

/// Problems of an object that depend on other objects; a message is empty if there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Problems {
    /// Conflicts with objects that take precedence.
    pub(crate) conflicts: String,
    /// References that cannot be resolved.
    pub(crate) missing: String,
}

impl Problems {
    pub(crate) fn of(conflicts: &[Diagnostic]) -> Problems {
        let those = |wanted: bool| -> Vec<&Diagnostic> {
            conflicts.iter().filter(|conflict| (conflict.code == Diagnostic::MISSING_REFERENCE) == wanted).collect()
        };
        Problems { conflicts: summary(&those(false)), missing: summary(&those(true)) }
    }
}

/// `spec.hosts: must not be empty (hint: …); spec.http[0]: …; and 3 more`.
fn summary(problems: &[&Diagnostic]) -> String {
    let one = |problem: &&Diagnostic| {
        let place = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
        let hint = problem.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
        format!("{place}{}{}", problem.message, hint.unwrap_or_default())
    };
    let mut parts: Vec<String> = problems.iter().take(NAMED).map(one).collect();
    if problems.len() > NAMED {
        parts.push(format!("and {} more", problems.len() - NAMED));
    }
    parts.join("; ")
}
