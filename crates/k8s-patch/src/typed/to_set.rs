//! The set of fields of a value.

use std::collections::BTreeSet;

use config::schema::Schema;
use serde_json::Value as Json;

use crate::fields::{Element, Set};
use crate::typed::form::{Form, child, form, identities, identity};

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
        let form = form(schema, value);
        match (form, value) {
            (Form::Object(schema), Json::Object(fields)) => {
                let mut set = Set::default();
                for (name, value) in fields {
                    let (schema, declared) = child(schema, name);
                    let (member, children) = self.step(schema, value, Element::field(name), path);
                    let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                    set.attach(Element::field(name), member || empty || !declared, children);
                }
                (false, set)
            }
            (Form::Set | Form::Keyed(..), Json::Array(items)) => self.items(schema, form, items, path),
            _ => (true, Set::default()),
        }
    }

    fn step(&mut self, schema: Option<&Schema>, value: &Json, to: Element, path: &mut Vec<Element>) -> (bool, Set) {
        path.push(to);
        let found = self.below(schema, value, path);
        path.pop();
        found
    }

    fn items(
        &mut self,
        schema: Option<&Schema>,
        form: Form<'_>,
        items: &[Json],
        path: &mut Vec<Element>,
    ) -> (bool, Set) {
        let Some(found) = identities(form, items) else {
            self.report(form, items, path);
            return (true, Set::default());
        };
        let mut set = Set::default();
        let inner = schema.and_then(Schema::items).map(|schema| &**schema);
        for (element, item) in found.into_iter().zip(items) {
            let (_, children) = self.step(inner, item, element.clone(), path);
            set.attach(element, true, children);
        }
        (false, set)
    }

    fn report(&mut self, form: Form<'_>, items: &[Json], path: &[Element]) {
        let Some(errors) = self.errors.as_deref_mut() else {
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
