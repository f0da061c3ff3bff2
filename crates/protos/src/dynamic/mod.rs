//! Messages whose type is known only at run time.
//!
//! ```text
//! JSON ──read_json──► DynamicMessage ──check──► Problems
//! |                          └──encode_dynamic──► bytes
//! ```
//!
//! [`check`] applies the rules in Envoy's `.proto` files. Encoding is deterministic.

mod check;
mod read;
mod rules;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

pub use check::{Completeness, Extra, Limits, check};
pub use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};
pub use read::read_json;
pub use write::{encode_dynamic, encode_field};

use crate::{Any, descriptor_pool};

/// The maximum nesting of messages, packed or not; deeper ones are rejected.
const DEPTH: usize = 64;
/// The maximum number of problems collected for a message.
const MOST: usize = 100;

/// The descriptor of a message by its full name.
pub fn descriptor(name: &str) -> Option<MessageDescriptor> {
    descriptor_pool().get_message_by_name(name)
}

/// Unpacks a `google.protobuf.Any`; `None` if it is another message, or its type is unknown.
///
/// # Errors
/// The bytes are not valid for the type.
pub fn unpack(any: &DynamicMessage) -> Option<Result<DynamicMessage, prost::DecodeError>> {
    let url = any.get_field_by_name("type_url")?;
    let descriptor = descriptor(type_name(url.as_str()?))?;
    let value = any.get_field_by_name("value")?;
    Some(DynamicMessage::decode(descriptor, value.as_bytes()?.clone()))
}

/// Packs a message into a `google.protobuf.Any`.
pub fn pack(message: &DynamicMessage) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{}", message.descriptor().full_name()),
        value: encode_dynamic(message).into(),
    }
}

/// The full message name in a type URL.
pub fn type_name(url: &str) -> &str {
    url.rsplit_once('/').map_or(url, |(_, name)| name)
}

/// One step of a path to a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A field: its name in the input, or else in the `.proto` file.
    Field(String),
    /// An entry of a list.
    Index(usize),
    /// An entry of a map.
    Key(String),
}

/// A problem of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The path.
    pub path: Vec<Step>,
    /// The severity.
    pub fault: Fault,
    /// The reason.
    pub reason: String,
}

/// The severity of a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The message is invalid.
    Wrong,
    /// An unknown field was left out.
    Unknown,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.path.iter().enumerate() {
            match step {
                Step::Field(name) if position == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        if !self.path.is_empty() {
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)
    }
}

/// The current path and the problems so far.
#[derive(Default)]
struct Trail {
    path: Vec<Step>,
    problems: Vec<Problem>,
}

impl Trail {
    fn wrong(&mut self, reason: impl Into<String>) {
        self.add(Fault::Wrong, reason.into());
    }

    fn add(&mut self, fault: Fault, reason: String) {
        if self.problems.len() < MOST {
            self.problems.push(Problem { path: self.path.clone(), fault, reason });
        }
    }

    /// Runs `f` with one more step in the path.
    fn at<T>(&mut self, step: Step, f: impl FnOnce(&mut Trail) -> T) -> T {
        self.path.push(step);
        let result = f(self);
        self.path.pop();
        result
    }

    fn is_too_deep(&mut self) -> bool {
        let deep = self.path.len() > DEPTH;
        if deep {
            self.wrong(format!("the message is nested deeper than {DEPTH} levels"));
        }
        deep
    }
}

/// Whether a message has its own form in JSON, or is an arbitrary value.
fn is_special(descriptor: &MessageDescriptor) -> bool {
    matches!(
        descriptor.full_name(),
        "google.protobuf.Struct"
            | "google.protobuf.Value"
            | "google.protobuf.ListValue"
            | "google.protobuf.Duration"
            | "google.protobuf.Timestamp"
            | "google.protobuf.FieldMask"
    ) || is_wrapper(descriptor)
}

/// Whether a message only wraps a value to make it optional (`google.protobuf.UInt32Value` and similar).
fn is_wrapper(descriptor: &MessageDescriptor) -> bool {
    descriptor.package_name() == "google.protobuf"
        && descriptor.name() != "Value"
        && descriptor.name() != "ListValue"
        && descriptor.name().ends_with("Value")
}

/// Whether a message packs another one (`google.protobuf.Any`).
pub fn is_any(descriptor: &MessageDescriptor) -> bool {
    descriptor.full_name() == "google.protobuf.Any"
}
