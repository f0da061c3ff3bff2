//! Merges protobuf messages.

use config::istio::envoy_filter::PatchOperation;
use protos::dynamic::{DynamicMessage, ReflectMessage, Value, pack, unpack};

use crate::error::{PatchError, validate};

/// How lists are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// Items of the second are appended to those of the first.
    Grow,
    /// Items of the second replace those of the first.
    Replace,
}

impl Lists {
    /// How an operation that merges does it.
    pub const fn of(operation: PatchOperation) -> Lists {
        match operation {
            PatchOperation::MergeAndReplaceList => Lists::Replace,
            _ => Lists::Grow,
        }
    }
}

/// Merges `from` into `into`, which must be of the same type: fields of `from` are set, messages are merged, map entries are
/// replaced. Durations are replaced as a whole.
pub fn merge(into: &mut DynamicMessage, from: &DynamicMessage, lists: Lists) {
    if into.descriptor() != from.descriptor() {
        return;
    }
    for (field, value) in from.fields() {
        match value {
            Value::List(items) => match into.get_field_mut(&field) {
                Value::List(there) if lists == Lists::Grow => there.extend(items.iter().cloned()),
                there => *there = value.clone(),
            },
            Value::Map(entries) => match into.get_field_mut(&field) {
                Value::Map(there) => there.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone()))),
                there => *there = value.clone(),
            },
            Value::Message(inner) if into.has_field(&field) && !is_one_value(inner) => {
                match into.get_field_mut(&field) {
                    Value::Message(there) => merge(there, inner, lists),
                    there => *there = value.clone(),
                }
            }
            value => into.set_field(&field, value.clone()),
        }
    }
}

/// Merges the message packed in `from` into that packed in `into`.
///
/// # Errors
/// The types differ or are unknown, or the result would be invalid. `into` is unchanged.
pub(crate) fn merge_packed(into: &mut DynamicMessage, from: &DynamicMessage) -> Result<(), PatchError> {
    let (Some(Ok(mut inner)), Some(Ok(more))) = (unpack(into), unpack(from)) else {
        return Err(PatchError::UnknownConfig);
    };
    if inner.descriptor() != more.descriptor() {
        return Err(PatchError::OtherConfig {
            value: more.descriptor().full_name().to_owned(),
            existing: inner.descriptor().full_name().to_owned(),
        });
    }
    merge(&mut inner, &more, Lists::Grow);
    validate(&inner)?;
    Ok(into.transcode_from(&pack(&inner))?)
}

/// Whether a message is replaced as a whole.
pub(crate) fn is_one_value(message: &DynamicMessage) -> bool {
    message.descriptor().full_name() == "google.protobuf.Duration"
}
