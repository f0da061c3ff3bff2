//! Conversion of values to text and booleans.

use serde_json::Value;

/// Whether a condition is true: every non-empty value is.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// The text of a value in a template's output.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            // `2.0` is written as `2`.
            (None, Some(broken)) => broken.to_string(),
            (None, None) => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let mut fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
    }
}

/// The approximate memory size of a value, in bytes.
pub(crate) fn weight(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        _ => 0,
    };
    inner + size_of::<Value>()
}

/// The text in double quotes, with JSON's escapes.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
