//! Patches of ordered lists.

use config::istio::envoy_filter::PatchOperation;
use protos::dynamic::{DynamicMessage, Value};

use super::{merge_inner, packed_type, text};
use crate::compile::CompiledPatch;
use crate::outcome::Outcome;

/// Adds, removes or replaces entries of a list. `named` is the condition on entries, if the patch has one. Returns whether
/// the list changed.
pub(super) fn place(
    items: &mut Vec<Value>,
    patch: &CompiledPatch,
    named: Option<&dyn Fn(&DynamicMessage) -> bool>,
) -> bool {
    let meant = |item: &Value| item.as_message().is_some_and(|item| named.is_none_or(|named| named(item)));
    let value = || patch.value.clone().map(Value::Message);
    let first = || items.iter().position(meant);
    let at = match (patch.operation, named) {
        (PatchOperation::Add, _) | (PatchOperation::InsertAfter, None) => Some(items.len()),
        (PatchOperation::InsertFirst | PatchOperation::InsertBefore, None) => Some(0),
        (PatchOperation::InsertFirst, Some(_)) => first().map(|_| 0),
        (PatchOperation::InsertBefore, Some(_)) => first(),
        (PatchOperation::InsertAfter, Some(_)) => first().map(|at| at + 1),
        (PatchOperation::Replace, Some(_)) => {
            return match (first(), value()) {
                (Some(at), Some(value)) => {
                    items[at] = value;
                    true
                }
                _ => false,
            };
        }
        (PatchOperation::Remove, Some(_)) => {
            let before = items.len();
            items.retain(|item| !meant(item));
            return items.len() != before;
        }
        _ => None,
    };
    match (at, value()) {
        (Some(at), Some(value)) => {
            items.insert(at, value);
            true
        }
        _ => false,
    }
}

/// The same for filters, of which exactly the last must be a terminal filter (`ends`). Changes that would violate this are
/// left out.
pub(super) fn place_filter(
    items: &mut Vec<Value>,
    patch: &CompiledPatch,
    named: Option<&dyn Fn(&DynamicMessage) -> bool>,
    ends: &dyn Fn(&str) -> bool,
) -> Outcome {
    let before = items.clone();
    let placed = place(items, patch, named);
    if placed && in_order(&before, ends) && !in_order(items, ends) {
        *items = before;
        return Err("of the filters that end a chain there must be one, and it must be the last".to_owned());
    }
    Ok(placed)
}

/// Merges a patch into a filter: its name, and its configuration if it is of the same type.
pub(super) fn merge_filter(filter: &mut DynamicMessage, patch: &CompiledPatch) -> Outcome {
    let merges = patch.operation == PatchOperation::Merge;
    let Some(value) = patch.value.as_ref().filter(|_| merges) else {
        return Ok(false);
    };
    if !filter.has_field_by_name("typed_config") {
        return Ok(false);
    }
    if let Some(more) = value.get_field_by_name("typed_config").filter(|_| value.has_field_by_name("typed_config")) {
        merge_inner(filter, more.as_message())?;
    }
    let name = text(value, "name");
    if !name.is_empty() {
        filter.set_field_by_name("name", Value::String(name));
    }
    Ok(true)
}

fn in_order(items: &[Value], ends: &dyn Fn(&str) -> bool) -> bool {
    let ending = |item: &Value| item.as_message().is_some_and(|item| ends(&packed_type(item)));
    items.split_last().is_some_and(|(last, others)| ending(last) && !others.iter().any(ending))
}
