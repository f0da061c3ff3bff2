//! Targets of a policy: workloads selected by label, or gateways and services by name.

use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::{PolicySelector, PolicyTargetReference};
use crate::validate::{Report, common};

/// Groups and kinds that a policy can be attached to.
const TARGETS: [(&str, &str); 4] = [
    ("", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

/// Checks the target fields of a policy's `spec`, which are mutually exclusive.
pub(super) fn check(
    r: &mut Report,
    selector: Option<&PolicySelector>,
    target_ref: Option<&PolicyTargetReference>,
    target_refs: &[PolicyTargetReference],
) {
    let path = FieldPath::spec();
    let used = [
        ("selector", selector.is_some()),
        ("targetRef", target_ref.is_some()),
        ("targetRefs", !target_refs.is_empty()),
    ];
    let mut used = used.into_iter().filter(|(_, used)| *used);
    if let (Some((first, _)), Some((second, _))) = (used.next(), used.next()) {
        r.error_with(
            &path.field(second),
            "exclusive-fields",
            format!("only one of {first} and {second} may be set"),
            "create a separate policy for each",
        );
    }
    self::selector(r, &path.field("selector"), selector);
    if let Some(target) = target_ref {
        target_reference(r, &path.field("targetRef"), target);
    }
    targets(r, &path.field("targetRefs"), target_refs);
}

/// Checks target references.
pub(super) fn targets(r: &mut Report, path: &FieldPath, targets: &[PolicyTargetReference]) {
    for (index, target) in targets.iter().enumerate() {
        target_reference(r, &path.index(index), target);
    }
}

/// Checks a workload selector. A selector without labels selects everything, which is usually a mistake.
pub(super) fn selector(r: &mut Report, path: &FieldPath, selector: Option<&PolicySelector>) {
    let Some(selector) = selector else {
        return;
    };
    if selector.match_labels.is_empty() {
        r.warning_with(
            path,
            "no-effect",
            "the selector has no labels and selects all workloads in the namespace",
            "omit the selector if this is intended",
        );
    }
    common::selector_labels(r, &path.field("matchLabels"), &selector.match_labels);
}

fn target_reference(r: &mut Report, path: &FieldPath, target: &PolicyTargetReference) {
    if !target.namespace.is_empty() {
        r.error_with(
            &path.field("namespace"),
            "unsupported",
            "a policy can only be attached to objects in its own namespace",
            "create the policy in that namespace",
        );
    }
    // A missing kind is reported by the schema.
    if target.kind.is_empty() {
        return;
    }
    let group = if &*target.group == "core" { "" } else { &target.group };
    if !TARGETS.contains(&(group, &target.kind)) {
        let known: Vec<String> = TARGETS
            .iter()
            .map(|(group, kind)| qualified_kind(group, kind))
            .collect();
        let message = format!(
            "a policy cannot be attached to a {}; supported kinds are {}",
            qualified_kind(group, &target.kind),
            known.join(", ")
        );
        let of_kind = TARGETS.iter().find(|(_, kind)| *kind == &*target.kind);
        match of_kind {
            Some((group, _)) => r.error_with(path, "bad-value", message, format!("use the group {group:?}")),
            None => r.error(path, "bad-value", message),
        }
    }
}

fn qualified_kind(group: &str, kind: &str) -> String {
    match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    }
}

/// Checks that no entry of a list is empty.
pub(super) fn not_empty(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, _) in values.iter().enumerate().filter(|(_, value)| value.is_empty()) {
        r.error(&path.index(index), "bad-value", "an entry must not be empty");
    }
}
