//! Normalization of values: removes nulls and unknown fields, fills in defaults.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use crate::rules::Path;
use crate::schema::{Fields, Schema, Shape};

/// Limit of reported unknown fields.
const MAX_UNKNOWN: usize = 100;

/// Options and findings of [`normalize`].
#[derive(Debug, Default)]
pub struct Normalization {
    /// Whether defaults are filled in. Configurations of server-side apply get none: the applier does not own them.
    pub defaults: bool,
    /// Paths of unknown fields, at most 100.
    pub unknown: Vec<String>,
}

/// Normalizes a value by its schema. Values of the wrong type are not changed.
pub fn normalize(value: &mut Json, schema: &Schema, out: &mut Normalization) {
    walk(value, schema, &Path::Root, out);
}

fn walk(value: &mut Json, schema: &Schema, path: &Path<'_>, out: &mut Normalization) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Json::Object(object)) => object_of(object, fields, path, out),
        (Shape::Map(values, _), Json::Object(object)) => {
            if matches!(values.shape, Shape::Text { .. }) && !values.nullable {
                // Kubernetes reads null in a map of strings as the empty string.
                object
                    .values_mut()
                    .filter(|value| value.is_null())
                    .for_each(|value| *value = Json::String(String::new()));
            }
            for (key, value) in object {
                walk(value, values, &path.field(key), out);
            }
        }
        (Shape::List(items, ..), Json::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                walk(item, items, &path.index(index), out);
            }
        }
        (Shape::Integer { .. }, value @ Json::Number(_)) => whole(value),
        _ => {}
    }
}

fn object_of(object: &mut Map<String, Json>, fields: &Fields, path: &Path<'_>, out: &mut Normalization) {
    object.retain(|name, value| match fields.get(name) {
        Some(schema) => !value.is_null() || schema.nullable || matches!(schema.shape, Shape::Any),
        None if fields.open => true,
        None => {
            if out.unknown.len() < MAX_UNKNOWN {
                out.unknown.push(path.field(name).to_string());
            }
            false
        }
    });
    if out.defaults {
        for (name, schema) in &fields.fields {
            if let Some(default) = missing(object, name, schema) {
                object.insert((*name).to_owned(), default);
            }
        }
    }
    for (name, value) in object {
        if let Some(schema) = fields.get(name) {
            walk(value, schema, &path.field(name), out);
        }
    }
}

fn missing(object: &Map<String, Json>, name: &str, schema: &Arc<Schema>) -> Option<Json> {
    let default = schema.default.as_ref()?;
    (!object.contains_key(name)).then(|| default.clone())
}

/// Writes 2.0 as 2.
fn whole(value: &mut Json) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = value.as_f64().filter(|_| value.is_f64())
        && float.fract() == 0.0
        && float.abs() < EXACT
    {
        // In range: checked above.
        *value = Json::from(float as i64);
    }
}
