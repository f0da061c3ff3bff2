//! The merge type of a value.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::schema::{ListKind, Schema, Shape};
use serde_json::Value as Json;

use crate::fields::Element;

/// The merge type of a value.
#[derive(Clone, Copy)]
pub(crate) enum Form<'a> {
    /// Atomic: a scalar, or a list or object that is replaced as a whole.
    Leaf,
    /// A granular object or map. The schema tells which fields are declared.
    Object(Option<&'a Schema>),
    /// A set of scalars.
    Set,
    /// A list of objects with keys.
    Keyed(&'a Arc<Schema>, &'a [&'static str]),
}

impl Form<'_> {
    /// Whether both are traversed in the same way.
    pub(crate) fn same(&self, other: &Form<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The merge type of a value by its schema. A value that does not match the schema is atomic.
pub(crate) fn form<'a>(schema: Option<&'a Schema>, value: &Json) -> Form<'a> {
    match value {
        Json::Object(_) if schema.is_some_and(|schema| schema.atomic) => Form::Leaf,
        Json::Object(_) => match schema.map(|schema| &schema.shape) {
            Some(Shape::Object(_) | Shape::Map(..)) => Form::Object(schema),
            None | Some(Shape::Any) => Form::Object(None),
            Some(_) => Form::Leaf,
        },
        Json::Array(_) => match schema.map(|schema| &schema.shape) {
            Some(Shape::List(_, ListKind::Set, _)) => Form::Set,
            Some(Shape::List(items, ListKind::Map { keys, .. }, _)) if !keys.is_empty() => Form::Keyed(items, keys),
            _ => Form::Leaf,
        },
        _ => Form::Leaf,
    }
}

/// The schema of a field, and whether the field is declared (not a map entry and not unknown).
pub(crate) fn child<'a>(schema: Option<&'a Schema>, name: &str) -> (Option<&'a Schema>, bool) {
    let Some(schema) = schema else {
        return (None, false);
    };
    let declared = matches!(&schema.shape, Shape::Object(fields) if fields.get(name).is_some());
    (schema.field(name).map(|schema| &**schema), declared)
}

/// The reason why a list item has no identity.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoIdentity(String);

/// The identity of a list item.
///
/// # Errors
/// The item has no identity.
pub(crate) fn identity(form: Form<'_>, item: &Json) -> Result<Element, NoIdentity> {
    let Form::Keyed(items, keys) = form else {
        return match item {
            Json::Null => Err(NoIdentity("a set may not have a null item".to_owned())),
            Json::Array(_) | Json::Object(_) => {
                Err(NoIdentity("a set may have no lists or objects as items".to_owned()))
            }
            _ => Ok(Element::value(item)),
        };
    };
    let Some(fields) = item.as_object() else {
        return Err(NoIdentity("associative list with keys may not have non-map elements".to_owned()));
    };
    let mut found: Vec<(&str, &Json)> = Vec::with_capacity(keys.len());
    for key in keys {
        let default = || items.field(key).and_then(|schema| schema.default.as_ref());
        match fields.get(*key).filter(|value| !value.is_null()).or_else(default) {
            Some(value) => found.push((key, value)),
            // An optional key without a value is part of the identity as absent.
            None if optional(items, key) => {}
            None => {
                let text = "associative list with keys has an element that omits key field";
                return Err(NoIdentity(format!("{text} {key:?} (and doesn't have default value)")));
            }
        }
    }
    if found.is_empty() {
        return Err(NoIdentity("associative list with keys has an element that omits all key fields".to_owned()));
    }
    Ok(Element::key(&found))
}

fn optional(items: &Schema, key: &str) -> bool {
    items.fields().is_some_and(|fields| !fields.required.contains(&key))
}

/// The identities of all items; none if one is missing or duplicate, which makes the list atomic.
pub(crate) fn identities(form: Form<'_>, items: &[Json]) -> Option<Vec<Element>> {
    let mut seen = BTreeSet::new();
    let found: Vec<Element> = items.iter().map(|item| identity(form, item).ok()).collect::<Option<_>>()?;
    found.iter().all(|element| seen.insert(element)).then_some(found)
}

/// A field of a granular object, or an item of a granular list.
pub(crate) struct Part<'a> {
    pub(crate) element: Element,
    pub(crate) schema: Option<&'a Schema>,
    pub(crate) value: &'a Json,
    /// Whether the part itself is a member of field sets, besides its own parts: a list item, map entry or unknown field.
    pub(crate) member: bool,
}

/// The parts of a value; none if it is atomic.
pub(crate) fn parts<'a>(schema: Option<&'a Schema>, value: &'a Json) -> Option<Vec<Part<'a>>> {
    let form = form(schema, value);
    match (form, value) {
        (Form::Object(schema), Json::Object(fields)) => {
            let part = |(name, value): (&String, &'a Json)| {
                let (schema, declared) = child(schema, name);
                Part { element: Element::field(name), schema, value, member: !declared }
            };
            Some(fields.iter().map(part).collect())
        }
        (Form::Set | Form::Keyed(..), Json::Array(items)) => {
            let schema = item_schema(schema);
            let part = |(element, value)| Part { element, schema, value, member: true };
            Some(identities(form, items)?.into_iter().zip(items).map(part).collect())
        }
        _ => None,
    }
}

/// The schema of the items of a list.
pub(crate) fn item_schema(schema: Option<&Schema>) -> Option<&Schema> {
    schema.and_then(Schema::items).map(|schema| &**schema)
}
