//! Kubernetes protobuf: an envelope with the type, and a message decoded by the kind's table.
//!
//! The result equals the JSON that the same client would send. Go clients write zero values of fields that cannot be
//! absent; these are dropped, as in JSON.

mod values;
mod wrong;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::schema::wire::{Entry, Field, Form, Message, message};
use protos::wire::{Reader, Value};
use serde_json::{Map, Value as Json};

use crate::decode::{DecodeError, Decoded, Limits, json};

use values::{bytes_of, int_or_text, is_zero, quantity, text, time, varint, zero};
use wrong::Wrong;

/// The magic number of every body.
const MAGIC: &[u8] = b"k8s\0";
/// The content type of the inner message.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Decodes a body.
pub(super) fn read(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let Some(rest) = body.strip_prefix(MAGIC) else {
        let text = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(DecodeError::Malformed(text.into()));
    };
    let envelope = Envelope::read(rest).map_err(|wrong| wrong.error())?;
    let Envelope { api_version, kind, .. } = &envelope;
    if kind.is_empty() || api_version.is_empty() {
        let text = "the protobuf envelope does not name apiVersion and kind of the object in it";
        return Err(DecodeError::Malformed(text.into()));
    }
    let table = message(api_version, kind).ok_or_else(|| {
        let text = format!("no kind {kind:?} is registered for version {api_version:?} in protobuf: send it as JSON");
        DecodeError::Malformed(text)
    })?;
    let mut object = Map::new();
    object.insert("apiVersion".into(), api_version.as_str().into());
    object.insert("kind".into(), kind.as_str().into());
    let mut state = State { limits: *limits, left: limits.nodes };
    state.message(envelope.raw, &table, &mut object, 1).map_err(|wrong| wrong.error())?;
    Ok(Json::Object(object).into())
}

