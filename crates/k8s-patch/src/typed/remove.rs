//! Removal of fields from a value.

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::fields::{Element, Set};
use crate::typed::form::{Part, parts};

/// The value without the members of a set; none if nothing is left.
///
/// Objects and lists that become empty are removed, too, unless they are members of `stays`.
pub(crate) fn remove(schema: Option<&Schema>, value: &Json, gone: &Set, stays: &Set) -> Option<Json> {
    let Some(parts) = parts(schema, value) else {
        return Some(value.clone());
    };
    let left = |part: Part<'_>| Some((keep(&part, gone, stays)?, part.element));
    if let Json::Object(fields) = value {
        let left = parts.into_iter().filter_map(left);
        let named = left.filter_map(|(value, element)| match element {
            Element::Field(name) => Some((name, value)),
            _ => None,
        });
        let out: Map<String, Json> = named.collect();
        return (!out.is_empty() || fields.is_empty()).then_some(Json::Object(out));
    }
    let out: Vec<Json> = parts.into_iter().filter_map(left).map(|(value, _)| value).collect();
    (!out.is_empty()).then_some(Json::Array(out))
}

fn keep(part: &Part<'_>, gone: &Set, stays: &Set) -> Option<Json> {
    let (step, value) = (&part.element, part.value);
    if gone.has(step) {
        return None;
    }
    let Some(below) = gone.below(step) else {
        return Some(value.clone());
    };
    let none = Set::default();
    let left = remove(part.schema, value, below, stays.below(step).unwrap_or(&none));
    left.or_else(|| {
        match value {
            Json::Array(_) => Some(Json::Array(Vec::new())),
            _ => Some(Json::Object(Map::new())),
        }
        .filter(|_| stays.has(step))
    })
}
