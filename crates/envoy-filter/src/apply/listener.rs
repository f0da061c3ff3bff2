//! Patches of listeners and of listener filters.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, PatchOperation};
use protos::dynamic::{DynamicMessage, Value};

use super::facts::ListenerFacts;
use super::places::{merge_filter, place};
use super::{chain, list, merge_value, of, text};
use crate::compile::CompiledPatch;
use crate::matching::listener_match;
use crate::outcome::Outcomes;

/// Changes a listener and its parts. Patches that remove the listener are handled by the catalogue.
pub fn listener<P: Borrow<CompiledPatch>>(listener: &mut DynamicMessage, patches: &[P], outcomes: &mut Outcomes) {
    let facts = ListenerFacts::of(listener);
    for patch in of(patches, ApplyTo::Listener).filter(|patch| patch.operation.merges()) {
        if facts.matches(patch) {
            outcomes.attempt(patch, || merge_value(listener, patch, true));
        }
    }
    listener_filters(listener, &facts, patches, outcomes);
    chain::chains(listener, &facts, patches, outcomes);
}

fn listener_filters<P: Borrow<CompiledPatch>>(
    listener: &mut DynamicMessage,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    for patch in of(patches, ApplyTo::ListenerFilter).filter(|patch| facts.matches(patch)) {
        let wanted = listener_match(patch).flatten().map(|m| m.listener_filter.clone());
        let wanted = wanted.filter(|name| !name.is_empty());
        let meant = |filter: &DynamicMessage| wanted.as_ref().is_none_or(|name| text(filter, "name") == **name);
        let Some(filters) = list(listener, "listener_filters") else {
            return;
        };
        match (patch.operation, &wanted) {
            (PatchOperation::Merge, Some(_)) => {
                let filters = filters.iter_mut().filter_map(Value::as_message_mut);
                for filter in filters.filter(|filter| meant(filter)) {
                    outcomes.attempt(patch, || merge_filter(filter, patch));
                }
            }
            // Without a filter name it is inserted first.
            (PatchOperation::InsertFirst, _) | (_, None) => outcomes.attempt(patch, || Ok(place(filters, patch, None))),
            (_, Some(_)) => outcomes.attempt(patch, || Ok(place(filters, patch, Some(&meant)))),
        }
    }
}
