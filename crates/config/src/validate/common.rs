//! Rules that several kinds share.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::decode::Report;
use crate::form::host;
use crate::problem::FieldPath;

/// Values that `exportTo` can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExportScope {
    /// Any namespaces.
    Routes,
    /// Any namespaces, or none (`~`).
    Services,
    /// The object's own namespace only.
    Selected,
}

/// Checks `exportTo`.
pub(super) fn export_to(r: &mut Report, path: &FieldPath, namespace: &str, export_to: &[Arc<str>], scope: ExportScope) {
    let mut seen = BTreeSet::new();
    for (index, entry) in export_to.iter().enumerate() {
        let at = path.index(index);
        let target = if &**entry == "." { namespace } else { entry };
        match target {
            "~" if scope == ExportScope::Services => {}
            "~" => r.error(&at, "bad-value", "~ is supported for services only"),
            // Defaults in the mesh configuration have no namespace of their own.
            "*" | "." => {}
            name if host::is_label(name) => {}
            name => {
                let message = format!("{name:?} is not '.', '*' or a valid namespace name");
                r.error(&at, "bad-value", message);
            }
        }
        if !seen.insert(target) {
            r.error(&at, "duplicate", format!("duplicate entry {entry:?}"));
        }
    }
    let lone = ["*", "~"].into_iter().find(|lone| seen.contains(lone));
    if let Some(lone) = lone.filter(|_| export_to.len() > 1) {
        let message = format!("{lone:?} cannot be combined with other entries");
        r.error(path, "exclusive-fields", message);
    }
    if scope == ExportScope::Selected && seen.iter().any(|target| *target != namespace) {
        let message = "exportTo must contain only the rule's own namespace if workloadSelector is set";
        r.error(path, "exclusive-fields", message);
    }
}
