//! A value brought into the form that is stored: nulls and unknown fields out, defaults in.

use std::sync::Arc;

use config::schema::{Fields, Schema, Shape};
use serde_json::{Map, Value as Json};

use crate::path::Path;

/// Unknown fields that are reported.
const MAX_UNKNOWN: usize = 100;

/// What is done besides taking out nulls and unknown fields, and what was found.
#[derive(Debug, Default)]
pub(crate) struct Conform {
    /// Whether defaults are filled in. Not in configurations of server-side apply: nobody said them.
    pub(crate) defaults: bool,
    /// Unknown fields, by path.
    pub(crate) unknown: Vec<String>,
}

/// Brings a value into the form that its schema says. Values of the wrong type stay as they are.
pub(crate) fn conform(value: &mut Json, schema: &Schema, path: &Path<'_>, out: &mut Conform) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Json::Object(object)) => object_of(object, fields, path, out),
        (Shape::Map(values, _), Json::Object(object)) => {
            if matches!(values.shape, Shape::Text { .. }) && !values.nullable {
                // As Kubernetes reads a map of texts: null is the empty one.
                object
                    .values_mut()
                    .filter(|value| value.is_null())
                    .for_each(|value| *value = Json::String(String::new()));
            }
            for (key, value) in object {
                conform(value, values, &path.field(key), out);
            }
        }
        (Shape::List(items, ..), Json::Array(list)) => {
            for (index, item) in list.iter_mut().enumerate() {
                conform(item, items, &path.index(index), out);
            }
        }
        (Shape::Integer { .. }, value @ Json::Number(_)) => whole(value),
        _ => {}
    }
}

fn object_of(object: &mut Map<String, Json>, fields: &Fields, path: &Path<'_>, out: &mut Conform) {
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
            conform(value, schema, &path.field(name), out);
        }
    }
}

fn missing(object: &Map<String, Json>, name: &str, schema: &Arc<Schema>) -> Option<Json> {
    let default = schema.default.as_ref()?;
    (!object.contains_key(name)).then(|| default.clone())
}

/// 2.0 is 2.
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
