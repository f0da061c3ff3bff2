//! Comparison of values.

use std::collections::BTreeMap;

use config::schema::Schema;
use serde_json::Value as Json;

use crate::fields::{Element, Set};
use crate::typed::form::{Part, form, parts};

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

    /// All fields that differ.
    pub(crate) fn touched(&self) -> Set {
        let mut set = self.written();
        set.extend(&self.removed);
        set
    }
}

/// Compares a value with an earlier one.
pub(crate) fn compare(schema: Option<&Schema>, old: &Json, new: &Json) -> Comparison {
    let mut walk = Walk { found: Comparison::default(), path: Vec::new() };
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
        if !form(schema, old).same(&form(schema, new)) {
            self.found.modified.insert(&self.path);
            self.inner(schema, old, false);
            self.inner(schema, new, true);
            return;
        }
        let (Some(before), Some(after)) = (parts(schema, old), parts(schema, new)) else {
            self.found.modified.insert(&self.path);
            return;
        };
        let mut rest: BTreeMap<Element, Part<'_>> =
            after.into_iter().map(|part| (part.element.clone(), part)).collect();
        for part in before {
            match rest.remove(&part.element) {
                Some(after) => {
                    self.path.push(part.element);
                    self.both(part.schema, part.value, after.value);
                    self.path.pop();
                }
                None => self.one(part, false),
            }
        }
        for part in rest.into_values() {
            self.one(part, true);
        }
    }

    /// Adds a part of only one side with everything in it.
    fn one(&mut self, part: Part<'_>, added: bool) {
        self.path.push(part.element);
        let set = if added { &mut self.found.added } else { &mut self.found.removed };
        set.insert(&self.path);
        self.inner(part.schema, part.value, added);
        self.path.pop();
    }

    fn inner(&mut self, schema: Option<&Schema>, value: &Json, added: bool) {
        for part in parts(schema, value).into_iter().flatten() {
            self.one(part, added);
        }
    }
}
