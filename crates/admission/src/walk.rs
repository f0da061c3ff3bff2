//! Types, bounds, patterns, keys: what a schema says without rules.

use std::collections::HashSet;
use std::fmt::Display;

use config::Timestamp;
use config::rules::Path;
use config::schema::{Bounds, Fields, ListKind, Schema, Shape, matches};
use serde_json::{Map, Value as Json};

use crate::cause::{Causes, Reason};

/// A validation.
pub(crate) struct Walk<'a> {
    pub(crate) causes: &'a mut Causes,
}

impl Walk<'_> {
    /// Checks a value and all in it.
    pub(crate) fn check(&mut self, value: &Json, schema: &Schema, path: &Path<'_>) {
        if self.causes.is_full() || (value.is_null() && schema.nullable) {
            return;
        }
        match (&schema.shape, value) {
            (Shape::Object(fields), Json::Object(object)) => self.object(object, fields, path),
            (Shape::Map(values, bounds), Json::Object(object)) => {
                for (key, value) in object {
                    self.check(value, values, &path.field(key));
                }
                self.count(object.len(), *bounds, path, "properties");
            }
            (Shape::List(items, kind, bounds), Json::Array(list)) => {
                for (index, item) in list.iter().enumerate() {
                    self.check(item, items, &path.index(index));
                }
                self.count(list.len(), *bounds, path, "items");
                self.unique(list, items, kind, path);
            }
            (Shape::Text { .. }, Json::String(text)) => self.text(text, value, schema, path),
            (Shape::Integer { format, min, max }, Json::Number(number)) if !number.is_f64() => {
                self.integer(value, format, *min, *max, path);
            }
            (Shape::Number { min, max }, Json::Number(number)) => {
                self.range(value, number.as_f64().unwrap_or(f64::NAN), *min, *max, path);
            }
            (Shape::IntOrText, Json::Number(number)) if !number.is_f64() => {}
            (Shape::Boolean, Json::Bool(_)) | (Shape::IntOrText, Json::String(_)) | (Shape::Any, _) => {}
            (shape, _) => self.causes.wrong_type(path, value, wanted(shape), None),
        }
    }

    fn object(&mut self, object: &Map<String, Json>, fields: &Fields, path: &Path<'_>) {
        for name in &fields.required {
            if !object.contains_key(*name) {
                self.causes.required(&path.field(name), "");
            }
        }
        for group in &fields.exclusive {
            let set: Vec<&str> = group.iter().filter(|name| object.contains_key(**name)).copied().collect();
            if set.len() > 1 {
                let text = format!("Invalid value: only one of {} may be set", group.join(", "));
                self.causes.add(path, Reason::Invalid, format!("{text}, found {}", set.join(", ")));
            }
        }
        for (name, value) in object {
            if let Some(schema) = fields.get(name) {
                self.check(value, schema, &path.field(name));
            }
        }
    }

    fn count(&mut self, count: usize, bounds: Bounds, path: &Path<'_>, what: &str) {
        let length = u64::try_from(count).unwrap_or(u64::MAX);
        if let Some(min) = bounds.min.filter(|min| length < *min) {
            let detail = format!("{path} in body should have at least {min} {what}");
            self.causes.invalid(path, &Json::from(count), &detail);
        }
        if let Some(max) = bounds.max.filter(|max| length > *max) {
            self.causes.too_many(path, count, max);
        }
    }

    fn text(&mut self, text: &str, value: &Json, schema: &Schema, path: &Path<'_>) {
        let Shape::Text { format, pattern, values, bounds } = &schema.shape else {
            return;
        };
        if !values.is_empty() && !values.contains(&text) {
            self.causes.not_supported(path, value, values);
        }
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(min) = bounds.min.filter(|min| length < *min) {
            // If both length and pattern are wrong, the first problem is reported.
            let detail = format!("{path} in body should be at least {min} chars long");
            self.causes.invalid(path, value, &detail);
        } else if let Some(max) = bounds.max.filter(|max| length > *max) {
            self.causes.too_long(path, max);
        } else if let Some(pattern) = pattern.filter(|pattern| !matches(pattern, text)) {
            self.causes.invalid(path, value, &format!("{path} in body should match '{pattern}'"));
        }
        let fits = match *format {
            Some("date-time") => Timestamp::parse(text).is_some(),
            Some("byte") => is_base64(text),
            _ => true,
        };
        if !fits {
            self.causes.wrong_type(path, value, format.unwrap_or_default(), Some(value));
        }
    }

    fn integer(&mut self, value: &Json, format: &str, min: Option<i64>, max: Option<i64>, path: &Path<'_>) {
        // Beyond what 64 bits hold: no bound allows it.
        let Some(number) = value.as_i64() else {
            return self.causes.invalid(
                path,
                value,
                &format!("{path} in body must be of type integer with format {format}"),
            );
        };
        if format == "int32" && i32::try_from(number).is_err() {
            self.causes.invalid(path, value, &format!("{path} in body must be of type integer with format int32"));
        }
        self.range(value, number, min, max, path);
    }

    fn range<N>(&mut self, value: &Json, number: N, min: Option<N>, max: Option<N>, path: &Path<'_>)
    where
        N: PartialOrd + Display,
    {
        if let Some(min) = min.filter(|min| number < *min) {
            self.causes.invalid(path, value, &format!("{path} in body should be greater than or equal to {min}"));
        }
        if let Some(max) = max.filter(|max| number > *max) {
            self.causes.invalid(path, value, &format!("{path} in body should be less than or equal to {max}"));
        }
    }

    fn unique(&mut self, list: &[Json], items: &Schema, kind: &ListKind, path: &Path<'_>) {
        let mut seen = HashSet::with_capacity(list.len());
        match kind {
            ListKind::Atomic => {}
            ListKind::Set => {
                for (index, item) in list.iter().enumerate() {
                    if !seen.insert(item.to_string()) {
                        self.causes.duplicate(&path.index(index), item);
                    }
                }
            }
            ListKind::Map { keys, .. } => {
                for (index, item) in list.iter().enumerate() {
                    let Some(identity) = items.identity(item, keys) else {
                        continue;
                    };
                    if !seen.insert(identity.to_string()) {
                        self.causes.duplicate(&path.index(index), &identity);
                    }
                }
            }
        }
    }
}

fn wanted(shape: &Shape) -> &'static str {
    match shape {
        Shape::Object(_) | Shape::Map(..) => "object",
        Shape::List(..) => "array",
        Shape::Text { .. } => "string",
        Shape::Integer { .. } => "integer",
        Shape::Number { .. } => "number",
        Shape::Boolean => "boolean",
        Shape::IntOrText => "integer,string",
        Shape::Any => "any",
    }
}

/// Whether a text is base64 with its padding; line breaks are allowed, as in Go.
fn is_base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|byte| !b"\r\n".contains(byte)).collect();
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    let inner = &bytes[..bytes.len() - padding];
    padding <= 2
        && bytes.len().is_multiple_of(4)
        && inner.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte))
}
