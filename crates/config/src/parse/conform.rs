//! Schema checks that decoding does not make: required fields, bounds, patterns, unique keys, and the checks of the control
//! plane.

use std::collections::HashSet;

use crate::decode::{Problem, is_json_name};
use crate::form::{Fault, Form};
use crate::gateway_api::text::meaning;
use crate::problem::{FieldPath, Segment, Severity};
use crate::schema::{Bounds, Check, Fields, ListKind, Schema, Shape, matches};
use crate::yaml::{Entry, Node, Position, Scalar, Value, quote};

/// Checks a node against its schema and returns at most `most` problems. `at` is the position of its key. Decoding reports wrong types and unknown
/// fields.
pub(super) fn check(node: &Node, at: Position, schema: &Schema, path: FieldPath, most: usize) -> Vec<Problem> {
    let mut walk = Walk { path, most, problems: Vec::new() };
    walk.value(node, at, schema);
    walk.problems
}

/// Adds problems to those that decoding found, unless these concern the same values.
pub(super) fn add(found: Vec<Problem>, problems: &mut Vec<Problem>) {
    let errors = problems.iter().filter(|p| p.severity == Severity::Error);
    let broken: Vec<FieldPath> = errors.map(|p| p.path.clone()).collect();
    let known = |path: &FieldPath| broken.iter().any(|broken| broken.contains(path));
    problems.extend(found.into_iter().filter(|f| !known(&f.path)));
}

struct Walk {
    path: FieldPath,
    most: usize,
    problems: Vec<Problem>,
}

impl Walk {
    /// Checks a value. `at` is the position of its key.
    fn value(&mut self, node: &Node, at: Position, schema: &Schema) {
        if node.is_null() || self.problems.len() >= self.most {
            return;
        }
        for check in &schema.checks {
            self.check(check, node, at, schema);
        }
        self.shape(node, at, schema);
    }

    fn shape(&mut self, node: &Node, at: Position, schema: &Schema) {
        match (&schema.shape, &node.value) {
            (Shape::Object(fields), Value::Map(entries)) => self.object(node, at, fields, entries),
            (Shape::Map(values, bounds), Value::Map(entries)) => {
                self.count(node, entries.len(), *bounds, "entries");
                for entry in entries {
                    self.within(Segment::Key(entry.key.clone()), |c| {
                        c.value(&entry.value, entry.at, values);
                    });
                }
            }
            (Shape::List(items, kind, bounds), Value::List(nodes)) => {
                self.count(node, nodes.len(), *bounds, "items");
                self.unique(nodes, items, kind);
                for (index, item) in nodes.iter().enumerate() {
                    self.within(Segment::Index(index), |c| c.value(item, item.at, items));
                }
            }
            (Shape::Text { pattern, values, bounds, .. }, _) => self.text(node, *pattern, values, *bounds),
            (Shape::Integer { min, max, .. }, _) => {
                let bound = |bound: &Option<i64>| bound.map(|bound| bound as f64);
                self.number(node, node.at, bound(min), bound(max));
            }
            (Shape::Number { min, max }, _) => self.number(node, node.at, *min, *max),
            _ => {}
        }
    }

    fn object(&mut self, node: &Node, at: Position, fields: &Fields, entries: &[Entry]) {
        for (name, schema) in &fields.fields {
            let entry = entries.iter().find(|e| is_json_name(&e.key, name) && !e.value.is_null());
            let set = entry.is_some_and(|entry| is_set(&entry.value, schema));
            let needed = schema.checks.iter().any(|check| matches!(check, Check::Needed));
            let missing = entry.is_none() && fields.required.contains(name);
            if missing || (needed && !set) {
                let at = match entry {
                    Some(entry) => entry.at,
                    None if needed => at,
                    None => node.at,
                };
                self.within(Segment::Field((*name).into()), |c| {
                    let is_number = matches!(schema.shape, Shape::Integer { .. });
                    c.say(
                        at,
                        match entry {
                            Some(_) if is_number => Fault::new("out-of-range", "expected a value other than 0"),
                            _ => Fault::new("missing-field", "this field is required"),
                        },
                    );
                });
            } else if let Some(entry) = entry {
                self.within(Segment::Field((*name).into()), |c| c.field(entry, schema, set));
            }
            for check in &schema.checks {
                if let Check::Wanted(code, message) = check
                    && !set
                {
                    self.say(at, Fault::warning(code, *message));
                }
            }
        }
    }

