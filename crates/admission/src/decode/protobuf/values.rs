//! Conversion of field values by type.

use config::Timestamp;
use config::schema::wire::Form;
use protos::wire::{Reader, Value};
use serde_json::Value as Json;

use super::wrong::Wrong;

/// Whether a value is a zero value that may be absent.
pub(super) fn is_zero(value: &Json) -> bool {
    match value {
        Json::Bool(value) => !value,
        Json::Number(number) => number.as_i64() == Some(0),
        Json::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The value of an absent map value.
pub(super) fn zero(form: &Form) -> Value<'static> {
    match form {
        Form::Int32 | Form::Int64 | Form::Boolean => Value::Varint(0),
        _ => Value::Bytes(b""),
    }
}

pub(super) fn varint(wire: Value<'_>) -> Result<u64, Wrong> {
    match wire {
        Value::Varint(value) => Ok(value),
        _ => Err(Wrong::new("has an invalid wire type")),
    }
}

pub(super) fn bytes_of(wire: Value<'_>) -> Result<&[u8], Wrong> {
    match wire {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Wrong::new("has an invalid wire type")),
    }
}

pub(super) fn text(wire: Value<'_>) -> Result<String, Wrong> {
    let text = std::str::from_utf8(bytes_of(wire)?).map_err(|_| Wrong::new("is not UTF-8"))?;
    Ok(text.to_owned())
}

/// An empty message is no timestamp.
pub(super) fn time(bytes: &[u8], micro: bool) -> Result<Json, Wrong> {
    if bytes.is_empty() {
        return Ok(Json::Null);
    }
    let mut reader = Reader::new(bytes);
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => seconds = varint(wire)? as i64,
            2 => nanos = varint(wire)? as u32 as i32,
            _ => {}
        }
    }
    // The years 1 to 9999.
    if !(-62_135_596_800..=253_402_300_799).contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return Err(Wrong::new("is not a valid timestamp"));
    }
    let whole = Timestamp::from_unix(seconds).to_string();
    Ok(match micro {
        true => format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000).into(),
        false => whole.into(),
    })
}

pub(super) fn quantity(bytes: &[u8]) -> Result<Json, Wrong> {
    let mut reader = Reader::new(bytes);
    let mut value = String::new();
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            value = text(wire)?;
        }
    }
    Ok(match value.is_empty() {
        true => "0".into(),
        false => value.into(),
    })
}

pub(super) fn int_or_text(bytes: &[u8]) -> Result<Json, Wrong> {
    let mut reader = Reader::new(bytes);
    let (mut sort, mut number_said, mut text_said) = (0, 0_i32, String::new());
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => sort = varint(wire)?,
            2 => number_said = varint(wire)? as u32 as i32,
            3 => text_said = text(wire)?,
            _ => {}
        }
    }
    match sort {
        0 => Ok(number_said.into()),
        1 => Ok(text_said.into()),
        other => Err(Wrong::new(format!("is neither a number nor a string, but has type {other}"))),
    }
}
