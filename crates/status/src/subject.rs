//! The status facts of an object: whether it was accepted, and its problems.

use config::{Diagnostic, Kind, Severity, effects};

use crate::kube;
use crate::status::Status;

/// The maximum number of diagnostics listed in one message.
const NAMED: usize = 5;

/// Whether Rutter writes the status of objects of this kind: those of Istio's API groups, and some of the Gateway API.
pub fn has_status(kind: Kind) -> bool {
    !kind.is_setting() && (kind.group().ends_with(".istio.io") || kube::is_kube(kind))
}

/// The types of the conditions in `status.conditions` that Rutter writes for objects of this kind. Others are preserved.
pub fn own_conditions(kind: Kind) -> &'static [&'static str] {
    kube::own_conditions(kind).unwrap_or(&Status::CONDITIONS)
}

/// The result of validation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) accepted: bool,
    pub(crate) message: String,
    /// The parts that have errors, and are left out; empty if there are none.
    pub(crate) left_out: String,
    /// The parts that are not implemented; empty if there are none.
    pub(crate) idle: String,
    /// The other warnings, those about parts that are left out among them; empty if there are none.
    pub(crate) warnings: String,
    /// It protects workloads, and does so only where a proxy enforces it.
    pub(crate) protects: bool,
}

impl Verdict {
    pub(crate) fn of(kind: Kind, diagnostics: &[Diagnostic]) -> Verdict {
        let protects = matches!(kind, Kind::AuthorizationPolicy | Kind::RequestAuthentication);
        let of = |severity| diagnostics.iter().filter(move |d| d.severity == severity);
        let errors: Vec<&Diagnostic> = of(Severity::Error).collect();
        if !errors.is_empty() {
            let [left_out, idle, warnings] = Default::default();
            return Verdict { accepted: false, message: summary(&errors), left_out, idle, warnings, protects };
        }
        let warnings: Vec<&Diagnostic> = of(Severity::Warning).collect();
        let message = match warnings.len() {
            0 => "the object is valid".to_owned(),
            _ => format!("the object is valid, but: {}", summary(&warnings)),
        };
        let left_out: Vec<&Diagnostic> = diagnostics.iter().filter(|d| d.leaves_out()).collect();
        let (idle, others): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
            warnings.iter().copied().partition(|warning| warning.code == effects::CODE);
        let (left_out, idle, warnings) = (summary(&left_out), summary(&idle), summary(&others));
        Verdict { accepted: true, message, left_out, idle, warnings, protects }
    }
}

/// Problems of an object that depend on other objects; a message is empty if there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Problems {
    /// Conflicts with objects that take precedence.
    pub(crate) conflicts: String,
    /// References that cannot be resolved.
    pub(crate) missing: String,
    /// The reasons why nothing of the object has an effect.
    pub(crate) without_effect: String,
    /// Remarks about its effect, which are no problems.
    pub(crate) remarks: String,
}

impl Problems {
    pub(crate) fn of(conflicts: &[Diagnostic]) -> Problems {
        const OWN_CONDITION: [&str; 2] = [Diagnostic::MISSING_REFERENCE, Diagnostic::WITHOUT_EFFECT];
        let (remarks, problems): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
            conflicts.iter().partition(|conflict| conflict.severity == Severity::Info);
        let with_code = |code: &str| -> Vec<&Diagnostic> {
            problems.iter().filter(|problem| problem.code == code).copied().collect()
        };
        let others: Vec<&Diagnostic> =
            problems.iter().filter(|problem| !OWN_CONDITION.contains(&problem.code)).copied().collect();
        Problems {
            conflicts: summary(&others),
            missing: summary(&with_code(Diagnostic::MISSING_REFERENCE)),
            without_effect: summary(&with_code(Diagnostic::WITHOUT_EFFECT)),
            remarks: summary(&remarks),
        }
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
