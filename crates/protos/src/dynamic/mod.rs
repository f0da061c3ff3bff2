//! Messages that are known at run time only: read from JSON with a reason for all that is wrong, checked against the rules
//! that Envoy's own descriptions state, and written as bytes that are the same each time.

mod check;
mod read;
mod rules;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;

pub use check::{Completeness, Extra, check};
pub use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};
pub use read::read_json;
pub use write::encode_dynamic;

use crate::{Any, descriptor_pool};

/// How deep messages may be packed into or nested in each other: deeper ones are refused.
const DEPTH: usize = 64;
/// How many problems are collected for a message.
const MOST: usize = 100;

/// The description of a message by its full name.
pub fn descriptor(name: &str) -> Option<MessageDescriptor> {
    descriptor_pool().get_message_by_name(name)
}

/// The message that is packed in a `google.protobuf.Any`; `None` if it is not such a message, or its type is not known.
///
/// # Errors
/// The bytes are not what the type says.
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

/// The full name in a type URL.
pub fn type_name(url: &str) -> &str {
    url.rsplit_once('/').map_or(url, |(_, name)| name)
}

/// One step of the way to a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A field, by the name that it has in the text, or else in the description.
    Field(String),
    /// An entry of a list.
    Index(usize),
    /// An entry of a map.
    Key(String),
}

/// Something that is wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where.
    pub path: Vec<Step>,
    /// How bad it is.
    pub fault: Fault,
    /// What is wrong.
    pub reason: String,
}

/// How bad a problem is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The message cannot be used.
    Wrong,
    /// A field is not known and left out.
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

/// The way to where one is, and what was found on it.
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
            self.problems.push(Problem {
                path: self.path.clone(),
                fault,
                reason,
            });
        }
    }

    /// Runs `f` one step further.
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

/// Whether a message has a form of its own in JSON, or is any value.
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

/// Whether a message only says that its value is there (`google.protobuf.UInt32Value` and its kin).
fn is_wrapper(descriptor: &MessageDescriptor) -> bool {
    descriptor.package_name() == "google.protobuf"
        && descriptor.name() != "Value"
        && descriptor.name() != "ListValue"
        && descriptor.name().ends_with("Value")
}

fn is_any(descriptor: &MessageDescriptor) -> bool {
    descriptor.full_name() == "google.protobuf.Any"
}
