//! Fields without owners.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use crate::apply::Writer;
use crate::fields::{Element, Set};

/// Fields that the server writes or that identify the object. Only these fields themselves: fields below `metadata` have
/// owners.
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

/// Removes fields without owners from a set.
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

/// Removes fields that a write does not affect: `status` if it is a subresource, or everything except `status` for that
/// subresource.
pub(crate) fn reset(set: &mut Set, by: &Writer<'_>) {
    match by.subresource {
        Some("status") => set.retain_tree("status"),
        // Other subresources (`scale`) do not write the status.
        _ if by.definition.status => set.remove_tree(&["status"]),
        _ => {}
    }
}

/// The initial object of a kind.
///
/// Core kinds always have a `spec` and `status` and some further fields, which are empty initially, so that creating an
/// object does not own them.
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
        let declared = by.definition.schema.fields().is_some_and(|fields| fields.get(name).is_some());
        if by.definition.builtin && declared {
            out.insert(name.into(), Json::Object(Map::new()));
        }
    }
    Json::Object(out)
}
