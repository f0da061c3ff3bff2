//! Access to pods as JSON values.

use serde_json::{Map, Value};

/// The name of a pod; the prefix of a name that is not known yet.
pub fn potential_name(pod: &Value) -> String {
    let text = |field: &str| pod["metadata"][field].as_str().filter(|text| !text.is_empty());
    match (text("name"), text("generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => format!("{prefix}*"),
        (None, None) => "(without name)".to_owned(),
    }
}

/// `NAMESPACE/NAME`, for messages.
pub(crate) fn full_name(pod: &Value) -> String {
    match pod["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", potential_name(pod)),
        None => potential_name(pod),
    }
}

pub(crate) fn label<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    pod["metadata"]["labels"].get(name)?.as_str()
}

pub(crate) fn annotation<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    pod["metadata"]["annotations"].get(name)?.as_str()
}

pub(crate) fn annotations(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
}

/// The labels or annotations, made if there are none.
pub(crate) fn metadata_map<'p>(pod: &'p mut Value, field: &str) -> Option<&'p mut Map<String, Value>> {
    let metadata = object(pod)?.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let map = object(metadata)?.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if map.is_null() {
        *map = Value::Object(Map::new());
    }
    map.as_object_mut()
}

pub(crate) fn annotate(pod: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(annotations) = metadata_map(pod, "annotations") {
        annotations.insert(name.to_owned(), value.into());
    }
}

/// The containers of a list: `containers` or `initContainers`.
pub(crate) fn containers<'p>(pod: &'p Value, list: &str) -> &'p [Value] {
    pod["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn containers_mut<'p>(pod: &'p mut Value, list: &str) -> Option<&'p mut Vec<Value>> {
    pod.get_mut("spec")?.get_mut(list)?.as_array_mut()
}

pub(crate) fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

pub(crate) fn find<'c>(containers: &'c [Value], wanted: &str) -> Option<&'c Value> {
    containers.iter().find(|container| name(container) == wanted)
}

/// The container of this name, first among the containers.
pub(crate) fn find_mut<'p>(pod: &'p mut Value, wanted: &str) -> Option<&'p mut Value> {
    let list =
        ["containers", "initContainers"].into_iter().find(|list| find(containers(pod, list), wanted).is_some())?;
    containers_mut(pod, list)?.iter_mut().find(|container| name(container) == wanted)
}

pub(crate) fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    value.as_object_mut()
}

/// Sets a field of an object.
pub(crate) fn set(value: &mut Value, field: &str, new: Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(field.to_owned(), new);
    }
}

/// Adds an item to a list in a field, which is made if it is missing.
pub(crate) fn push(value: &mut Value, field: &str, item: Value) {
    let Some(fields) = value.as_object_mut() else { return };
    let list = fields.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Null = list {
        *list = Value::Array(Vec::new());
    }
    if let Some(list) = list.as_array_mut() {
        list.push(item);
    }
}
