//! Reads messages from JSON and, unlike a deserializer, reports all problems with their paths.

use std::borrow::Cow;

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};
use serde_json::{Map, Value as Json};

use super::{Fault, Problem, Step, Trail, descriptor, is_any, is_special, pack, type_name};

/// Reads a message of this type from JSON, with field names as in JSON or in the `.proto` file. Returns the problems;
/// invalid parts are left out of the message.
pub fn read_json(descriptor: &MessageDescriptor, value: &Json) -> (DynamicMessage, Vec<Problem>) {
    let mut trail = Trail::default();
    let message = message(&mut trail, descriptor, value);
    (message, trail.problems)
}

fn message(trail: &mut Trail, descriptor: &MessageDescriptor, value: &Json) -> DynamicMessage {
    let empty = || DynamicMessage::new(descriptor.clone());
    if trail.is_too_deep() {
        return empty();
    }
    if is_special(descriptor) {
        let value = duration(descriptor, value);
        return DynamicMessage::deserialize(descriptor.clone(), &*value).unwrap_or_else(|error| {
            trail.wrong(without_place(&error));
            empty()
        });
    }
    let Json::Object(fields) = value else {
        trail.wrong(format!("must be an object, not {}", form(value)));
        return empty();
    };
    if is_any(descriptor) {
        return packed(trail, descriptor, fields);
    }
    let mut message = empty();
    for (name, value) in fields {
        trail.at(Step::Field(name.clone()), |trail| {
            let field = descriptor.get_field_by_json_name(name).or_else(|| descriptor.get_field_by_name(name));
            match field {
                Some(field) => set(trail, &mut message, &field, value),
                None => trail.add(Fault::Unknown, format!("{} has no such field", descriptor.full_name())),
            }
        });
    }
    message
}

/// A duration such as `500ms` or `1m30s`, which Istio reads like Go, in protobuf's form. Other values are unchanged.
fn duration<'v>(descriptor: &MessageDescriptor, value: &'v Json) -> Cow<'v, Json> {
    let parsed = match (descriptor.full_name(), value) {
        ("google.protobuf.Duration", Json::String(text)) => crate::parse_duration(text),
        _ => None,
    };
    match parsed {
        Some(parsed) => Cow::Owned(Json::String(format!("{}.{:09}s", parsed.as_secs(), parsed.subsec_nanos()))),
        None => Cow::Borrowed(value),
    }
}

/// `{"@type": …, …}`.
fn packed(trail: &mut Trail, any: &MessageDescriptor, fields: &Map<String, Json>) -> DynamicMessage {
    let mut result = DynamicMessage::new(any.clone());
    let Some(url) = fields.get("@type") else {
        if !fields.is_empty() {
            trail.wrong("a packed message needs \"@type\", the name of its message");
        }
        return result;
    };
    let name = url.as_str().map(type_name).unwrap_or_default();
    let Some(inner) = descriptor(name) else {
        let hint = match name.contains(".v2.") || name.contains(".v2alpha") {
            true => " (messages of v2 are gone: write that of v3)",
            false => "",
        };
        trail.at(Step::Field("@type".to_owned()), |trail| {
            trail.wrong(format!("no message {name:?} is known{hint}"));
        });
        return result;
    };
    let mut rest = fields.clone();
    rest.remove("@type");
    let content = match is_special(&inner) || is_any(&inner) {
        true => rest.remove("value").unwrap_or(Json::Null),
        false => Json::Object(rest),
    };
    let content = message(trail, &inner, &content);
    // The message was encoded just before, so this cannot fail.
    if result.transcode_from(&pack(&content)).is_err() {
        trail.wrong("cannot be packed");
    }
    result
}

fn set(trail: &mut Trail, message: &mut DynamicMessage, field: &FieldDescriptor, value: &Json) {
    let null_means_something = matches!(field.kind(), Kind::Message(m) if m.full_name() == "google.protobuf.Value")
        || matches!(field.kind(), Kind::Enum(e) if e.full_name() == "google.protobuf.NullValue");
    if value.is_null() && !null_means_something {
        return;
    }
    if message.has_field(field) {
        return trail.wrong("the field is there twice, under both of its names");
    }
    let others = field.containing_oneof();
    let rival = others.and_then(|one| one.fields().find(|other| message.has_field(other)));
    if let Some(rival) = rival {
        return trail.wrong(format!("excludes {}", rival.name()));
    }
    let read = match (field.is_map(), field.is_list()) {
        (true, _) => map(trail, field, value),
        (_, true) => list(trail, field, value),
        _ => one(trail, field, value),
    };
    if let Some(read) = read {
        message.set_field(field, read);
    }
}

fn one(trail: &mut Trail, field: &FieldDescriptor, value: &Json) -> Option<Value> {
    match field.kind() {
        Kind::Message(inner) => Some(Value::Message(message(trail, &inner, value))),
        _ => scalar(trail, field, value),
    }
}

fn list(trail: &mut Trail, field: &FieldDescriptor, value: &Json) -> Option<Value> {
    let Json::Array(items) = value else {
        trail.wrong(format!("must be a list, not {}", form(value)));
        return None;
    };
    let items = items.iter().enumerate();
    let items = items.filter_map(|(index, item)| trail.at(Step::Index(index), |trail| one(trail, field, item)));
    Some(Value::List(items.collect()))
}

fn map(trail: &mut Trail, field: &FieldDescriptor, value: &Json) -> Option<Value> {
    let Kind::Message(entry) = field.kind() else {
        return None;
    };
    let Json::Object(items) = value else {
        trail.wrong(format!("must be an object, not {}", form(value)));
        return None;
    };
    let (keys, values) = (entry.map_entry_key_field(), entry.map_entry_value_field());
    let items = items.iter().filter_map(|(key, value)| {
        trail.at(Step::Key(key.clone()), |trail| {
            let key = match keys.kind() {
                Kind::Bool => Json::Bool(key == "true"),
                _ => Json::String(key.clone()),
            };
            let key = scalar(trail, &keys, &key)?.into_map_key()?;
            Some((key, one(trail, &values, value)?))
        })
    });
    Some(Value::Map(items.collect()))
}

/// A number, string, boolean, enum or bytes value: read as the only field, or entry, of a message.
fn scalar(trail: &mut Trail, field: &FieldDescriptor, value: &Json) -> Option<Value> {
    let lone = match field.is_list() {
        true => Json::Array(vec![value.clone()]),
        false => value.clone(),
    };
    let mut object = Map::new();
    object.insert(field.json_name().to_owned(), lone);
    match DynamicMessage::deserialize(field.parent_message().clone(), Json::Object(object)) {
        Ok(read) => match read.get_field(field).into_owned() {
            Value::List(mut items) if field.is_list() => items.pop(),
            value => Some(value),
        },
        Err(error) => {
            trail.wrong(without_place(&error));
            None
        }
    }
}

/// The text of an error without line and column, which do not refer to a file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

fn form(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}
