//! Comparison of values.

use std::collections::BTreeMap;

use config::schema::Schema;
use serde_json::{Map, Value as Json};

use crate::fields::{Element, Set};
use crate::typed::form::{Form, child, form, identities};

/// The difference of two values. Unlike in [`to_set`](crate::typed::to_set), added and removed objects are members
/// themselves.
#[derive(Default, Debug)]
pub(crate) struct Comparison {
    /// Fields only in the second value.
    pub(crate) added: Set,
    /// Fields only in the first value.
    pub(crate) removed: Set,
    /// Leaves in both with different values.
    pub(crate) modified: Set,
}

impl Comparison {
    /// The fields that the second value adds or changes.
    pub(crate) fn written(&self) -> Set {
        let mut set = self.added.clone();
        set.extend(&self.modified);
        set
    }

    /// Like `written`, but consumes the comparison.
    pub(crate) fn into_written(self) -> Set {
        let mut set = self.added;
        set.extend(&self.modified);
        set
    }

    /// All fields that differ.
    pub(crate) fn touched(&self) -> Set {
        let mut set = self.written();
        set.extend(&self.removed);
        set
    }
}

/// Compares a value with an earlier one.
pub(crate) fn compare(schema: Option<&Schema>, old: &Json, new: &Json) -> Comparison {
    let mut walk = Walk {
        found: Comparison::default(),
        path: Vec::new(),
    };
    walk.both(schema, old, new);
    walk.found
}

struct Walk {
    found: Comparison,
    path: Vec<Element>,
}

impl Walk {
    fn both(&mut self, schema: Option<&Schema>, old: &Json, new: &Json) {
        if old == new {
            return;
        }
        let (before, after) = (form(schema, old), form(schema, new));
        match (before, old, new) {
            _ if !before.same(&after) => {
                self.found.modified.insert(&self.path);
                self.inner(schema, old, false);
                self.inner(schema, new, true);
            }
            (Form::Object(schema), Json::Object(old), Json::Object(new)) => self.objects(schema, old, new),
            (Form::Set | Form::Keyed(..), Json::Array(old), Json::Array(new)) => self.lists(schema, before, old, new),
            _ => self.found.modified.insert(&self.path),
        }
    }

    fn objects(&mut self, schema: Option<&Schema>, old: &Map<String, Json>, new: &Map<String, Json>) {
        for (name, before) in old {
            let (schema, _) = child(schema, name);
            self.path.push(Element::field(name));
            match new.get(name) {
                Some(after) => self.both(schema, before, after),
                None => self.one(schema, before, false),
            }
            self.path.pop();
        }
        for (name, after) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            let (schema, _) = child(schema, name);
            self.path.push(Element::field(name));
            self.one(schema, after, true);
            self.path.pop();
        }
    }

    fn lists(&mut self, schema: Option<&Schema>, form: Form<'_>, old: &[Json], new: &[Json]) {
        let (Some(before), Some(after)) = (identities(form, old), identities(form, new)) else {
            self.found.modified.insert(&self.path);
            return;
        };
        let schema = schema.and_then(Schema::items).map(|schema| &**schema);
        let mut rest: BTreeMap<Element, &Json> = after.into_iter().zip(new).collect();
        for (element, before) in before.into_iter().zip(old) {
            let after = rest.remove(&element);
            self.path.push(element);
            match after {
                Some(after) => self.both(schema, before, after),
                None => self.one(schema, before, false),
            }
            self.path.pop();
        }
        for (element, after) in rest {
            self.path.push(element);
            self.one(schema, after, true);
            self.path.pop();
        }
    }

    /// Adds a value of only one side with everything in it.
    fn one(&mut self, schema: Option<&Schema>, value: &Json, added: bool) {
        let set = if added {
            &mut self.found.added
        } else {
            &mut self.found.removed
        };
        set.insert(&self.path);
        self.inner(schema, value, added);
    }

    fn inner(&mut self, schema: Option<&Schema>, value: &Json, added: bool) {
        let form = form(schema, value);
        match (form, value) {
            (Form::Object(schema), Json::Object(fields)) => {
                for (name, value) in fields {
                    self.path.push(Element::field(name));
                    self.one(child(schema, name).0, value, added);
                    self.path.pop();
                }
            }
            (Form::Set | Form::Keyed(..), Json::Array(items)) => {
                let schema = schema.and_then(Schema::items).map(|schema| &**schema);
                for (element, item) in identities(form, items).into_iter().flatten().zip(items) {
                    self.path.push(element);
                    self.one(schema, item, added);
                    self.path.pop();
                }
            }
            _ => {}
        }
    }
}
