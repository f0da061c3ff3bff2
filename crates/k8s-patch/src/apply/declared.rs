//! Validation of an applied configuration by its schema.

use config::schema::{Schema, Shape};
use serde_json::Value as Json;

use crate::Error;
use crate::apply::Writer;
use crate::apply::server_side::untyped;
use crate::fields::{Element, display_path};
use crate::typed::{Form, form, identity};

/// Maximum number of reported errors.
const MAX_FAULTS: usize = 100;

/// Checks a configuration before it is applied.
///
/// # Errors
/// A field is not in the schema, or a value is not a list or object where the schema requires one.
pub fn check_declared(config: &Json, by: &Writer<'_>) -> Result<(), Error> {
    let mut faults = Vec::new();
    walk(&by.definition.schema, config, &mut Vec::new(), &mut faults);
    match &faults[..] {
        [] => Ok(()),
        [one] => Err(untyped(config, by, one)),
        many => Err(untyped(config, by, &format!("errors:\n  {}", many.join("\n  ")))),
    }
}

fn walk(schema: &Schema, value: &Json, path: &mut Vec<Element>, faults: &mut Vec<String>) {
    if value.is_null() || faults.len() >= MAX_FAULTS {
        return;
    }
    let mut wrong = |wanted: &str, path: &[Element]| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let shown: String = value.chars().take(100).collect();
        faults.push(format!("{}: expected {wanted}, got &{{{shown}}}", display_path(path)));
    };
    match (&schema.shape, value) {
        (Shape::Object(fields), Json::Object(object)) => {
            for (name, value) in object {
                path.push(Element::field(name));
                match fields.get(name) {
                    Some(schema) => walk(schema, value, path, faults),
                    None if fields.open => {}
                    None => faults.push(format!("{}: field not declared in schema", display_path(path))),
                }
                path.pop();
            }
        }
        (Shape::Map(values, _), Json::Object(object)) => {
            for (name, value) in object {
                path.push(Element::field(name));
                walk(values, value, path, faults);
                path.pop();
            }
        }
        (Shape::List(inner, ..), Json::Array(list)) => {
            let form = form(Some(schema), value);
            for (index, item) in list.iter().enumerate() {
                let known = matches!(form, Form::Keyed(..)).then(|| identity(form, item).ok()).flatten();
                path.push(known.unwrap_or(Element::Index(i64::try_from(index).unwrap_or(i64::MAX))));
                walk(inner, item, path, faults);
                path.pop();
            }
        }
        (Shape::Object(_) | Shape::Map(..), _) => wrong("map", path),
        (Shape::List(..), _) => wrong("list", path),
        _ => {}
    }
}
