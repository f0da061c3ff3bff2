//! A value without some of its fields.

use resources::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::fields::{Element, Set};
use crate::typed::form::{Form, child, form, identities};

/// The value without the members of a set; none: nothing is left of it.
pub(crate) fn remove(schema: Option<&Schema>, value: &Json, gone: &Set) -> Option<Json> {
    let form = form(schema, value);
    match (form, value) {
        (Form::Object(_), Json::Object(fields)) if fields.is_empty() => Some(value.clone()),
        (Form::Object(schema), Json::Object(fields)) => {
            let mut out = Map::new();
            for (name, value) in fields {
                let left = keep(child(schema, name).0, value, &Element::field(name), gone);
                out.extend(left.map(|value| (name.clone(), value)));
            }
            (!out.is_empty()).then_some(Json::Object(out))
        }
        (Form::Set | Form::Keyed(..), Json::Array(items)) => {
            let Some(elements) = identities(form, items) else {
                return Some(value.clone());
            };
            let schema = schema.and_then(Schema::items).map(|schema| &**schema);
            let left = elements.iter().zip(items).filter_map(|(element, item)| keep(schema, item, element, gone));
            let left: Vec<Json> = left.collect();
            (!left.is_empty()).then_some(Json::Array(left))
        }
        _ => Some(value.clone()),
    }
}

fn keep(schema: Option<&Schema>, value: &Json, step: &Element, gone: &Set) -> Option<Json> {
    if gone.has(step) {
        return None;
    }
    match gone.below(step) {
        Some(below) => remove(schema, value, below),
        None => Some(value.clone()),
    }
}