    fn field(&mut self, entry: &Entry, schema: &Schema, set: bool) {
        for check in &schema.checks {
            if let Check::Unwanted(severity, code, message) = check
                && set
            {
                let fault = Fault::new(code, *message);
                let severity = *severity;
                self.say(entry.at, Fault { severity, ..fault });
            }
        }
        // An empty text means that the field is not set. Bounds and patterns apply to it nevertheless.
        match entry.value.raw_text().is_some_and(|text| text.is_empty()) {
            true => self.shape(&entry.value, entry.at, schema),
            false => self.value(&entry.value, entry.at, schema),
        }
    }

    fn check(&mut self, check: &Check, node: &Node, at: Position, schema: &Schema) {
        match check {
            Check::Needed | Check::Wanted(..) | Check::Unwanted(..) => {}
            Check::Is(form) => self.form(*form, node, at),
            Check::Keys(form) => {
                for entry in node.entries() {
                    if let Err(fault) = form(&entry.key) {
                        self.within(Segment::Key(entry.key.clone()), |c| c.say(entry.at, fault));
                    }
                }
            }
            Check::From(min) => self.number(node, at, Some(*min), None),
            Check::To(max) => self.number(node, at, None, Some(*max)),
            Check::Among(texts) => {
                let found = node.raw_text().filter(|text| !texts.contains(&&***text));
                if found.is_some() {
                    let message = format!("{} is not one of {}", node.describe(), texts.join(", "));
                    self.say(at, Fault::new("bad-value", message));
                }
            }
            Check::Unique(key) => self.differ(node, key),
            Check::Exclusive(names) => {
                let mut set = names.iter().filter_map(|name| set_field(node, schema, name));
                if let (Some((first, _)), Some((second, at))) = (set.next(), set.next()) {
                    let message = format!("only one of {first} and {second} may be set");
                    self.within(Segment::Field(second.into()), |c| {
                        c.say(at, Fault::new("exclusive-fields", message));
                    });
                }
            }
            Check::Any(names) => {
                if !names.iter().any(|name| set_field(node, schema, name).is_some()) {
                    let message = match names {
                        [start @ .., last] if !start.is_empty() => {
                            format!("one of {} and {last} is required", start.join(", "))
                        }
                        names => format!("{} is required", names.concat()),
                    };
                    self.say(at, Fault::new("missing-field", message));
                }
            }
        }
    }

    /// Checks the format of a text, or of all texts in a list or map.
    fn form(&mut self, form: Form, node: &Node, at: Position) {
        for (index, item) in node.items().iter().enumerate() {
            self.within(Segment::Index(index), |c| c.form(form, item, item.at));
        }
        for entry in node.entries() {
            self.within(Segment::Key(entry.key.clone()), |c| c.form(form, &entry.value, entry.at));
        }
        let text = node.raw_text().filter(|_| !node.is_null());
        if let Some(Err(fault)) = text.map(|text| form(text)) {
            self.say(at, fault);
        }
    }

    /// Reports items of a list that have the same value at a path as an earlier item. Values that are not set differ.
    fn differ(&mut self, list: &Node, key: &'static str) {
        let mut seen = HashSet::new();
        for (index, item) in list.items().iter().enumerate() {
            let mut found = Some(item);
            for step in key.split('.') {
                found = found.and_then(|node| node.field(step));
            }
            let value = found.filter(|value| value.raw_text().is_some_and(|text| !text.is_empty()));
            if let Some(value) = value.filter(|value| !seen.insert(value.to_json().to_string())) {
                let path = key.split('.').fold(self.path.index(index), |path, step| path.field(step));
                let message = format!("duplicate {} {}", key.replace('.', " "), value.to_json());
                let outer = std::mem::replace(&mut self.path, path);
                self.say(value.at, Fault::new("duplicate", message));
                self.path = outer;
            }
        }
    }

