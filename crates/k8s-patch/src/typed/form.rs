//! What a value is, for the purposes of merging.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::schema::{ListKind, Schema, Shape};
use serde_json::Value as Json;

use crate::fields::Element;

/// What a value is.
#[derive(Clone, Copy)]
pub(crate) enum Form<'a> {
    /// One thing: a scalar, or a list or object that is replaced as a whole.
    Leaf,
    /// An object; its fields or entries are things of their own. The schema tells which of them are declared.
    Object(Option<&'a Schema>),
    /// A set of scalars.
    Set,
    /// A list of objects that keys tell apart.
    Keyed(&'a Arc<Schema>, &'a [&'static str]),
}

impl Form<'_> {
    /// Whether both are walked in the same way.
    pub(crate) fn same(&self, other: &Form<'_>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What a value is by this schema. A value that the schema does not fit is a leaf.
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

/// The schema of a field, and whether the field is declared (and not an entry of a map, or unknown).
pub(crate) fn child<'a>(schema: Option<&'a Schema>, name: &str) -> (Option<&'a Schema>, bool) {
    let Some(schema) = schema else {
        return (None, false);
    };
    let declared = matches!(&schema.shape, Shape::Object(fields) if fields.get(name).is_some());
    (schema.field(name).map(|schema| &**schema), declared)
}

/// Which item of its list an item is.
///
/// # Errors
/// Why that cannot be told.
pub(crate) fn identity(form: Form<'_>, item: &Json) -> Result<Element, String> {
    let Form::Keyed(items, keys) = form else {
        return match item {
            Json::Null => Err("a set may not have a null item".into()),
            Json::Array(_) | Json::Object(_) => Err("a set may have no lists or objects as items".into()),
            _ => Ok(Element::value(item)),
        };
    };
    let Some(fields) = item.as_object() else {
        return Err("associative list with keys may not have non-map elements".into());
    };
    let mut found: Vec<(&str, &Json)> = Vec::with_capacity(keys.len());
    for key in keys {
        let default = || items.field(key).and_then(|schema| schema.default.as_ref());
        match fields.get(*key).filter(|value| !value.is_null()).or_else(default) {
            Some(value) => found.push((key, value)),
            // A key that may be absent tells apart by its absence.
            None if optional(items, key) => {}
            None => {
                let text = "associative list with keys has an element that omits key field";
                return Err(format!("{text} {key:?} (and doesn't have default value)"));
            }
        }
    }
    if found.is_empty() {
        return Err("associative list with keys has an element that omits all key fields".into());
    }
    Ok(Element::key(&found))
}

fn optional(items: &Schema, key: &str) -> bool {
    items.fields().is_some_and(|fields| !fields.required.contains(&key))
}

/// The identities of all items; none: some have none, or two have the same, so that the list is a whole.
pub(crate) fn identities(form: Form<'_>, items: &[Json]) -> Option<Vec<Element>> {
    let mut seen = BTreeSet::new();
    let found: Vec<Element> = items
        .iter()
        .map(|item| identity(form, item).ok())
        .collect::<Option<_>>()?;
    found.iter().all(|element| seen.insert(element)).then_some(found)
}
