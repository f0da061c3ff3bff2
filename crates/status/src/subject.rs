//! An object as its source tells of it.

use std::sync::Arc;

use config::{Diagnostic, Kind, ObjectKey, Severity};
use serde_json::Value;

/// Problems that are named one by one; of more, only their number is told.
const NAMED: usize = 5;

/// An object as its source tells of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Subject {
    /// Which.
    pub key: ObjectKey,
    /// `metadata.uid`; empty where the source has none.
    pub uid: Arc<str>,
    /// `metadata.generation`; 0 where the source has none. Its changes are counted then.
    pub generation: i64,
    /// What is wrong with it. With an error in it, the object is not accepted, and what it was before stays in effect.
    pub diagnostics: Vec<Diagnostic>,
    /// `status` as it is stored.
    pub status: Option<Value>,
}

/// Whether objects of this kind get a status from here: those of Istio's API groups.
pub fn has_status(kind: Kind) -> bool {
    !kind.is_setting() && kind.group().ends_with(".istio.io")
}

/// What validation said of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) accepted: bool,
    pub(crate) message: String,
}

impl Verdict {
    pub(crate) fn of(diagnostics: &[Diagnostic]) -> Verdict {
        let of = |severity| diagnostics.iter().filter(move |d| d.severity == severity);
        let errors: Vec<&Diagnostic> = of(Severity::Error).collect();
        if !errors.is_empty() {
            return Verdict {
                accepted: false,
                message: told(&errors),
            };
        }
        let warnings: Vec<&Diagnostic> = of(Severity::Warning).collect();
        let message = match warnings.len() {
            0 => "the object is valid".to_owned(),
            _ => format!("the object is valid, but: {}", told(&warnings)),
        };
        Verdict {
            accepted: true,
            message,
        }
    }
}

/// What is to be said of an object because of others; a text is empty where there is nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// Others go before it.
    pub(crate) conflicts: String,
    /// What it names is not there.
    pub(crate) missing: String,
}

impl Standing {
    pub(crate) fn of(conflicts: &[Diagnostic]) -> Standing {
        let those = |wanted: bool| -> Vec<&Diagnostic> {
            conflicts
                .iter()
                .filter(|conflict| (conflict.code == Diagnostic::MISSING_REFERENCE) == wanted)
                .collect()
        };
        Standing {
            conflicts: told(&those(false)),
            missing: told(&those(true)),
        }
    }
}

/// `spec.hosts: must not be empty (hint: …); spec.http[0]: …; and 3 more`.
fn told(problems: &[&Diagnostic]) -> String {
    let one = |problem: &&Diagnostic| {
        let place = if problem.path.is_empty() {
            String::new()
        } else {
            format!("{}: ", problem.path)
        };
        let hint = problem.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
        format!("{place}{}{}", problem.message, hint.unwrap_or_default())
    };
    let mut parts: Vec<String> = problems.iter().take(NAMED).map(one).collect();
    if problems.len() > NAMED {
        parts.push(format!("and {} more", problems.len() - NAMED));
    }
    parts.join("; ")
}
