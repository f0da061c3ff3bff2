//! From the tree to typed values, as proto3's JSON mapping says and as Istio reads it.
//!
//! Decoding goes on after an error, so that a user sees everything that is wrong with an object at once.

mod duration;
mod fields;
#[macro_use]
mod macros;
mod values;

pub(crate) use duration::format_duration;
pub use duration::parse_duration;
pub(crate) use fields::{Fields, is_json_name, json_name, nearest};
pub(crate) use values::Bytes;

use std::sync::Arc;

use crate::diagnostic::{FieldPath, Segment, Severity};
use crate::schema::{self, Schema};
use crate::yaml::{Node, Position};

/// What to do with a field that the kind does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unknown {
    /// Nothing: the type holds a part of what the kind has.
    Ignore,
    /// A warning.
    Warn,
    /// An error.
    Refuse,
}

/// Something found while decoding.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) path: FieldPath,
    pub(crate) at: Position,
    pub(crate) severity: Severity,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Where decoding stands, and what it has found.
pub(crate) struct Decoder {
    pub(crate) unknown: Unknown,
    path: FieldPath,
    problems: Vec<Problem>,
    max_problems: usize,
}

impl Decoder {
    /// A decoder that keeps at most this many problems.
    pub(crate) fn new(unknown: Unknown, max_problems: usize) -> Decoder {
        Decoder {
            unknown,
            path: FieldPath::root(),
            problems: Vec::new(),
            max_problems,
        }
    }

    /// What was found, in the order of the document's fields.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// Runs with the path one step longer.
    pub(crate) fn within<T>(&mut self, segment: Segment, run: impl FnOnce(&mut Decoder) -> T) -> T {
        self.path.push(segment);
        let out = run(self);
        self.path.pop();
        out
    }

    /// Reports that a value is not what its field takes.
    pub(crate) fn mismatch(&mut self, node: &Node, expected: &str) {
        self.error(
            node.at,
            "bad-value",
            format!("expected {expected}, found {}", node.describe()),
            None,
        );
    }

    /// Reports an error at the current path.
    pub(crate) fn error(&mut self, at: Position, code: &'static str, message: String, hint: Option<String>) {
        self.report(at, Severity::Error, code, message, hint);
    }

    /// Reports at the current path. Errors are never dropped in favour of warnings.
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
        self.problems.push(Problem {
            path: self.path.clone(),
            at,
            severity,
            code,
            message,
            hint,
        });
    }
}

/// A type that a value in JSON decodes to.
pub(crate) trait Decode: Sized {
    /// The value, or nothing where a problem was reported.
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Self>;

    /// The value in JSON.
    fn encode(&self) -> serde_json::Value;

    /// What values of this type are in JSON, as clients are told.
    fn schema() -> Arc<Schema>;

    /// What a null means as the value of a map's entry. Kubernetes reads empty texts so, as in `labels: {app: }`.
    fn of_null() -> Option<Self> {
        None
    }
}

/// A part of a message: mostly one field, but the alternatives of a `oneof` share one part.
pub(crate) trait Field: Sized {
    /// Takes the part out of the message's fields; nothing where it is absent, null or wrong.
    fn take(fields: &mut Fields<'_>, name: &'static str, cx: &mut Decoder) -> Option<Self>;

    /// Puts the part into JSON, unless it is what an absent field means.
    fn put(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>);

    /// Puts the part into JSON, whatever an absent field means; only an option without a value has nothing to put.
    fn put_always(&self, name: &'static str, out: &mut serde_json::Map<String, serde_json::Value>) {
        self.put(name, out);
    }

    /// Adds the part to a message's schema, with its doc comment and the facts that the type does not tell.
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
