//! Messages into messages, as protobuf merges them.

use protos::dynamic::{DynamicMessage, ReflectMessage, Value, pack, unpack};

/// What becomes of lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lists {
    /// What is in the second comes behind what is in the first.
    Grow,
    /// What is in the second takes the place of what is in the first.
    Replace,
}

/// Merges `from` into `into`, which must be of the same type: what is set in `from` is set, messages are merged, entries
/// of maps are replaced. Durations are values and replaced as a whole.
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

/// Merges what is packed in `from` into what is packed in `into`. False: they are of different types, or of one that is not
/// known, and nothing was changed.
pub fn merge_packed(into: &mut DynamicMessage, from: &DynamicMessage, valid: impl Fn(&DynamicMessage) -> bool) -> bool {
    let (Some(Ok(mut inner)), Some(Ok(more))) = (unpack(into), unpack(from)) else {
        return false;
    };
    if inner.descriptor() != more.descriptor() {
        return false;
    }
    merge(&mut inner, &more, Lists::Grow);
    valid(&inner) && into.transcode_from(&pack(&inner)).is_ok()
}

fn is_one_value(message: &DynamicMessage) -> bool {
    message.descriptor().full_name() == "google.protobuf.Duration"
}
