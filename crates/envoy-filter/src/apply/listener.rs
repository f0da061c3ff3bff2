//! Patches of listeners and of listener filters.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, ListenerMatch, PatchOperation};
use protos::dynamic::{DynamicMessage, Value};

use super::places::{merge_filter, place};
use super::{chain, list, merge_value, of, text};
use crate::compile::CompiledPatch;
use crate::matching::{is_virtual, listener_match};
use crate::outcome::Outcomes;

/// Changes a listener and its parts. Patches that remove the listener are handled by the catalogue.
pub fn listener<P: Borrow<CompiledPatch>>(listener: &mut DynamicMessage, patches: &[P], outcomes: &mut Outcomes) {
    let facts = ListenerFacts::of(listener);
    for patch in of(patches, ApplyTo::Listener).filter(|patch| patch.operation.merges()) {
        if facts.matches(patch) {
            let outcome = merge_value(listener, patch, true);
            outcomes.note(patch, outcome);
        }
    }
    listener_filters(listener, &facts, patches, outcomes);
    chain::chains(listener, &facts, patches, outcomes);
}

/// The facts of a listener that patches can match.
pub(super) struct ListenerFacts {
    pub(super) name: String,
    pub(super) port: u32,
    /// Whether it is an inbound listener.
    pub(super) inbound: bool,
}

impl ListenerFacts {
    fn of(listener: &DynamicMessage) -> ListenerFacts {
        let part = |message: &DynamicMessage, field: &str| {
            let value = message.get_field_by_name(field).filter(|_| message.has_field_by_name(field));
            value.and_then(|value| value.as_message().cloned())
        };
        let socket = part(listener, "address").and_then(|address| part(&address, "socket_address"));
        let port = socket.and_then(|socket| socket.get_field_by_name("port_value").and_then(|port| port.as_u32()));
        let direction = listener.get_field_by_name("traffic_direction").and_then(|d| d.as_enum_number());
        ListenerFacts {
            name: text(listener, "name"),
            port: port.unwrap_or(0),
            inbound: direction == Some(protos::envoy::config::core::v3::TrafficDirection::Inbound as i32),
        }
    }

    pub(super) fn is_virtual(&self) -> bool {
        is_virtual(&self.name)
    }

    pub(super) fn matches(&self, patch: &CompiledPatch) -> bool {
        let wanted = match listener_match(patch) {
            None => return false,
            Some(None) => return true,
            Some(Some(wanted)) => wanted,
        };
        let ListenerMatch { name, port_number, .. } = wanted;
        // In a virtual listener, the port is a condition on filter chains.
        let any_port = *port_number == 0 || (patch.apply_to != ApplyTo::Listener && self.is_virtual());
        (name.is_empty() || **name == *self.name) && (any_port || *port_number == self.port)
    }
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
                    outcomes.note(patch, merge_filter(filter, patch));
                }
            }
            // Without a filter name it is inserted first.
            (PatchOperation::InsertFirst, _) | (_, None) => outcomes.note(patch, Ok(place(filters, patch, None))),
            (_, Some(_)) => outcomes.note(patch, Ok(place(filters, patch, Some(&meant)))),
        }
    }
}