    fn text(&mut self, node: &Node, pattern: Option<&'static str>, values: &[&'static str], bounds: Bounds) {
        let Some(text) = node.text() else {
            return;
        };
        if !values.is_empty() && !values.contains(&&**text) {
            let message = format!("expected one of {}, found {}", values.join(", "), quote(text));
            return self.say(node.at, Fault::new("bad-value", message));
        }
        let fits = self.count(node, text.chars().count(), bounds, "characters");
        if let Some(pattern) = pattern.filter(|_| fits)
            && !matches(pattern, text)
        {
            let message = format!("{} does not match {pattern}", quote(text));
            let hint = meaning(pattern).map(str::to_owned);
            let fault = Fault::new("bad-value", message);
            self.say(node.at, Fault { hint, ..fault });
        }
    }

    fn number(&mut self, node: &Node, at: Position, min: Option<f64>, max: Option<f64>) {
        let value = match node.scalar() {
            Some(Scalar::Int(value)) => value as f64,
            Some(Scalar::Float(value)) => value,
            _ => return,
        };
        self.range(at, value, (min, max), "", ["more", "less"]);
    }

    /// Whether the count is within the bounds. Reports a problem if not.
    fn count(&mut self, node: &Node, count: usize, bounds: Bounds, what: &str) -> bool {
        let bound = |bound: Option<u64>| bound.map(|bound| bound as f64);
        let bounds = (bound(bounds.min), bound(bounds.max));
        self.range(node.at, count as f64, bounds, &format!(" {what}"), ["more", "fewer"])
    }

    fn range(
        &mut self,
        at: Position,
        value: f64,
        (min, max): (Option<f64>, Option<f64>),
        unit: &str,
        [more, less]: [&str; 2],
    ) -> bool {
        let low = min.filter(|min| value < *min).map(|min| (min, more));
        let high = max.filter(|max| value > *max).map(|max| (max, less));
        for (bound, or) in low.into_iter().chain(high) {
            let message = format!("expected {bound}{unit} or {or}, found {value}");
            self.say(at, Fault::new("out-of-range", message));
        }
        low.is_none() && high.is_none()
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
                let message = match kind {
                    ListKind::Map { keys, .. } => format!("an item before it has the same {}", keys.join(" and ")),
                    _ => "an item before it is the same".to_owned(),
                };
                self.within(Segment::Index(index), |c| c.say(item.at, Fault::new("duplicate", message)));
            }
        }
    }

    fn within(&mut self, segment: Segment, run: impl FnOnce(&mut Walk)) {
        self.path.push(segment);
        run(self);
        self.path.pop();
    }

    fn say(&mut self, at: Position, fault: Fault) {
        self.problems.push(Problem {
            path: self.path.clone(),
            at,
            severity: fault.severity,
            code: fault.code,
            message: fault.message,
            hint: fault.hint,
        });
    }
}

/// Whether a field is set: neither empty nor zero.
fn is_set(node: &Node, schema: &Schema) -> bool {
    match &schema.shape {
        Shape::List(..) => !node.items().is_empty(),
        Shape::Map(..) => !node.entries().is_empty(),
        Shape::Text { .. } => node.raw_text().is_none_or(|text| !text.is_empty()),
        Shape::Integer { .. } | Shape::Number { .. } if !schema.nullable => {
            node.raw_text().is_none_or(|text| text.parse() != Ok(0.0))
        }
        Shape::Boolean if !schema.nullable => node.raw_text().is_none_or(|text| &**text != "false"),
        _ => true,
    }
}

/// The name and position of a field of a message, if it is set.
fn set_field<'s>(node: &Node, schema: &'s Schema, name: &'s str) -> Option<(&'s str, Position)> {
    let entry = node.entries().iter().find(|e| is_json_name(&e.key, name) && !e.value.is_null())?;
    is_set(&entry.value, schema.field(name)?).then_some((name, entry.at))
}

/// The value of a key field, or its default.
fn key_of(item: &Node, schema: &Schema, key: &str) -> String {
    let written = item.field(key).map(Node::to_json);
    let value = written.or_else(|| schema.field(key).and_then(|field| field.default.clone()));
    format!("{}\n", value.unwrap_or_default())
}
