//! The conditions of patches on listeners and filter chains.

use config::istio::envoy_filter::{ApplyTo, FilterChainMatch, FilterMatch, ListenerMatch};
use protos::dynamic::DynamicMessage;

use super::{part, text, texts};
use crate::compile::CompiledPatch;
use crate::matching::{is_virtual, listener_match};

/// The facts of a listener that patches can match.
pub(super) struct ListenerFacts {
    name: String,
    port: u32,
    /// Whether it is an inbound listener.
    pub(super) inbound: bool,
}

impl ListenerFacts {
    pub(super) fn of(listener: &DynamicMessage) -> ListenerFacts {
        let socket = part(listener, "address").and_then(|address| part(&address, "socket_address"));
        let port = socket.and_then(|socket| socket.get_field_by_name("port_value").and_then(|port| port.as_u32()));
        let direction = listener.get_field_by_name("traffic_direction").and_then(|d| d.as_enum_number());
        ListenerFacts {
            name: text(listener, "name"),
            port: port.unwrap_or(0),
            inbound: direction == Some(protos::envoy::config::core::v3::TrafficDirection::Inbound as i32),
        }
    }

    fn is_virtual(&self) -> bool {
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

    /// Whether a patch matches this chain of this listener.
    pub(super) fn matches_chain(&self, patch: &CompiledPatch, chain: &DynamicMessage) -> bool {
        if !self.matches(patch) {
            return false;
        }
        let Some(wanted) = listener_match(patch).flatten() else {
            return true;
        };
        let takes = conditions(chain);
        let port = takes.as_ref().and_then(|takes| wrapped(takes, "destination_port"));
        if self.is_virtual() && wanted.port_number > 0 && port != Some(wanted.port_number) {
            return false;
        }
        let Some(wanted) = &wanted.filter_chain else {
            return true;
        };
        let has =
            |field: &str, text: &str| takes.as_ref().is_some_and(|takes| texts(takes, field).iter().any(|t| t == text));
        let FilterChainMatch { name, sni, transport_protocol, application_protocols, destination_port, .. } = wanted;
        let transport = || takes.as_ref().map(|takes| text(takes, "transport_protocol"));
        let protocols = || application_protocols.split(',').all(|one| has("application_protocols", one));
        (name.is_empty() || text(chain, "name") == **name)
            && (sni.is_empty() || has("server_names", sni))
            && (transport_protocol.is_empty() || transport().as_deref() == Some(&**transport_protocol))
            && (application_protocols.is_empty() || protocols())
            && (*destination_port == 0 || port == Some(*destination_port))
    }
}

/// The network filter that a patch names.
pub(super) fn filter_match(patch: &CompiledPatch) -> Option<&FilterMatch> {
    let chain = listener_match(patch).flatten()?.filter_chain.as_ref()?;
    chain.filter.as_ref()
}

/// The connections that a chain matches.
pub(super) fn conditions(chain: &DynamicMessage) -> Option<DynamicMessage> {
    part(chain, "filter_chain_match")
}

/// The number in a wrapper such as `google.protobuf.UInt32Value`, if present.
fn wrapped(message: &DynamicMessage, field: &str) -> Option<u32> {
    part(message, field)?.get_field_by_name("value")?.as_u32()
}
