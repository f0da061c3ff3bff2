//! The set of fields of a value.

use std::collections::BTreeSet;

use config::schema::Schema;
use serde_json::Value as Json;

use crate::fields::{Element, Set};
use crate::typed::form::{Form, form, identity, parts};

/// Whether list items without an identity are errors (in applied configurations) or make the list atomic (in stored
/// objects).
pub(crate) type Strict<'a> = Option<&'a mut Vec<String>>;

/// The fields of a value. Members are leaves, list items, map entries and empty objects.
pub(crate) fn to_set(schema: Option<&Schema>, value: &Json, errors: Strict<'_>) -> Set {
    let mut walk = Walk { errors };
    walk.below(schema, value, &mut Vec::new()).1
}

struct Walk<'a> {
    errors: Strict<'a>,
}

impl Walk<'_> {
    /// Whether the value itself is a member, and its nested fields.
    fn below(&mut self, schema: Option<&Schema>, value: &Json, path: &mut Vec<Element>) -> (bool, Set) {
        let Some(parts) = parts(schema, value) else {
            self.report(form(schema, value), value, path);
            return (true, Set::default());
        };
        let mut set = Set::default();
        for part in parts {
            path.push(part.element.clone());
            let (member, children) = self.below(part.schema, part.value, path);
            path.pop();
            let empty = part.value.is_null() || part.value.as_object().is_some_and(serde_json::Map::is_empty);
            set.attach(part.element, member || empty || part.member, children);
        }
        (false, set)
    }

    /// Reports the items of a list without identities.
    fn report(&mut self, form: Form<'_>, value: &Json, path: &[Element]) {
        let (Some(errors), Form::Set | Form::Keyed(..), Json::Array(items)) = (self.errors.as_deref_mut(), form, value)
        else {
            return;
        };
        let place = crate::fields::display_path(path);
        let mut seen = BTreeSet::new();
        for (position, item) in items.iter().enumerate() {
            match identity(form, item) {
                Ok(element) if seen.contains(&element) => {
                    errors.push(format!("{place}: duplicate entries for key {element}"));
                }
                Ok(element) => {
                    seen.insert(element);
                }
                Err(why) => errors.push(format!("{place}: element {position}: {why}")),
            }
        }
    }
}
