//! Merging of one value into another.

use std::collections::{BTreeMap, BTreeSet};

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::fields::Element;
use crate::typed::form::{Form, child, form, identities};

/// The first value with all fields of the second one.
pub(crate) fn overlay(schema: Option<&Schema>, under: &Json, over: &Json) -> Json {
    let (below, above) = (form(schema, under), form(schema, over));
    if !below.same(&above) {
        // Null does not change granular objects and lists.
        return if over.is_null() { under.clone() } else { over.clone() };
    }
    match (below, under, over) {
        (Form::Object(schema), Json::Object(under), Json::Object(over)) => Json::Object(objects(schema, under, over)),
        (Form::Set | Form::Keyed(..), Json::Array(under), Json::Array(over)) => {
            Json::Array(lists(schema, below, under, over))
        }
        _ => over.clone(),
    }
}

fn objects(schema: Option<&Schema>, under: &Map<String, Json>, over: &Map<String, Json>) -> Map<String, Json> {
    let mut out = under.clone();
    for (name, above) in over {
        let (schema, _) = child(schema, name);
        let value = match under.get(name) {
            Some(below) => overlay(schema, below, above),
            None => above.clone(),
        };
        out.insert(name.clone(), value);
    }
    out
}

/// The items of both lists: those of `over` in their order; items only in `under` keep their relative position.
fn lists(schema: Option<&Schema>, form: Form<'_>, under: &[Json], over: &[Json]) -> Vec<Json> {
    let (Some(below), Some(above)) = (identities(form, under), identities(form, over)) else {
        return over.to_vec();
    };
    let schema = schema.and_then(Schema::items).map(|schema| &**schema);
    let known: BTreeMap<&Element, &Json> = below.iter().zip(under).collect();
    let wanted: BTreeSet<&Element> = above.iter().collect();
    let mut out = Vec::with_capacity(under.len() + over.len());
    let mut next = above.iter().zip(over).peekable();
    let merge = |(element, above): (&Element, &Json), out: &mut Vec<Json>| {
        out.push(match known.get(element) {
            Some(below) => overlay(schema, below, above),
            None => above.clone(),
        });
    };
    for (element, below) in below.iter().zip(under) {
        if !wanted.contains(element) {
            out.push(below.clone());
            continue;
        }
        // New items before the next common item come first; a common item out of order is skipped here and added in its
        // turn.
        while let Some(new) = next.next_if(|(element, _)| !known.contains_key(*element)) {
            merge(new, &mut out);
        }
        if let Some(same) = next.next_if(|(wanted, _)| *wanted == element) {
            merge(same, &mut out);
        }
    }
    next.for_each(|rest| merge(rest, &mut out));
    out
}
