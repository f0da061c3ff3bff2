//! Values that are merged into many messages, prepared once.
//!
//! ```text
//! value ── Overlay::of ──► Overlay
//! message, encoded ──────────┴── Overlay::onto ──► merged message, encoded
//! ```
//!
//! An [`Overlay`] has the fields of a value as they are encoded, and the violations of Envoy's validation rules that they
//! would cause. Merging copies bytes: neither the message nor the value is decoded, and only messages that both have are
//! opened. The result is the encoded result of [`merge`](crate::merge::merge). If the message was valid before, the result
//! is refused exactly if that one is invalid.

use std::collections::BTreeMap;

use bytes::Bytes;
use protos::dynamic::{
    Completeness, DynamicMessage, FieldDescriptor, Limits, MapKey, ReflectMessage, Value, check, encode_field, is_any,
};
use protos::wire::{self, Malformed, Reader, put_varint};

use crate::merge::{Lists, is_one_value};

/// The value of a patch, prepared to be merged into messages of its type.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Overlay {
    /// Ascending by number.
    fields: Vec<Part>,
}

/// Where a part of a value is, and how it is merged.
struct Place<'a> {
    /// The path of the message.
    path: &'a str,
    /// Whether the fields of the message have to follow rules.
    checked: bool,
    lists: Lists,
}

/// A field of a value.
#[derive(Clone, PartialEq, Debug)]
struct Part {
    number: u32,
    /// The fields that are cleared when this one is set: the others of its oneof.
    rivals: Box<[u32]>,
    /// The field, or all entries of it.
    encoded: Bytes,
    kind: PartKind,
}

#[derive(Clone, PartialEq, Debug)]
enum PartKind {
    /// Replaces what is there, unless it is not valid for this reason.
    Value(Option<Box<str>>),
    /// Merged with a message that is there; alone it may be invalid for this reason.
    Message(Overlay, Option<Box<str>>),
    /// The number of items that are added to a list, or replace it.
    List(usize, Lists, Bounds),
    /// Replaces the entries with these keys, ascending. Each with its encoded field.
    Map(BTreeMap<Box<[u8]>, Bytes>, Bounds),
}

/// The limits of a list or map, with the path for messages.
#[derive(Clone, PartialEq, Debug)]
struct Bounds {
    limits: Limits,
    path: Box<str>,
}

/// The reason why a value was not merged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotMerged {
    /// The result would violate this rule.
    Invalid(String),
    /// The message has an encoding that is not supported here. Decode it.
    Unsupported,
}

impl From<Malformed> for NotMerged {
    fn from(_: Malformed) -> NotMerged {
        NotMerged::Unsupported
    }
}

impl Overlay {
    /// Prepares a value, without its `name` if messages keep theirs. `None` if it has fields that are not supported here.
    pub fn of(value: &DynamicMessage, lists: Lists, keeps_name: bool) -> Option<Overlay> {
        let fields = value.fields().filter(|(field, _)| !keeps_name || field.name() != "name");
        Overlay::of_fields(&Place { path: "", checked: true, lists }, fields)
    }

    fn of_fields<'v>(place: &Place<'_>, fields: impl Iterator<Item = (FieldDescriptor, &'v Value)>) -> Option<Overlay> {
        let parts: Option<Vec<Part>> = fields.map(|(field, value)| Part::of(place, &field, value)).collect();
        let mut fields = parts?;
        fields.sort_unstable_by_key(|part| part.number);
        Some(Overlay { fields })
    }

    /// The number of bytes that it may add to a message.
    pub fn size(&self) -> usize {
        self.fields.iter().map(|part| part.encoded.len()).sum()
    }

    /// Merges the value into an encoded message.
    ///
    /// # Errors
    /// The result would be invalid, or the message is encoded in an unusual way.
    pub fn onto(&self, message: &[u8]) -> Result<Vec<u8>, NotMerged> {
        let mut out = Vec::with_capacity(message.len() + self.size() + 16);
        self.write(message, &mut out)?;
        Ok(out)
    }

    fn write(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), NotMerged> {
        let there = fields_of(message)?;
        let mut there = there.chunk_by(|a, b| a.number == b.number).peekable();
        let cleared = |number: u32| self.fields.iter().any(|part| part.rivals.contains(&number));
        let copy = |fields: &[Field<'_>], out: &mut Vec<u8>| {
            if !cleared(fields[0].number) {
                fields.iter().for_each(|field| out.extend_from_slice(field.whole));
            }
        };
        for part in &self.fields {
            while let Some(fields) = there.next_if(|fields| fields[0].number < part.number) {
                copy(fields, out);
            }
            let fields = there.next_if(|fields| fields[0].number == part.number).unwrap_or_default();
            part.write(fields, out)?;
        }
        there.for_each(|fields| copy(fields, out));
        Ok(())
    }
}

