//! What a policy is attached to: workloads by labels, or gateways and services by name.

use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::{PolicySelector, PolicyTargetReference};
use crate::validate::{Report, common};

/// The groups and kinds that a policy can be attached to.
const TARGETS: [(&str, &str); 4] = [
    ("", "Service"),
    ("networking.istio.io", "ServiceEntry"),
    ("gateway.networking.k8s.io", "Gateway"),
    ("gateway.networking.k8s.io", "GatewayClass"),
];

/// The three ways of a policy's `spec` to say what it is attached to, of which it may use one.
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
            "make a policy of its own for each",
        );
    }
    self::selector(r, &path.field("selector"), selector);
    if let Some(target) = target_ref {
        target_reference(r, &path.field("targetRef"), target);
    }
    targets(r, &path.field("targetRefs"), target_refs);
}

/// The objects that something is attached to.
pub(super) fn targets(r: &mut Report, path: &FieldPath, targets: &[PolicyTargetReference]) {
    for (index, target) in targets.iter().enumerate() {
        target_reference(r, &path.index(index), target);
    }
}

/// The labels of workloads. Without labels everything is selected, which is mostly a mistake.
pub(super) fn selector(r: &mut Report, path: &FieldPath, selector: Option<&PolicySelector>) {
    let Some(selector) = selector else {
        return;
    };
    if selector.match_labels.is_empty() {
        r.warning_with(
            path,
            "no-effect",
            "the selector has no labels and selects all workloads of the namespace",
            "leave the selector out if that is meant",
        );
    }
    common::selector_labels(r, &path.field("matchLabels"), &selector.match_labels);
}

fn target_reference(r: &mut Report, path: &FieldPath, target: &PolicyTargetReference) {
    if !target.namespace.is_empty() {
        r.error_with(
            &path.field("namespace"),
            "unsupported",
            "a policy can be attached to objects of its own namespace only",
            "make the policy in that namespace",
        );
    }
    // What is missing is reported as missing.
    if target.kind.is_empty() {
        return;
    }
    let group = if &*target.group == "core" { "" } else { &target.group };
    if !TARGETS.contains(&(group, &target.kind)) {
        let known: Vec<String> = TARGETS.iter().map(|(group, kind)| named(group, kind)).collect();
        let message = format!(
            "a policy cannot be attached to a {}, but to {}",
            named(group, &target.kind),
            known.join(", ")
        );
        let of_kind = TARGETS.iter().find(|(_, kind)| *kind == &*target.kind);
        match of_kind {
            Some((group, _)) => r.error_with(path, "bad-value", message, format!("the group is {group:?}")),
            None => r.error(path, "bad-value", message),
        }
    }
}

fn named(group: &str, kind: &str) -> String {
    match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    }
}

/// Entries of a list that must not be empty texts.
pub(super) fn not_empty(r: &mut Report, path: &FieldPath, values: &[Arc<str>]) {
    for (index, _) in values.iter().enumerate().filter(|(_, value)| value.is_empty()) {
        r.error(&path.index(index), "bad-value", "an entry cannot be empty");
    }
}
