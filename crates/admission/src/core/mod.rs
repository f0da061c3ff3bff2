//! Defaulting and validation of core kinds beyond their schemas: defaults that depend on other fields, and immutable
//! fields. Covers what users of a mesh need: there is no IP allocation and no scheduling.

mod config;
mod service;
mod simple;
mod workload;

use ::config::rules::Path;
use ::config::schema::Definition;
use serde_json::{Map, Value as Json};

use crate::cause::Causes;

/// Adds defaults that depend on other fields.
pub(crate) fn fill(definition: &Definition, object: &mut Json, old: Option<&Json>) {
    let Some(object) = object.as_object_mut().filter(|_| definition.builtin) else {
        return;
    };
    match (definition.group, definition.kind) {
        ("", "Service") => service::fill(object, old),
        ("", "Secret") => config::fill_secret(object),
        ("", "Namespace") => simple::fill_namespace(object, old),
        ("", "Pod") => workload::fill_pod(object, old),
        ("apps", "Deployment") => workload::fill_deployment(object, old),
        _ => {}
    }
}

/// Validates what schemas cannot express. The object matches its schema.
pub(crate) fn check(definition: &Definition, object: &Json, old: Option<&Json>, causes: &mut Causes) {
    if !definition.builtin {
        return;
    }
    match (definition.group, definition.kind) {
        ("", "Service") => service::check(object, old, causes),
        ("", "Secret") => config::check_secret(object, old, causes),
        ("", "ConfigMap") => config::check_config_map(object, old, causes),
        ("", "Pod") => workload::check_pod(object, old, causes),
        ("apps", "Deployment") => workload::check_deployment(object, old, causes),
        ("discovery.k8s.io", "EndpointSlice") => simple::check_endpoint_slice(object, old, causes),
        ("coordination.k8s.io", "Lease") => simple::check_lease(object, causes),
        ("", "Event") => simple::check_event(object, causes),
        _ => {}
    }
}

/// The value at a path of fields; null counts as missing.
fn at<'o>(object: &'o Json, path: &[&str]) -> Option<&'o Json> {
    path.iter().try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// The string at a path of fields, or an empty one.
fn text<'o>(object: &'o Json, path: &[&str]) -> &'o str {
    at(object, path).and_then(Json::as_str).unwrap_or_default()
}

/// The items of the list at a path of fields.
fn items<'o>(object: &'o Json, path: &[&str]) -> impl Iterator<Item = &'o Json> {
    at(object, path).and_then(Json::as_array).into_iter().flatten()
}

/// A nested object, created if missing. None if it has another type.
fn inner<'o>(object: &'o mut Map<String, Json>, name: &str) -> Option<&'o mut Map<String, Json>> {
    let value = object.entry(name).or_insert_with(|| Json::Object(Map::new()));
    value.as_object_mut()
}

/// Sets a field that is missing.
fn default(object: &mut Map<String, Json>, name: &str, value: impl FnOnce() -> Json) {
    object.entry(name).or_insert_with(value);
}

/// Reports an immutable field that differs from the stored one.
fn immutable(object: &Json, old: &Json, names: &[&str], causes: &mut Causes) {
    let (new, before) = (at(object, names), at(old, names));
    if new != before {
        with_path(&Path::Root, names, &mut |path| {
            causes.invalid(path, new.unwrap_or(&Json::Null), "field is immutable");
        });
    }
}

/// Calls a function with the path of nested fields.
fn with_path(path: &Path<'_>, names: &[&str], call: &mut dyn FnMut(&Path<'_>)) {
    match names.split_first() {
        None => call(path),
        Some((name, rest)) => with_path(&path.field(name), rest, call),
    }
}