impl Part {
    fn of(place: &Place<'_>, field: &FieldDescriptor, value: &Value) -> Option<Part> {
        let path = match place.path {
            "" => field.json_name().to_owned(),
            path => format!("{path}.{}", field.json_name()),
        };
        let limits = if place.checked { Limits::of(field) } else { Limits::default() };
        let inside = Place { path: &path, checked: limits.opened, lists: place.lists };
        let bounds = Bounds { limits, path: path.as_str().into() };
        let encoded = Bytes::from(encode_field(field, value));
        let kind = match value {
            // Items that must differ are compared, and packed ones have one field.
            Value::List(_) if field.is_packed() || bounds.limits.unique => return None,
            Value::List(items) => PartKind::List(items.len(), place.lists, bounds),
            Value::Map(entries) if entries.keys().all(|key| matches!(key, MapKey::String(_))) => {
                PartKind::Map(entries_of(&encoded)?, bounds)
            }
            Value::Map(_) => return None,
            Value::Message(inner) => {
                let unfit = || inside.checked.then(|| unfit(&path, inner)).flatten();
                match is_any(&inner.descriptor()) {
                    // An empty message leaves the content of another one.
                    true if inner.fields().count() < 2 => return None,
                    true => PartKind::Value(unfit()),
                    false if is_one_value(inner) => PartKind::Value(None),
                    false => PartKind::Message(Overlay::of_fields(&inside, inner.fields())?, unfit()),
                }
            }
            _ => PartKind::Value(None),
        };
        let one = field.containing_oneof();
        let rivals = one.iter().flat_map(|one| one.fields()).map(|other| other.number());
        let rivals = rivals.filter(|number| *number != field.number()).collect();
        Some(Part { number: field.number(), rivals, encoded, kind })
    }

    /// Writes the merged field. `there` are the fields of its number in the message.
    fn write(&self, there: &[Field<'_>], out: &mut Vec<u8>) -> Result<(), NotMerged> {
        match &self.kind {
            PartKind::Value(unfit) => self.write_alone(unfit.as_deref(), out),
            PartKind::Message(overlay, unfit) => match there {
                [] => self.write_alone(unfit.as_deref(), out),
                [there] => {
                    let mut inner = Vec::with_capacity(there.value()?.len() + self.encoded.len());
                    overlay.write(there.value()?, &mut inner)?;
                    put_varint(out, u64::from(self.number) << 3 | 2);
                    put_varint(out, inner.len() as u64);
                    out.extend_from_slice(&inner);
                    Ok(())
                }
                _ => Err(NotMerged::Unsupported),
            },
            PartKind::List(count, Lists::Replace, bounds) => {
                bounds.check(*count)?;
                out.extend_from_slice(&self.encoded);
                Ok(())
            }
            PartKind::List(count, Lists::Grow, bounds) => {
                bounds.check(there.len() + count)?;
                there.iter().for_each(|field| out.extend_from_slice(field.whole));
                out.extend_from_slice(&self.encoded);
                Ok(())
            }
            PartKind::Map(entries, bounds) => {
                let mut all: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
                for field in there {
                    all.insert(key_of(field.value()?)?, field.whole);
                }
                all.extend(entries.iter().map(|(key, entry)| (&**key, &**entry)));
                bounds.check(all.len())?;
                all.values().for_each(|entry| out.extend_from_slice(entry));
                Ok(())
            }
        }
    }

    fn write_alone(&self, unfit: Option<&str>, out: &mut Vec<u8>) -> Result<(), NotMerged> {
        match unfit {
            Some(unfit) => Err(NotMerged::Invalid(unfit.to_owned())),
            None => {
                out.extend_from_slice(&self.encoded);
                Ok(())
            }
        }
    }
}

impl Bounds {
    fn check(&self, count: usize) -> Result<(), NotMerged> {
        match self.limits.violated(count) {
            Some(reason) => Err(NotMerged::Invalid(format!("{}: {reason}", self.path))),
            None => Ok(()),
        }
    }
}

/// The first rule that a message violates alone.
fn unfit(path: &str, message: &DynamicMessage) -> Option<Box<str>> {
    let problems = check(message, Completeness::Whole, &|_| None);
    problems.first().map(|problem| match problem.path.is_empty() {
        true => format!("{path}: {problem}").into(),
        false => format!("{path}.{problem}").into(),
    })
}

/// A field of an encoded message.
struct Field<'a> {
    number: u32,
    /// With its key.
    whole: &'a [u8],
    /// The content of a length-delimited field.
    value: Option<&'a [u8]>,
}

impl<'a> Field<'a> {
    fn value(&self) -> Result<&'a [u8], Malformed> {
        self.value.ok_or(Malformed)
    }
}

/// The fields of a message, ascending by number. Those with one number keep their order.
fn fields_of(message: &[u8]) -> Result<Vec<Field<'_>>, Malformed> {
    let mut fields = Vec::new();
    let mut reader = Reader::new(message);
    loop {
        let start = message.len() - reader.rest().len();
        let Some((number, value)) = reader.field()? else { break };
        let whole = &message[start..message.len() - reader.rest().len()];
        let value = match value {
            wire::Value::Bytes(value) => Some(value),
            _ => None,
        };
        fields.push(Field { number, whole, value });
    }
    if !fields.is_sorted_by_key(|field| field.number) {
        fields.sort_by_key(|field| field.number);
    }
    Ok(fields)
}

/// The entries of an encoded map by key.
fn entries_of(map: &Bytes) -> Option<BTreeMap<Box<[u8]>, Bytes>> {
    let entries = fields_of(map).ok()?;
    entries.iter().map(|entry| Some((key_of(entry.value?).ok()?.into(), wire::share(map, entry.whole)))).collect()
}

/// The key of a map entry, which is a string.
fn key_of(entry: &[u8]) -> Result<&[u8], Malformed> {
    let fields = fields_of(entry)?;
    let key = fields.iter().rfind(|field| field.number == 1);
    key.map_or(Ok(&[]), Field::value)
}
