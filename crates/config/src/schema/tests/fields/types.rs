//! The column *Type*: types, allowed values, limits and defaults.

use serde_json::Value as Json;

use super::link;
use super::tree::{Row, Table};
use crate::Kind;
use crate::decode::Decode;
use crate::mesh::MeshConfig;
use crate::schema::{Bounds, Check, Schema, Shape};

/// The type of a field with its limits and default.
pub(super) fn describe(row: &Row, table: &Table) -> String {
    let mut parts = vec![name(&row.schema, row.message)];
    parts.extend(limits(&row.schema));
    if row.required {
        parts.push("required".to_owned());
    }
    parts.extend(default(row, table).map(|value| format!("default `{value}`")));
    parts.join(", ")
}

fn name(schema: &Schema, message: Option<&str>) -> String {
    match &schema.shape {
        Shape::List(items, ..) => format!("list of {}", plural(name(items, message))),
        Shape::Map(values, _) => format!("map of {}", plural(name(values, message))),
        Shape::Object(_) => message.map_or_else(|| "object".to_owned(), link),
        Shape::Text { values, .. } if !values.is_empty() => one_of(values),
        Shape::Text { format: Some("byte"), .. } => "bytes in base64".to_owned(),
        Shape::Text { format: Some("date-time"), .. } => "time".to_owned(),
        Shape::Text { format, .. } => format.unwrap_or("string").to_owned(),
        Shape::Integer { .. } => "integer".to_owned(),
        Shape::Number { .. } => "number".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::IntOrText => "integer or string".to_owned(),
        Shape::Any => "any".to_owned(),
    }
}

fn plural(name: String) -> String {
    match name.ends_with(|c: char| c.is_ascii_lowercase()) && !name.contains("base64") {
        true => name + "s",
        false => name,
    }
}

fn one_of(values: &[&str]) -> String {
    let named = values.iter().filter(|value| !value.is_empty()).map(|value| format!("`{value}`"));
    named.collect::<Vec<_>>().join(", ")
}

/// The limits of a value, from its schema and its checks.
fn limits(schema: &Schema) -> Option<String> {
    let check = |find: fn(&Check) -> Option<f64>| schema.checks.iter().find_map(find);
    let from = check(|check| if let Check::From(value) = check { Some(*value) } else { None });
    let to = check(|check| if let Check::To(value) = check { Some(*value) } else { None });
    let (min, max) = match &schema.shape {
        Shape::Integer { min, max, .. } => (min.map(|v| v as f64), max.map(|v| v as f64)),
        Shape::Number { min, max } => (*min, *max),
        Shape::Text { bounds, .. } => {
            let among = schema.checks.iter().find_map(|check| match check {
                Check::Among(values) => Some(one_of(values)),
                _ => None,
            });
            return among.or_else(|| lengths(*bounds, "characters"));
        }
        Shape::List(_, _, bounds) | Shape::Map(_, bounds) => return lengths(*bounds, "entries"),
        _ => return None,
    };
    // The maximum of the type itself is no limit for users.
    let max = to.or(max).filter(|max| *max < f64::from(u32::MAX));
    match (from.or(min), max) {
        (Some(min), Some(max)) => Some(format!("{min} to {max}")),
        (Some(min), None) => Some(format!("at least {min}")),
        (None, Some(max)) => Some(format!("at most {max}")),
        (None, None) => None,
    }
}

fn lengths(bounds: Bounds, unit: &str) -> Option<String> {
    match (bounds.min, bounds.max) {
        (Some(min), Some(max)) if min > 0 => Some(format!("{min} to {max} {unit}")),
        (_, Some(max)) => Some(format!("at most {max} {unit}")),
        (Some(min), None) if min > 1 => Some(format!("at least {min} {unit}")),
        _ => None,
    }
}

/// The default: of the schema, or of the mesh settings.
fn default(row: &Row, table: &Table) -> Option<String> {
    let value = match (&row.schema.default, table.kind) {
        (Some(value), _) => value.clone(),
        (None, Some(Kind::MeshConfig)) => {
            let pointer = format!("/{}", row.path.replace('.', "/"));
            MeshConfig::default().encode().pointer(&pointer)?.clone()
        }
        _ => return None,
    };
    match value {
        Json::Array(_) | Json::Object(_) | Json::Null => None,
        Json::String(text) if text.is_empty() => None,
        Json::String(text) => Some(text),
        value => Some(value.to_string()),
    }
}
