//! Fields that nobody owns.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use crate::apply::Writer;
use crate::fields::{Element, Set};

/// Fields of every object that the server writes, or that say which object it is. Only the fields themselves: what is below
/// `metadata` is owned.
const SYSTEM: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// A set without fields that nobody owns.
pub(crate) fn strip(set: &Set) -> Set {
    static FIELDS: LazyLock<Set> = LazyLock::new(|| {
        let mut system = Set::default();
        for path in SYSTEM {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            system.insert(&path);
        }
        system
    });
    set.difference(&FIELDS)
}

/// Takes out what this way of writing does not write: `status` of kinds that have it as a subresource, and everything but
/// `status` when that subresource is written.
pub(crate) fn reset(set: &mut Set, by: &Writer<'_>) {
    match by.subresource {
        Some("status") => set.retain_tree("status"),
        // Others (`scale`) write what is not the status.
        _ if by.definition.status => set.remove_tree(&["status"]),
        _ => {}
    }
}

/// An object of the kind before anything was written to it.
///
/// Kubernetes' own kinds always have a `spec` and a `status`, if only empty ones, and so have some of them more, so that
/// creating an object does not add these; objects of other kinds have what is written.
pub(crate) fn blank(by: &Writer<'_>) -> Json {
    if by.definition.builtin {
        match by.definition.kind {
            "Deployment" => {
                let template = json!({"metadata": {}, "spec": {"containers": []}});
                return json!({"metadata": {}, "spec": {"strategy": {}, "template": template}, "status": {}});
            }
            "Pod" => return json!({"metadata": {}, "spec": {"containers": []}, "status": {}}),
            "Service" => return json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
            _ => {}
        }
    }
    let mut out = Map::new();
    out.insert("metadata".into(), Json::Object(Map::new()));
    for name in ["spec", "status"] {
        let declared = by
            .definition
            .schema
            .fields()
            .is_some_and(|fields| fields.get(name).is_some());
        if by.definition.builtin && declared {
            out.insert(name.into(), Json::Object(Map::new()));
        }
    }
    Json::Object(out)
}
