//! `apply --prune`: deletes applied objects that the files no longer contain.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::apply::SET_LABEL;
use crate::failure;
use crate::io::Io;
use crate::server::{Catalog, Request, Server};
use crate::targets::Target;
use crate::write::Options;

/// Selects the objects that may be deleted.
pub(super) struct Selection {
    labels: String,
    /// Restricts the namespaces, if any. The empty name selects cluster-scoped kinds.
    namespaces: Option<BTreeSet<String>>,
}

impl Selection {
    /// The objects of an apply set in all namespaces.
    pub(super) fn set(name: &str, selector: Option<&String>) -> Selection {
        let labels = match selector {
            Some(selector) => format!("{SET_LABEL}={name},{selector}"),
            None => format!("{SET_LABEL}={name}"),
        };
        Selection { labels, namespaces: None }
    }

    /// The objects with these labels in these namespaces.
    pub(super) fn selected(selector: &str, namespaces: BTreeSet<String>) -> Selection {
        Selection { labels: selector.to_owned(), namespaces: Some(namespaces) }
    }

    fn covers(&self, target: &Target) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(&target.namespace))
    }
}

/// Deletes selected objects that the field manager has applied, except those in `keep` (paths).
pub(super) async fn run(
    server: &Server,
    catalog: &Catalog,
    selection: &Selection,
    keep: &BTreeSet<String>,
    options: &Options,
    io: &mut Io,
) -> Result<()> {
    // Deleting a namespace would delete everything in it; the other kinds are not configuration.
    let skipped = ["Namespace", "Event", "Lease", "Node"];
    for kind in catalog.preferred() {
        let supported = kind.can("list") && kind.can("delete") && kind.can("patch");
        if !supported || skipped.contains(&kind.kind.as_str()) {
            continue;
        }
        let request = Request::get(kind.collection(None)).with("labelSelector", &selection.labels);
        let list = match server.list(request.metadata_only()).await {
            Ok(list) => list,
            Err(error) => {
                io.warn(format!("cannot prune {}: {}", kind.plural, failure::describe(&error)));
                continue;
            }
        };
        for item in list["items"].as_array().into_iter().flatten() {
            let target = Target::of_item(kind, item);
            // The files may use another version of the kind.
            let kept = catalog
                .kinds
                .iter()
                .filter(|other| other.group == kind.group && other.plural == kind.plural)
                .any(|other| keep.contains(&other.object(&target.namespace, &target.name)));
            if kept || !selection.covers(&target) || !is_applied_by(item, &options.manager) {
                continue;
            }
            let precondition = json!({"preconditions": {"uid": item["metadata"]["uid"]}});
            let request = options.on_delete(Request::delete(target.path(), &precondition));
            server.send::<Json>(request).await?;
            io.print(format!("{} pruned{}", target.label(), options.suffix()))?;
        }
    }
    Ok(())
}

/// Whether a manager has applied the object. Protects objects of others with the same labels.
fn is_applied_by(item: &Json, manager: &str) -> bool {
    let entries = item["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().any(|entry| entry["operation"] == "Apply" && entry["manager"] == manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_the_field_manager_are_pruned() {
        let by = |operation: &str, manager: &str| json!({"metadata": {"managedFields": [{"operation": operation, "manager": manager}]}});
        assert!(is_applied_by(&by("Apply", "rutter"), "rutter"));
        assert!(!is_applied_by(&by("Update", "rutter"), "rutter"));
        assert!(!is_applied_by(&by("Apply", "kubectl"), "rutter"));
        assert!(!is_applied_by(&json!({}), "rutter"));
    }
}
