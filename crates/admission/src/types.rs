//! Type errors of core kinds. In core kinds, a value of the wrong type makes the body undecodable instead of invalid.
//! Only the first error is reported, with the wording of Go's decoder.

use config::schema::{Definition, Fields, Schema, Shape, object_meta};
use serde_json::Value as Json;

use crate::Rejection;

/// Checks the types of the values in a new object; for custom resources only those in `metadata`.
///
/// # Errors
/// A value has the wrong type. The message does not contain the value.
pub fn check_types(definition: &Definition, version: &str, sent: &Json) -> Result<(), Rejection> {
    let kind = definition.kind;
    // Bodies that are not objects or of another kind are rejected later.
    if !sent.is_object() || sent.get("kind").and_then(Json::as_str).is_some_and(|sent| sent != kind) {
        return Ok(());
    }
    let found = if definition.builtin {
        let at = At { owner: kind, path: String::new() };
        wrong(sent, &definition.schema, &at)
    } else {
        let meta = object_meta();
        let at = At { owner: "", path: String::new() };
        sent.get("metadata").and_then(|sent| wrong(sent, &meta, &at))
    };
    match found {
        None => Ok(()),
        Some(text) => {
            Err(Rejection::BadRequest(format!("{kind} in version {version:?} cannot be handled as a {kind}: {text}")))
        }
    }
}

/// The position of a value: a field of a type.
struct At {
    /// The type with the field; empty at the root.
    owner: &'static str,
    /// The path of the field.
    path: String,
}

/// The first type error in a value.
fn wrong(value: &Json, schema: &Schema, at: &At) -> Option<String> {
    match (&schema.shape, value) {
        (_, Json::Null) | (Shape::Any, _) => None,
        (Shape::Object(fields), Json::Object(object)) => {
            let owner = go_name(schema).unwrap_or(at.owner);
            object.iter().find_map(|(name, value)| in_field(fields, owner, name, value, at))
        }
        (Shape::Map(values, _), Json::Object(object)) => object.values().find_map(|value| wrong(value, values, at)),
        (Shape::List(items, ..), Json::Array(list)) => list.iter().find_map(|value| wrong(value, items, at)),
        (Shape::Text { format: Some("byte"), .. }, Json::String(text)) => {
            let bad = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n'));
            let bad = bad.clone().position(|byte| !is_base64(byte)).or_else(|| {
                let length = bad.count();
                (length % 4 != 0).then_some(length)
            })?;
            Some(format!("illegal base64 data at input byte {bad}"))
        }
        (Shape::Text { .. }, Json::String(_))
        | (Shape::Boolean, Json::Bool(_))
        | (Shape::Number { .. }, Json::Number(_))
        | (Shape::IntOrText, Json::String(_) | Json::Number(_)) => None,
        (Shape::Integer { format, .. }, Json::Number(number)) => {
            let whole = number.as_i64().or_else(|| {
                let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
                // Whole numbers beyond this range are not exact.
                (float.abs() < 9e15).then_some(float as i64)
            });
            let fits = whole.is_some_and(|whole| *format != "int32" || i32::try_from(whole).is_ok());
            (!fits).then(|| refuse(&format!("number {number}"), schema, at))
        }
        (_, value) => Some(refuse(what(value), schema, at)),
    }
}

fn in_field(fields: &Fields, owner: &'static str, name: &str, value: &Json, at: &At) -> Option<String> {
    let schema = fields.get(name)?;
    let path = match at.path.as_str() {
        "" => name.to_owned(),
        outer => format!("{outer}.{name}"),
    };
    wrong(value, schema, &At { owner, path })
}

fn refuse(what: &str, schema: &Schema, at: &At) -> String {
    let wanted = go_type(schema);
    match at.owner {
        "" => format!("json: cannot unmarshal {what} into Go value of type {wanted}"),
        owner => format!("json: cannot unmarshal {what} into Go struct field {owner}.{} of type {wanted}", at.path),
    }
}

fn what(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

/// `ServicePort`, of `io.k8s.api.core.v1.ServicePort`.
fn go_name(schema: &Schema) -> Option<&'static str> {
    schema.named.as_ref()?.name.rsplit('.').next()
}

/// The Go name of a field's type.
fn go_type(schema: &Schema) -> String {
    match &schema.shape {
        Shape::Object(_) => format!("v1.{}", go_name(schema).unwrap_or("Object")),
        Shape::Map(values, _) => format!("map[string]{}", go_type(values)),
        Shape::List(items, ..) => format!("[]{}", go_type(items)),
        Shape::Text { format: Some("byte"), .. } => "[]uint8".to_owned(),
        Shape::Text { .. } => "string".to_owned(),
        Shape::Integer { format, .. } => (*format).to_owned(),
        Shape::Number { .. } => "float64".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::IntOrText => "int32".to_owned(),
        Shape::Any => "interface {}".to_owned(),
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}
