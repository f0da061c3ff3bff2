//! Strategic merge patch: a merge patch that merges lists by key.
//!
//! Directives in objects: `$patch: replace | delete | merge` and `$retainKeys: [names]`. For a list `x`:
//! `$deleteFromPrimitiveList/x` and `$setElementOrder/x`. In a list of objects, an item with `$patch: delete` and the key
//! removes that item; an item with `$patch: replace` replaces the list.

mod list;

use config::schema::{ListKind, Schema, Shape};
use serde_json::{Map, Value as Json};

use crate::{Error, Limits};

/// The directive key of an object or item.
pub(crate) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch.
///
/// # Errors
/// The patch is not an object, has an invalid directive, an item has no merge key, or a limit is exceeded.
pub fn strategic_merge_patch(document: &Json, patch: &Json, schema: &Schema, limits: &Limits) -> Result<Json, Error> {
    let (Some(original), Some(fields)) = (document.as_object(), patch.as_object()) else {
        return Err(Error::Malformed("error decoding patch: expected an object".into()));
    };
    limits.check("the patch", patch)?;
    limits.check("the object", document)?;
    let result = Json::Object(merge_object(original.clone(), fields, Some(schema))?);
    limits.check("the patched object", &result)?;
    Ok(result)
}

/// The directive of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    /// None, or `merge`.
    Merge,
    /// Replace the existing value.
    Replace,
    /// Delete the existing value.
    Delete,
}

pub(crate) fn directive(patch: &Map<String, Json>) -> Result<Directive, Error> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Json::String(word)) if word == "merge" => Ok(Directive::Merge),
        Some(Json::String(word)) if word == "replace" => Ok(Directive::Replace),
        Some(Json::String(word)) if word == "delete" => Ok(Directive::Delete),
        Some(other) => Err(Error::Malformed(format!(
            "Unknown patch type found: {other}; known: \"merge\", \"replace\", \"delete\""
        ))),
    }
}

/// Merges a patch into an object.
pub(crate) fn merge_object(
    original: Map<String, Json>,
    patch: &Map<String, Json>,
    schema: Option<&Schema>,
) -> Result<Map<String, Json>, Error> {
    let mut out = match directive(patch)? {
        Directive::Delete => return Ok(Map::new()),
        Directive::Replace => Map::new(),
        Directive::Merge => original,
    };
    retain_keys(&mut out, patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let schema = schema.and_then(|schema| schema.field(name)).map(|schema| &**schema);
        if value.is_null() {
            out.remove(name);
            continue;
        }
        let before = out.remove(name);
        if let Some(value) = merge_value(before, value, schema)? {
            out.insert(name.clone(), value);
        }
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            delete_from(&mut out, list, value, patch.get(list))?;
        }
    }
    // Applied last because it sorts existing items.
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(ORDER) {
            let schema = schema.and_then(|schema| schema.field(list)).map(|schema| &**schema);
            list::set_order(&mut out, list, value, merge_key(schema).flatten())?;
        }
    }
    Ok(out)
}

/// Merges a patch into a value; none if it is deleted.
fn merge_value(before: Option<Json>, patch: &Json, schema: Option<&Schema>) -> Result<Option<Json>, Error> {
    match patch {
        Json::Object(fields) => {
            if directive(fields)? == Directive::Delete {
                return Ok(None);
            }
            let before = match before {
                Some(Json::Object(before)) => before,
                _ => Map::new(),
            };
            merge_object(before, fields, schema).map(|merged| Some(Json::Object(merged)))
        }
        Json::Array(items) => {
            let before = match before {
                Some(Json::Array(before)) => before,
                _ => Vec::new(),
            };
            list::merge_list(before, items, schema).map(|merged| Some(Json::Array(merged)))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

/// The merge type of a list: none for atomic lists; otherwise by this key, or by value.
pub(crate) fn merge_key(schema: Option<&Schema>) -> Option<Option<&'static str>> {
    match schema.map(|schema| &schema.shape) {
        Some(Shape::List(_, ListKind::Set, _)) => Some(None),
        Some(Shape::List(_, ListKind::Map { patch_key: Some(key), .. }, _)) => Some(Some(key)),
        _ => None,
    }
}

fn retain_keys(out: &mut Map<String, Json>, patch: &Map<String, Json>) -> Result<(), Error> {
    let Some(directive) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let names: Option<Vec<&str>> = directive.as_array().and_then(|names| names.iter().map(Json::as_str).collect());
    let Some(names) = names else {
        return Err(Error::Malformed("invalid patch format of retainKeys: expected a list of names".into()));
    };
    let extra = patch
        .iter()
        .find(|(name, value)| !name.starts_with('$') && !value.is_null() && !names.contains(&name.as_str()));
    if let Some((name, _)) = extra {
        return Err(Error::Malformed(format!(
            "invalid patch format of retainKeys: the patch has {name:?}, the list does not"
        )));
    }
    out.retain(|name, _| names.contains(&name.as_str()));
    Ok(())
}

/// Removes values from a list of scalars, except those that the same patch adds.
fn delete_from(out: &mut Map<String, Json>, list: &str, values: &Json, added: Option<&Json>) -> Result<(), Error> {
    let Some(values) = values.as_array() else {
        return Err(Error::Malformed("invalid patch format of primitive list: expected a list of values".into()));
    };
    if let Some(Json::Array(items)) = out.get_mut(list) {
        let added = added.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        items.retain(|item| !values.contains(item) || added.contains(item));
    }
    Ok(())
}
