//! Deterministic encoding: map entries are sorted by key.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, Value};

use crate::wire::put_varint;

/// Wire types.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

/// Encodes a message. Equal messages have equal bytes, which a plain encoding does not guarantee because maps are
/// unordered.
pub fn encode_dynamic(message: &DynamicMessage) -> Vec<u8> {
    let mut out = Vec::new();
    write(message, &mut out);
    out
}

/// Encodes a field that is set, with its key.
pub fn encode_field(field: &FieldDescriptor, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_field(field, value, &mut out);
    out
}

fn write(message: &DynamicMessage, out: &mut Vec<u8>) {
    for (field, value) in message.fields() {
        write_field(&field, value, out);
    }
    message.unknown_fields().for_each(|field| field.encode(out));
}

fn write_field(field: &FieldDescriptor, value: &Value, out: &mut Vec<u8>) {
    let (number, kind) = (field.number(), field.kind());
    match value {
        Value::Map(entries) => map(field, entries.iter(), out),
        Value::List(items) if field.is_packed() => delimited(number, out, |out| {
            items.iter().for_each(|item| bare(&kind, item, out));
        }),
        Value::List(items) => items.iter().for_each(|item| one(number, &kind, item, out)),
        value => one(number, &kind, value, out),
    }
}

fn map<'a>(field: &FieldDescriptor, entries: impl Iterator<Item = (&'a MapKey, &'a Value)>, out: &mut Vec<u8>) {
    let Kind::Message(entry) = field.kind() else {
        return;
    };
    let (key_field, value_field) = (entry.map_entry_key_field(), entry.map_entry_value_field());
    let mut sorted: Vec<_> = entries.collect();
    sorted.sort_by_key(|(key, _)| *key);
    for (key, value) in sorted {
        let key = Value::from(key.clone());
        delimited(field.number(), out, |out| {
            for (field, value) in [(&key_field, &key), (&value_field, value)] {
                if matches!(value, Value::Message(_)) || !value.is_default_for_field(field) {
                    one(field.number(), &field.kind(), value, out);
                }
            }
        });
    }
}

/// Writes a value with its key.
fn one(number: u32, kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    let wire_type = match kind {
        Kind::Message(_) | Kind::String | Kind::Bytes => {
            return delimited(number, out, |out| match value {
                Value::Message(inner) => write(inner, out),
                Value::String(text) => out.extend_from_slice(text.as_bytes()),
                Value::Bytes(bytes) => out.extend_from_slice(bytes),
                _ => {}
            });
        }
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => FIXED_64,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => FIXED_32,
        _ => VARINT,
    };
    put_key(number, wire_type, out);
    bare(kind, value, out);
}

/// Writes a number without its key.
fn bare(kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match (value, kind) {
        (Value::Bool(flag), _) => out.push(u8::from(*flag)),
        (Value::I32(n), Kind::Sfixed32) => out.extend_from_slice(&n.to_le_bytes()),
        (Value::I32(n), Kind::Sint32) => put_varint(out, u64::from((n << 1 ^ n >> 31) as u32)),
        // Negative numbers are extended to 64 bits.
        (Value::I32(n) | Value::EnumNumber(n), _) => put_varint(out, i64::from(*n) as u64),
        (Value::I64(n), Kind::Sfixed64) => out.extend_from_slice(&n.to_le_bytes()),
        (Value::I64(n), Kind::Sint64) => put_varint(out, (n << 1 ^ n >> 63) as u64),
        (Value::I64(n), _) => put_varint(out, *n as u64),
        (Value::U32(n), Kind::Fixed32) => out.extend_from_slice(&n.to_le_bytes()),
        (Value::U32(n), _) => put_varint(out, u64::from(*n)),
        (Value::U64(n), Kind::Fixed64) => out.extend_from_slice(&n.to_le_bytes()),
        (Value::U64(n), _) => put_varint(out, *n),
        (Value::F32(n), _) => out.extend_from_slice(&n.to_le_bytes()),
        (Value::F64(n), _) => out.extend_from_slice(&n.to_le_bytes()),
        // A field has a value of its kind.
        _ => {}
    }
}

fn put_key(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    put_varint(out, u64::from(number << 3 | wire_type));
}

/// Writes a length-delimited field. The length is inserted when the body is written, which moves the body once.
fn delimited(number: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    put_key(number, LENGTH_DELIMITED, out);
    let start = out.len();
    body(out);
    let mut length = Vec::with_capacity(5);
    put_varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}
