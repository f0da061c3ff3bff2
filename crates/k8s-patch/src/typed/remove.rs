//! Removal of fields from a value.

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::fields::{Element, Set};
use crate::typed::form::{Form, child, form, identities};

/// The value without the members of a set; none if nothing is left.
///
/// Objects and lists that become empty are removed, too, unless they are members of `stays`.
pub(crate) fn remove(schema: Option<&Schema>, value: &Json, gone: &Set, stays: &Set) -> Option<Json> {
    let form = form(schema, value);
    match (form, value) {
        (Form::Object(_), Json::Object(fields)) if fields.is_empty() => Some(value.clone()),
        (Form::Object(schema), Json::Object(fields)) => {
            let mut out = Map::new();
            for (name, value) in fields {
                let left = keep(child(schema, name).0, value, &Element::field(name), gone, stays);
                out.extend(left.map(|value| (name.clone(), value)));
            }
            (!out.is_empty()).then_some(Json::Object(out))
        }
        (Form::Set | Form::Keyed(..), Json::Array(items)) => {
            let Some(elements) = identities(form, items) else {
                return Some(value.clone());
            };
            let schema = schema.and_then(Schema::items).map(|schema| &**schema);
            let keep = |(element, item)| keep(schema, item, element, gone, stays);
            let left: Vec<Json> = elements.iter().zip(items).filter_map(keep).collect();
            (!left.is_empty()).then_some(Json::Array(left))
        }
        _ => Some(value.clone()),
    }
}

fn keep(schema: Option<&Schema>, value: &Json, step: &Element, gone: &Set, stays: &Set) -> Option<Json> {
    if gone.has(step) {
        return None;
    }
    let Some(below) = gone.below(step) else {
        return Some(value.clone());
    };
    let none = Set::default();
    let left = remove(schema, value, below, stays.below(step).unwrap_or(&none));
    left.or_else(|| {
        match value {
            Json::Array(_) => Some(Json::Array(Vec::new())),
            _ => Some(Json::Object(Map::new())),
        }
        .filter(|_| stays.has(step))
    })
}
