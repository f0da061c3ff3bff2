//! Decoding of YAML trees into typed values, according to proto3's JSON mapping and Istio's extensions of it.
//!
//! Decoding continues after an error, so that all problems of an object are reported at once.

mod duration;
mod fields;
#[macro_use]
mod macros;
mod report;
mod values;

pub(crate) use duration::format_duration;
pub use duration::parse_duration;
pub use fields::nearest;
pub(crate) use fields::{Fields, is_json_name, json_name};
pub(crate) use report::{Finding, Relations, Report};
pub(crate) use values::Bytes;

use std::sync::Arc;

use crate::problem::{FieldPath, Segment, Severity};
use crate::schema::{self, Schema};
use crate::yaml::{Node, Position};

/// Handling of unknown fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unknown {
    /// Ignore them: the type declares only a part of the kind's fields.
    Ignore,
    /// Report a warning.
    Warn,
    /// Report an error.
    Refuse,
}

/// A problem found while decoding.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) path: FieldPath,
    pub(crate) at: Position,
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// State of decoding: the current path and the problems found.
pub(crate) struct Decoder {
    pub(crate) unknown: Unknown,
    path: FieldPath,
    problems: Vec<Problem>,
    max_problems: usize,
    report: Report,
}

impl Decoder {
    /// Creates a decoder that keeps at most this many problems.
    pub(crate) fn new(unknown: Unknown, max_problems: usize) -> Decoder {
        Decoder { unknown, path: FieldPath::root(), problems: Vec::new(), max_problems, report: Report::default() }
    }

    /// Returns the problems in document order.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Returns the problems in document order, and the violated relations.
    pub(crate) fn finish(self) -> (Vec<Problem>, Report) {
        (self.problems, self.report)
    }

    /// Checks the relations between the fields of the current message.
    pub(crate) fn relate(&mut self, message: &dyn Relations) {
        message.check(&mut self.report, &self.path);
    }

    /// Runs a function with the path extended by one segment.
    pub(crate) fn within<T>(&mut self, segment: Segment, run: impl FnOnce(&mut Decoder) -> T) -> T {
        self.path.push(segment);
        let out = run(self);
        self.path.pop();
        out
    }

    /// Reports that a value does not have the type of its field.
    pub(crate) fn mismatch(&mut self, node: &Node, expected: &str) {
        self.error(node.at, "bad-value", format!("expected {expected}, found {}", node.describe()), None);
    }

    /// Reports an error at the current path.
    pub(crate) fn error(&mut self, at: Position, code: &'static str, message: String, hint: Option<String>) {
        self.report(at, Severity::Error, code, message, hint);
    }

    /// Reports a problem at the current path. Warnings are dropped in favor of errors if there are too many problems.
    pub(crate) fn report(
        &mut self,
        at: Position,
        severity: Severity,
        code: &'static str,
        message: String,
        hint: Option<String>,
    ) {
        if self.problems.len() >= self.max_problems {
            let spare = self.problems.iter().rposition(|p| p.severity < severity);
            match spare {
                Some(spare) => drop(self.problems.remove(spare)),
                None => return,
            }
        }
        self.problems.push(Problem { path: self.path.clone(), at, severity, code, message, hint });
    }
}

/// A type that is decoded from a JSON value.
pub(crate) trait Decode: Sized {
    /// Decodes a value. Returns `None` if a problem was reported.
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Self>;

    /// Encodes the value as JSON.
    fn encode(&self) -> serde_json::Value;

    /// Schema of the values in JSON.
    fn schema() -> Arc<Schema>;

    /// Value of a null in a map, as in `labels: {app: }`, which Kubernetes reads as an empty string.
    fn from_null() -> Option<Self> {
        None
    }
}

/// A part of a message: usually one field, but all fields of a `oneof` form one part.
pub(crate) trait Field: Sized {
    /// Decodes the part. Returns `None` if it is absent, null or invalid.
    fn take(fields: &mut Fields<'_>, name: &'static str, cx: &mut Decoder) -> Option<Self>;

    /// Encodes the part unless it has the value of an absent field.
    fn put(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>);

    /// Encodes the part even if it has the value of an absent field. `None` is still omitted.
    fn put_always(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>) {
        self.put(name, out);
    }

    /// Adds the part to the schema of the message, with its description and constraints.
    fn describe(name: &'static str, doc: &[&str], facts: fn(&mut Schema) -> bool, fields: &mut schema::Fields);
}

impl<T: Decode + Default + PartialEq> Field for T {
    fn take(fields: &mut Fields<'_>, name: &'static str, cx: &mut Decoder) -> Option<T> {
        fields.decode(name, cx)
    }

    fn put(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>) {
        if *self != T::default() {
            self.put_always(name, out);
        }
    }

    fn put_always(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>) {
        let value = self.encode();
        if !value.is_null() {
            out.insert(json_name(name).into_owned(), value);
        }
    }

    fn describe(name: &'static str, doc: &[&str], facts: fn(&mut Schema) -> bool, fields: &mut schema::Fields) {
        schema::facts::field(name, T::schema(), doc, facts, fields);
    }
}
