//! Deterministic encoding: map entries are sorted by key.

use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, Value};

use crate::wire::put_varint;

/// Encodes a message. Equal messages have equal bytes, which a plain encoding does not guarantee because maps are
/// unordered.
pub fn encode_dynamic(message: &DynamicMessage) -> Vec<u8> {
    let mut out = Vec::new();
    write(message, &mut out);
    out
}

fn write(message: &DynamicMessage, out: &mut Vec<u8>) {
    for (field, value) in message.fields() {
        match value {
            Value::Map(entries) => map(&field, entries.iter(), out),
            Value::Message(inner) => nested(&field, inner, out),
            Value::List(items) if matches!(field.kind(), Kind::Message(_)) => {
                let inner = items.iter().filter_map(Value::as_message);
                inner.for_each(|inner| nested(&field, inner, out));
            }
            _ => {
                let mut lone = DynamicMessage::new(field.parent_message().clone());
                lone.set_field(&field, value.clone());
                out.extend_from_slice(&lone.encode_to_vec());
            }
        }
    }
    message.unknown_fields().for_each(|field| field.encode(out));
}

fn map<'a>(field: &FieldDescriptor, entries: impl Iterator<Item = (&'a MapKey, &'a Value)>, out: &mut Vec<u8>) {
    let Kind::Message(entry) = field.kind() else {
        return;
    };
    let mut sorted: Vec<_> = entries.collect();
    sorted.sort_by_key(|(key, _)| *key);
    for (key, value) in sorted {
        let mut lone = DynamicMessage::new(entry.clone());
        lone.set_field(&entry.map_entry_key_field(), Value::from(key.clone()));
        lone.set_field(&entry.map_entry_value_field(), value.clone());
        nested(field, &lone, out);
    }
}

fn nested(field: &FieldDescriptor, inner: &DynamicMessage, out: &mut Vec<u8>) {
    const LENGTH_DELIMITED: u64 = 2;
    let body = encode_dynamic(inner);
    put_varint(out, u64::from(field.number()) << 3 | LENGTH_DELIMITED);
    put_varint(out, body.len() as u64);
    out.extend_from_slice(&body);
}
