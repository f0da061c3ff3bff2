//! Schema checks that decoding does not make: required fields, bounds, patterns, and unique keys.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use regex::Regex;

use crate::decode::{Problem, is_json_name};
use crate::diagnostic::{FieldPath, Segment, Severity};
use crate::gateway_api::text::meaning;
use crate::schema::{Bounds, Fields, ListKind, Schema, Shape};
use crate::yaml::{Entry, Node, Position, Scalar, Value, quote};

/// Checks a node against its schema and returns at most `most` problems. Decoding reports wrong types and unknown
/// fields.
pub(super) fn check(node: &Node, schema: &Schema, path: FieldPath, most: usize) -> Vec<Problem> {
    let mut check = Check {
        path,
        most,
        problems: Vec::new(),
    };
    check.value(node, schema);
    check.problems
}

struct Check {
    path: FieldPath,
    most: usize,
    problems: Vec<Problem>,
}

impl Check {
    fn value(&mut self, node: &Node, schema: &Schema) {
        if node.is_null() || self.problems.len() >= self.most {
            return;
        }
        match (&schema.shape, &node.value) {
            (Shape::Object(fields), Value::Map(entries)) => self.object(node, fields, entries),
            (Shape::Map(values, bounds), Value::Map(entries)) => {
                self.count(node, entries.len(), *bounds, "entries");
                for entry in entries {
                    self.within(Segment::Key(entry.key.clone()), |c| c.value(&entry.value, values));
                }
            }
            (Shape::List(items, kind, bounds), Value::List(nodes)) => {
                self.count(node, nodes.len(), *bounds, "items");
                self.unique(nodes, items, kind);
                for (index, item) in nodes.iter().enumerate() {
                    self.within(Segment::Index(index), |c| c.value(item, items));
                }
            }
            (
                Shape::Text {
                    pattern,
                    values,
                    bounds,
                    ..
                },
                _,
            ) => self.text(node, *pattern, values, *bounds),
            (Shape::Integer { min, max, .. }, _) => self.number(node, min.map(|n| n as f64), max.map(|n| n as f64)),
            (Shape::Number { min, max }, _) => self.number(node, *min, *max),
            _ => {}
        }
    }

    fn object(&mut self, node: &Node, fields: &Fields, entries: &[Entry]) {
        for name in &fields.required {
            let there = entries.iter().any(|e| is_json_name(&e.key, name) && !e.value.is_null());
            if !there {
                self.within(Segment::Field((*name).into()), |c| {
                    c.say(node.at, "missing-field", "this field is required".to_owned());
                });
            }
        }
        for entry in entries {
            let known = fields.fields.iter().find(|(name, _)| is_json_name(&entry.key, name));
            if let Some((name, schema)) = known {
                self.within(Segment::Field((*name).into()), |c| c.value(&entry.value, schema));
            }
        }
    }

    fn text(&mut self, node: &Node, pattern: Option<&'static str>, values: &[&'static str], bounds: Bounds) {
        let Some(text) = node.text() else {
            return;
        };
        if !values.is_empty() && !values.contains(&&**text) {
            let message = format!("expected one of {}, found {}", values.join(", "), quote(text));
            return self.say(node.at, "bad-value", message);
        }
        let fits = self.count(node, text.chars().count(), bounds, "characters");
        if let Some(pattern) = pattern.filter(|_| fits)
            && !matches(pattern, text)
        {
            let message = format!("{} does not match {pattern}", quote(text));
            self.say_with(node.at, "bad-value", message, meaning(pattern));
        }
    }

    fn number(&mut self, node: &Node, min: Option<f64>, max: Option<f64>) {
        let value = match node.scalar() {
            Some(Scalar::Int(value)) => value as f64,
            Some(Scalar::Float(value)) => value,
            _ => return,
        };
        if let Some(min) = min.filter(|min| value < *min) {
            self.say(
                node.at,
                "out-of-range",
                format!("expected {min} or more, found {value}"),
            );
        }
        if let Some(max) = max.filter(|max| value > *max) {
            self.say(
                node.at,
                "out-of-range",
                format!("expected {max} or less, found {value}"),
            );
        }
    }

    /// Whether the count is within the bounds. Reports a problem if not.
    fn count(&mut self, node: &Node, count: usize, bounds: Bounds, what: &str) -> bool {
        let (count, before) = (count as u64, self.problems.len());
        if let Some(min) = bounds.min.filter(|min| count < *min) {
            self.say(
                node.at,
                "out-of-range",
                format!("expected {min} {what} or more, found {count}"),
            );
        }
        if let Some(max) = bounds.max.filter(|max| count > *max) {
            self.say(
                node.at,
                "out-of-range",
                format!("expected {max} {what} or fewer, found {count}"),
            );
        }
        self.problems.len() == before
    }

    /// Reports duplicate items of sets and duplicate keys of list maps.
    fn unique(&mut self, nodes: &[Node], items: &Schema, kind: &ListKind) {
        let mut seen = HashSet::new();
        for (index, item) in nodes.iter().enumerate() {
            let identity = match kind {
                ListKind::Atomic => return,
                ListKind::Set => item.to_json().to_string(),
                ListKind::Map { keys, .. } => keys.iter().map(|key| key_of(item, items, key)).collect(),
            };
            if !seen.insert(identity) {
                self.within(Segment::Index(index), |c| {
                    let message = match kind {
                        ListKind::Map { keys, .. } => format!("an item before it has the same {}", keys.join(" and ")),
                        _ => "an item before it is the same".to_owned(),
                    };
                    c.say(item.at, "duplicate", message);
                });
            }
        }
    }

    fn within(&mut self, segment: Segment, run: impl FnOnce(&mut Check)) {
        self.path.push(segment);
        run(self);
        self.path.pop();
    }

    fn say(&mut self, at: Position, code: &'static str, message: String) {
        self.say_with(at, code, message, None);
    }

    fn say_with(&mut self, at: Position, code: &'static str, message: String, hint: Option<&str>) {
        self.problems.push(Problem {
            path: self.path.clone(),
            at,
            severity: Severity::Error,
            code,
            message,
            hint: hint.map(str::to_owned),
        });
    }
}

/// The value of a key field, or its default.
fn key_of(item: &Node, schema: &Schema, key: &str) -> String {
    let written = item
        .entries()
        .iter()
        .find(|e| is_json_name(&e.key, key))
        .map(|e| e.value.to_json());
    let value = written.or_else(|| schema.field(key).and_then(|field| field.default.clone()));
    format!("{}\n", value.unwrap_or_default())
}

/// Whether a text matches a pattern of a schema. Each thread compiles a pattern once.
fn matches(pattern: &'static str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<&'static str, Option<Regex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok());
        // A test checks that all patterns compile.
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    })
}
