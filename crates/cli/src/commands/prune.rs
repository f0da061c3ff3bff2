//! Objects that were applied once and that the files have no longer.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::apply::SET_LABEL;
use crate::failure;
use crate::io::Io;
use crate::server::{Catalogue, Kind, Request, Server};
use crate::targets::Target;
use crate::write::Options;

/// Which objects may be deleted.
pub(super) struct Which {
    labels: String,
    /// Only in these; none: everywhere. The empty name stands for kinds without namespaces.
    namespaces: Option<BTreeSet<String>>,
}

impl Which {
    /// Those of a set, wherever they are.
    pub(super) fn set(name: &str, selector: Option<&String>) -> Which {
        let labels = match selector {
            Some(selector) => format!("{SET_LABEL}={name},{selector}"),
            None => format!("{SET_LABEL}={name}"),
        };
        Which {
            labels,
            namespaces: None,
        }
    }

    /// Those with labels, in the namespaces that the files name.
    pub(super) fn selected(selector: &str, namespaces: BTreeSet<String>) -> Which {
        Which {
            labels: selector.to_owned(),
            namespaces: Some(namespaces),
        }
    }

    fn covers(&self, target: &Target) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|namespaces| namespaces.contains(&target.namespace))
    }
}

/// Deletes what the labels choose, what our field manager applied, and what is not to be kept.
pub(super) async fn run(
    server: &Server,
    catalogue: &Catalogue,
    which: &Which,
    keep: &BTreeSet<String>,
    options: &Options,
    io: &mut Io,
) -> Result<()> {
    // A namespace takes everything in it with it, and events and leases come and go by themselves.
    let passed_over = ["Namespace", "Event", "Lease", "Node"];
    for kind in catalogue.preferred() {
        let fit = kind.can("list") && kind.can("delete") && kind.can("patch");
        if !fit || passed_over.contains(&kind.kind.as_str()) {
            continue;
        }
        let request = Request::get(kind.collection(None)).with("labelSelector", &which.labels);
        let list = match server.list(request.in_short()).await {
            Ok(list) => list,
            Err(error) => {
                io.warn(format!("{} are not pruned: {}", kind.plural, failure::describe(&error)));
                continue;
            }
        };
        for item in list["items"].as_array().into_iter().flatten() {
            let target = target_of(kind, item);
            // The same object may be known by another version of its kind.
            let kept = catalogue
                .kinds
                .iter()
                .filter(|other| other.group == kind.group && other.plural == kind.plural)
                .any(|other| keep.contains(&other.object(&target.namespace, &target.name)));
            if kept || !which.covers(&target) || !is_applied_by(item, &options.manager) {
                continue;
            }
            let precondition = json!({"preconditions": {"uid": item["metadata"]["uid"]}});
            let request = options.on_delete(Request::delete(target.path(), &precondition));
            server.send::<Json>(request).await?;
            io.say(format!("{} pruned{}", target.label(), options.suffix()))?;
        }
    }
    Ok(())
}

fn target_of(kind: &Kind, item: &Json) -> Target {
    let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
    Target {
        kind: kind.clone(),
        namespace: text("namespace"),
        name: text("name"),
    }
}

/// Whether a manager has applied the object, so that others' objects with the same labels are safe.
fn is_applied_by(item: &Json, manager: &str) -> bool {
    let entries = item["metadata"]["managedFields"].as_array();
    entries
        .into_iter()
        .flatten()
        .any(|entry| entry["operation"] == "Apply" && entry["manager"] == manager)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_applied_by_us_is_ours() {
        let by = |operation: &str, manager: &str| json!({"metadata": {"managedFields": [{"operation": operation, "manager": manager}]}});
        assert!(is_applied_by(&by("Apply", "rutter"), "rutter"));
        assert!(!is_applied_by(&by("Update", "rutter"), "rutter"));
        assert!(!is_applied_by(&by("Apply", "kubectl"), "rutter"));
        assert!(!is_applied_by(&json!({}), "rutter"));
    }
}
