//! Patches of ordered lists.

use config::istio::envoy_filter::PatchOperation;
use protos::dynamic::{DynamicMessage, Value};

use super::{merge_inner, packed_type, text};
use crate::compile::CompiledPatch;
use crate::error::PatchError;
use crate::outcome::{Outcome, Outcomes};

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

/// Changes a list of filters. `name` returns the filter that a patch names.
pub(super) fn change_filters(
    filters: &mut Vec<Value>,
    patches: &[&CompiledPatch],
    name: impl Fn(&CompiledPatch) -> Option<&str>,
    ends: &dyn Fn(&str) -> bool,
    outcomes: &mut Outcomes,
) {
    for patch in patches {
        // INSERT_FIRST does not depend on the other filters.
        let wanted = name(patch).filter(|_| patch.operation != PatchOperation::InsertFirst);
        let meant = |filter: &DynamicMessage| wanted.is_some_and(|wanted| text(filter, "name") == wanted);
        let named: Option<&dyn Fn(&DynamicMessage) -> bool> = if wanted.is_some() { Some(&meant) } else { None };
        outcomes.attempt(patch, || place_filter(filters, patch, named, ends));
    }
    for filter in filters.iter_mut().filter_map(Value::as_message_mut) {
        for patch in patches {
            if name(patch).is_none_or(|wanted| text(filter, "name") == wanted) {
                outcomes.attempt(patch, || merge_filter(filter, patch));
            }
        }
    }
}

/// Places a filter as [`place`] does. Exactly the last filter must be a terminal one (`ends`). Changes that would violate
/// this are left out.
fn place_filter(
    items: &mut Vec<Value>,
    patch: &CompiledPatch,
    named: Option<&dyn Fn(&DynamicMessage) -> bool>,
    ends: &dyn Fn(&str) -> bool,
) -> Outcome {
    let before = items.clone();
    let placed = place(items, patch, named);
    if placed && in_order(&before, ends) && !in_order(items, ends) {
        *items = before;
        return Err(PatchError::TerminalFilter);
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
    merge_inner(filter, value)?;
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
