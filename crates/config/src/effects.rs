//! Kinds and fields that are read but have no effect. Objects with such fields get a warning.
//!
//! [`KINDS_NOT_YET`] lists the kinds that are not implemented yet: remove an entry when it is implemented. Fields declare
//! that they have no effect: `warn "not-implemented-yet" "…"`, or `"not-served"` if only other components use them.

use Kind::*;

use crate::decode::Problem;
use crate::object::Kind;
use crate::problem::{FieldPath, Severity};
use crate::yaml::Node;

/// The code of the warnings.
pub const CODE: &str = "not-implemented-yet";

/// The code of diagnostics for fields that only other components use.
pub const ELSEWHERE_CODE: &str = "not-served";

/// Kinds without effect. Their objects are read and validated.
pub const KINDS_NOT_YET: &[Kind] = &[Telemetry, WasmPlugin, TrafficExtension];

/// The diagnostic for an object of a kind without effect.
pub(crate) fn of_object(kind: Kind, root: &Node) -> Option<Problem> {
    KINDS_NOT_YET.contains(&kind).then(|| Problem {
        path: FieldPath::root(),
        at: root.at,
        severity: Severity::Warning,
        code: CODE,
        message: lack(kind),
        hint: None,
    })
}

/// The message about an object of one of [`KINDS_NOT_YET`].
pub fn lack(kind: Kind) -> String {
    format!("the kind {} is not implemented yet and has no effect", kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, parse_documents};

    #[test]
    fn every_kind_without_effect_is_reported_once() {
        for kind in KINDS_NOT_YET {
            let (version, name) = (kind.api_version(), kind.name());
            let text = format!("{{apiVersion: {version}, kind: {name}, metadata: {{name: a}}, spec: {{}}}}");
            let diagnostics = parse_documents(text.as_bytes(), "f", &ParseOptions::default()).diagnostics;
            let found = diagnostics.iter().filter(|d| d.code == CODE && d.path.is_empty());
            assert_eq!(found.count(), 1, "{kind}: {diagnostics:?}");
        }
    }
}
