//! Validation of metadata.

use std::collections::BTreeSet;

use config::rules::Path;
use config::schema::Definition;
use serde_json::{Map, Value as Json};

use crate::cause::{Causes, Reason};
use crate::names;

/// Maximum total size of annotations, in bytes.
const MAX_ANNOTATIONS: u64 = 256 * 1024;

/// Finalizers of Kubernetes without a domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "foregroundDeletion", "orphan"];

/// Validates the metadata of an object; `old` is the stored object, if any. The schema checks types.
pub(crate) fn check(definition: &Definition, object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let empty = Map::new();
    let meta = object.get("metadata").and_then(Json::as_object).unwrap_or(&empty);
    let path = Path::Root.field("metadata");
    name(definition, meta, &path, causes);
    labels(meta.get("labels"), &path.field("labels"), causes);
    annotations(meta.get("annotations"), &path.field("annotations"), causes);
    finalizers(meta, old, &path.field("finalizers"), causes);
    owners(meta.get("ownerReferences"), &path.field("ownerReferences"), causes);
    managers(meta.get("managedFields"), &path.field("managedFields"), causes);
}

fn name(definition: &Definition, meta: &Map<String, Json>, path: &Path<'_>, causes: &mut Causes) {
    let rule = match (definition.group, definition.kind) {
        ("", "Namespace") => names::dns_label,
        ("", "Service") => names::dns_1035_label,
        _ => names::dns_subdomain,
    };
    match meta.get("name").and_then(Json::as_str).unwrap_or_default() {
        "" => causes.required(&path.field("name"), "name or generateName is required"),
        name => {
            if let Some(why) = rule(name) {
                causes.invalid(&path.field("name"), &Json::from(name), &why);
            }
        }
    }
    if let Some(prefix) = meta.get("generateName").and_then(Json::as_str).filter(|prefix| !prefix.is_empty()) {
        // The generated suffix consists of letters and digits.
        if let Some(why) = rule(&format!("{}a", &prefix[..prefix.floor_char_boundary(62)])) {
            causes.invalid(&path.field("generateName"), &Json::from(prefix), &why);
        }
    }
}

fn labels(labels: Option<&Json>, path: &Path<'_>, causes: &mut Causes) {
    for (key, value) in labels.and_then(Json::as_object).into_iter().flatten() {
        if let Some(why) = names::qualified_name(key) {
            causes.invalid(path, &Json::from(key.as_str()), &why);
        }
        if let Some(why) = value.as_str().and_then(names::label_value) {
            causes.invalid(path, value, &why);
        }
    }
}

fn annotations(annotations: Option<&Json>, path: &Path<'_>, causes: &mut Causes) {
    let mut bytes = 0_u64;
    for (key, value) in annotations.and_then(Json::as_object).into_iter().flatten() {
        if let Some(why) = names::qualified_name(&key.to_lowercase()) {
            causes.invalid(path, &Json::from(key.as_str()), &why);
        }
        let length = key.len() + value.as_str().map_or(0, str::len);
        bytes = bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    }
    if bytes > MAX_ANNOTATIONS {
        causes.too_long(path, MAX_ANNOTATIONS);
    }
}

fn finalizers(meta: &Map<String, Json>, old: Option<&Json>, path: &Path<'_>, causes: &mut Causes) {
    let list = |meta: Option<&Json>| -> Vec<String> {
        let list = meta.and_then(Json::as_array).into_iter().flatten();
        list.filter_map(Json::as_str).map(str::to_owned).collect()
    };
    let finalizers = list(meta.get("finalizers"));
    for name in &finalizers {
        match names::qualified_name(name) {
            Some(why) => causes.invalid(path, &Json::from(name.as_str()), &why),
            None if name.contains('/') || STANDARD_FINALIZERS.contains(&name.as_str()) => {}
            None => causes.warnings.push(format!(
                "{path}: {name:?}: prefer a domain-qualified finalizer name including a path (/) to avoid accidental \
                 conflicts with other finalizer writers"
            )),
        }
    }
    let Some(before) = old.and_then(|old| old.get("metadata")) else {
        return;
    };
    if before.get("deletionTimestamp").is_none_or(Json::is_null) {
        return;
    }
    let before = list(before.get("finalizers"));
    let new: Vec<String> = finalizers.into_iter().filter(|name| !before.contains(name)).collect();
    if !new.is_empty() {
        let text = "no new finalizers can be added if the object is being deleted, found new finalizers";
        // A list in the format of Kubernetes.
        let list = format!("{new:?}");
        let list = list.trim_matches(['[', ']']);
        causes.forbidden(path, &format!("{text} []string{{{list}}}"));
    }
}

fn owners(owners: Option<&Json>, path: &Path<'_>, causes: &mut Causes) {
    let mut controllers = BTreeSet::new();
    for owner in owners.and_then(Json::as_array).into_iter().flatten() {
        for name in ["apiVersion", "kind", "name", "uid"] {
            if owner.get(name).and_then(Json::as_str) == Some("") {
                let text = if name == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                causes.invalid(&path.field(name), &Json::from(""), text);
            }
        }
        if owner.get("controller") == Some(&Json::Bool(true)) {
            controllers.insert(owner.get("name").and_then(Json::as_str).unwrap_or_default());
        }
    }
    if controllers.len() > 1 {
        let names: Vec<&str> = controllers.into_iter().collect();
        let text = "Only one reference can have Controller set to true. Found \"true\" in references for";
        causes.add(path, Reason::Invalid, format!("Invalid value: {text} {}", names.join(" and ")));
    }
}

fn managers(managers: Option<&Json>, path: &Path<'_>, causes: &mut Causes) {
    for (index, entry) in managers.and_then(Json::as_array).into_iter().flatten().enumerate() {
        let path = path.index(index);
        // One empty entry requests removal of the list.
        if entry.as_object().is_none_or(Map::is_empty) {
            continue;
        }
        let operation = entry.get("operation").unwrap_or(&Json::Null);
        if !["Apply", "Update"].iter().any(|known| operation == known) {
            causes.invalid(&path.field("operation"), operation, "must be `Apply` or `Update`");
        }
        let kind = entry.get("fieldsType").unwrap_or(&Json::Null);
        if !kind.is_null() && kind != "FieldsV1" {
            causes.invalid(&path.field("fieldsType"), kind, "must be `FieldsV1`");
        }
    }
}
