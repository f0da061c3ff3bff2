//! Conversion of JSON to CEL values.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value as Json;

use crate::form::CEL_RESERVED;
use crate::schema::{Schema, Shape};

/// Converts a value. The schema decides the type of numbers. Names of fields that are not CEL identifiers are escaped
/// (`namespace` becomes `__namespace__`); keys of maps are not.
pub(super) fn convert(value: &Json, schema: Option<&Schema>) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Number(number) => {
            let float = matches!(schema.map(|schema| &schema.shape), Some(Shape::Number { .. }));
            match (number.as_i64().filter(|_| !float), number.as_u64().filter(|_| !float)) {
                (Some(number), _) => Value::Int(number),
                (None, Some(number)) => Value::UInt(number),
                (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            }
        }
        Json::Array(list) => {
            let items = schema.and_then(Schema::items).map(|schema| &**schema);
            Value::List(Arc::new(list.iter().map(|item| convert(item, items)).collect()))
        }
        Json::Object(object) => {
            let user_keys = matches!(schema.map(|schema| &schema.shape), Some(Shape::Map(..)));
            let mut map = HashMap::with_capacity(object.len());
            for (name, value) in object {
                let inner = schema.and_then(|schema| schema.field(name)).map(|schema| &**schema);
                let name = if user_keys { name.clone() } else { escape(name) };
                map.insert(Key::String(Arc::new(name)), convert(value, inner));
            }
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Escapes the name of a field as the Kubernetes documentation of CRD validation rules defines it.
fn escape(name: &str) -> String {
    if matches!(name, "true" | "false" | "null" | "in") || CEL_RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
