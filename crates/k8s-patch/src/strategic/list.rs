//! Lists under a strategic merge patch.

use std::collections::HashMap;

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::Error;
use crate::strategic::{Directive, PATCH, directive, merge_key, merge_object};

/// Merges the items of a patch into a list.
pub(crate) fn merge_list(before: Vec<Json>, patch: &[Json], schema: Option<&Schema>) -> Result<Vec<Json>, Error> {
    let items = schema.and_then(Schema::items).map(|schema| &**schema);
    match merge_key(schema) {
        None => replace(patch, items),
        Some(None) => Ok(union(before, patch)),
        Some(Some(key)) => merge_by_key(before, patch, key, items),
    }
}

/// The items of a patch as a new list, without directives.
fn replace(patch: &[Json], items: Option<&Schema>) -> Result<Vec<Json>, Error> {
    let mut out = Vec::with_capacity(patch.len());
    for item in patch {
        match item {
            Json::Object(fields) if fields.contains_key(PATCH) && fields.len() == 1 => {}
            Json::Object(fields) if directive(fields)? == Directive::Delete => {}
            Json::Object(fields) => out.push(Json::Object(merge_object(Map::new(), fields, items)?)),
            Json::Array(inner) => out.push(Json::Array(replace(inner, None)?)),
            other => out.push(other.clone()),
        }
    }
    Ok(out)
}

/// Merges a set of scalars.
fn union(before: Vec<Json>, patch: &[Json]) -> Vec<Json> {
    let mut out = before.clone();
    for item in patch {
        if !out.contains(item) {
            out.push(item.clone());
        }
    }
    arrange(out, &before, patch, |item| Some(item))
}

/// Orders items as Kubernetes does: those of the patch in its order, other items between them at their old position. New
/// items come first if the order is ambiguous.
fn arrange(items: Vec<Json>, before: &[Json], patch: &[Json], identity: impl Fn(&Json) -> Option<&Json>) -> Vec<Json> {
    let places = |list: &[Json]| -> HashMap<String, usize> {
        let identities = list.iter().filter_map(&identity).map(Json::to_string);
        identities.zip(0..).collect()
    };
    let (stood, wanted) = (places(before), places(patch));
    let place = |places: &HashMap<String, usize>, item: &Json| places.get(&identity(item)?.to_string()).copied();
    let (mut named, others): (Vec<Json>, Vec<Json>) =
        items.into_iter().partition(|item| place(&wanted, item).is_some());
    named.sort_by_key(|item| place(&wanted, item));
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let here = place(&stood, &item);
        while let Some(other) = others.next_if(|other| here.is_some_and(|here| place(&stood, other) < Some(here))) {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others);
    out
}

/// Applies `$setElementOrder` to a list of the object: sorts the listed items in the given order.
pub(crate) fn set_order(
    out: &mut Map<String, Json>,
    list: &str,
    order: &Json,
    key: Option<&'static str>,
) -> Result<(), Error> {
    let Some(order) = order.as_array() else {
        return Err(Error::Malformed("invalid patch format of setElementOrder list: expected a list".into()));
    };
    if let Some(Json::Array(items)) = out.get_mut(list) {
        let before = std::mem::take(items);
        *items = arrange(before.clone(), &before, order, |item| match key {
            Some(key) if item.is_object() => item.get(key),
            _ => Some(item),
        });
    }
    Ok(())
}

fn merge_by_key(
    before: Vec<Json>,
    patch: &[Json],
    key: &'static str,
    items: Option<&Schema>,
) -> Result<Vec<Json>, Error> {
    let mut objects = Vec::with_capacity(patch.len());
    for item in patch {
        let Some(fields) = item.as_object() else {
            return Err(Error::Malformed(format!("the list merges by {key:?}, but an item of the patch is {item}")));
        };
        let directive = directive(fields)?;
        if directive == Directive::Replace {
            return replace(patch, items);
        }
        objects.push((fields, directive));
    }
    let mut out = before.clone();
    for (fields, directive) in objects {
        let Some(value) = fields.get(key) else {
            if fields.keys().all(|name| name == PATCH) && directive == Directive::Merge {
                continue;
            }
            let text = format!("map: {} does not contain declared merge key: {key}", Json::Object(fields.clone()));
            return Err(Error::Unprocessable(text));
        };
        let same = |item: &Json| item.get(key) == Some(value);
        if directive == Directive::Delete {
            out.retain(|item| !same(item));
            continue;
        }
        match out.iter_mut().find(|item| same(item)) {
            Some(found) => {
                let before = found.as_object().cloned().unwrap_or_default();
                *found = Json::Object(merge_object(before, fields, items)?);
            }
            None => out.push(Json::Object(merge_object(Map::new(), fields, items)?)),
        }
    }
    Ok(arrange(out, &before, patch, |item| item.get(key)))
}