/// `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Envelope<'a>, Wrong> {
        let mut envelope = Envelope::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => {
                    let mut meta = Reader::new(bytes_of(wire)?);
                    while let Some((number, wire)) = meta.field()? {
                        match number {
                            1 => envelope.api_version = text(wire)?,
                            2 => envelope.kind = text(wire)?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = bytes_of(wire)?,
                3 if !bytes_of(wire)?.is_empty() => {
                    return Err(Wrong::new("content encodings are not supported"));
                }
                4 if !matches!(text(wire)?.as_str(), "" | PROTOBUF) => {
                    return Err(Wrong::new("the envelope holds another content type than protobuf"));
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

struct State {
    limits: Limits,
    /// The remaining number of values.
    left: usize,
}

impl State {
    fn count(&mut self) -> Result<(), Wrong> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| Wrong::too_large("the body has too many values"))?;
        Ok(())
    }

    /// Decodes the fields of a message into an object.
    fn message(
        &mut self,
        bytes: &[u8],
        table: &Message,
        object: &mut Map<String, Json>,
        depth: usize,
    ) -> Result<(), Wrong> {
        if depth > self.limits.depth {
            return Err(Wrong::too_large("the body is nested too deeply"));
        }
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.field()? {
            match table.get(number) {
                None => {}
                Some(Entry::Inline(inner)) => self.message(bytes_of(wire)?, inner, object, depth + 1)?,
                Some(Entry::Field(field)) => {
                    self.field(wire, field, object, depth).map_err(|wrong| wrong.at(field.name))?;
                }
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        wire: Value<'_>,
        field: &Field,
        object: &mut Map<String, Json>,
        depth: usize,
    ) -> Result<(), Wrong> {
        let name = field.name;
        match &field.form {
            Form::List(form) => {
                let items = object.entry(name).or_insert_with(|| Json::Array(Vec::new()));
                let Some(items) = items.as_array_mut() else {
                    return Err(Wrong::new("is not a list"));
                };
                self.items(wire, form, items, depth)
            }
            Form::Map(form) => {
                let entries = object.entry(name).or_insert_with(|| Json::Object(Map::new()));
                let Some(entries) = entries.as_object_mut() else {
                    return Err(Wrong::new("is not a map"));
                };
                let (key, value) = self.entry(wire, form, depth)?;
                entries.insert(key, value);
                Ok(())
            }
            // A message may be split into several fields, which are merged.
            Form::Message(inner) => {
                self.count()?;
                let inside = object.entry(name).or_insert_with(|| Json::Object(Map::new()));
                let Some(inside) = inside.as_object_mut() else {
                    return Err(Wrong::new("is not an object"));
                };
                self.message(bytes_of(wire)?, inner, inside, depth + 1)
            }
            form => {
                match self.value(wire, form, depth)? {
                    Json::Null if !field.nullable => object.remove(name),
                    value if is_zero(&value) && !field.keeps_zero => object.remove(name),
                    value => object.insert(name.into(), value),
                };
                Ok(())
            }
        }
    }

    /// A list item; for numbers possibly several packed ones.
    fn items(&mut self, wire: Value<'_>, form: &Form, items: &mut Vec<Json>, depth: usize) -> Result<(), Wrong> {
        let packed = matches!(form, Form::Int32 | Form::Int64 | Form::Boolean);
        match wire {
            Value::Bytes(bytes) if packed => {
                let mut reader = Reader::new(bytes);
                while !reader.rest().is_empty() {
                    let item = self.value(Value::Varint(reader.varint()?), form, depth)?;
                    items.push(item);
                }
            }
            wire => {
                let item = self.value(wire, form, depth + 1);
                let item = item.map_err(|wrong| wrong.at(format!("[{}]", items.len())))?;
                items.push(item);
            }
        }
        Ok(())
    }

    /// A map entry.
    fn entry(&mut self, wire: Value<'_>, form: &Form, depth: usize) -> Result<(String, Json), Wrong> {
        let mut reader = Reader::new(bytes_of(wire)?);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => key = text(wire)?,
                2 => value = Some(self.value(wire, form, depth + 1).map_err(|wrong| wrong.at(key.clone()))?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            // A missing key or value means zero.
            None => self.value(zero(form), form, depth + 1)?,
        };
        Ok((key, value))
    }

    fn value(&mut self, wire: Value<'_>, form: &Form, depth: usize) -> Result<Json, Wrong> {
        self.count()?;
        match form {
            Form::Text => text(wire).map(Json::from),
            // Truncates to 32 bits, as Kubernetes does.
            Form::Int32 => Ok(Json::from(varint(wire)? as u32 as i32)),
            Form::Int64 => Ok(Json::from(varint(wire)? as i64)),
            Form::Boolean => Ok(Json::from(varint(wire)? != 0)),
            Form::Bytes => Ok(Json::from(STANDARD.encode(bytes_of(wire)?))),
            Form::Time => time(bytes_of(wire)?, false),
            Form::MicroTime => time(bytes_of(wire)?, true),
            Form::Quantity => quantity(bytes_of(wire)?),
            Form::IntOrText => int_or_text(bytes_of(wire)?),
            Form::Json => self.json(bytes_of(wire)?),
            Form::Message(inner) => {
                let mut object = Map::new();
                self.message(bytes_of(wire)?, inner, &mut object, depth)?;
                Ok(Json::Object(object))
            }
            Form::List(_) | Form::Map(_) => Err(Wrong::new("lists of lists are not supported in protobuf")),
        }
    }

    /// A message that contains JSON.
    fn json(&mut self, bytes: &[u8]) -> Result<Json, Wrong> {
        let mut reader = Reader::new(bytes);
        let mut raw: &[u8] = b"";
        while let Some((number, wire)) = reader.field()? {
            if number == 1 {
                raw = bytes_of(wire)?;
            }
        }
        if raw.is_empty() {
            return Ok(Json::Null);
        }
        let limits = Limits { nodes: self.left, ..self.limits };
        match json::read(raw, &limits) {
            Ok(decoded) => {
                self.left = self.left.saturating_sub(nodes(&decoded.object));
                Ok(decoded.object)
            }
            Err(DecodeError::TooLarge(what)) => Err(Wrong::too_large(&what)),
            Err(error) => Err(Wrong::new(error.to_string())),
        }
    }
}

fn nodes(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Json::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}
