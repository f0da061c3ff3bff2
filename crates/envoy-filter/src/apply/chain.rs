//! Patches of filter chains and of network filters.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, FilterChainMatch, FilterMatch, PatchOperation};
use protos::dynamic::{DynamicMessage, Value};

use super::cluster::{merge_socket, socket_of};
use super::listener::ListenerFacts;
use super::places::{merge_filter, place_filter};
use super::{http, inner, list, merge_value, of, text, texts};
use crate::compile::CompiledPatch;
use crate::matching::listener_match;
use crate::outcome::Outcomes;

/// Network filters that end a chain.
const ENDS: [&str; 10] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
    "envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxy",
    "envoy.extensions.filters.network.generic_proxy.v3.GenericProxy",
    "envoy.extensions.filters.network.direct_response.v3.Config",
    "envoy.extensions.filters.network.echo.v3.Echo",
    "envoy.extensions.filters.network.sip_proxy.v3.SipProxy",
    "envoy.extensions.filters.network.rocketmq_proxy.v3.RocketmqProxy",
];

/// Changes the filter chains of a listener.
pub(super) fn chains<P: Borrow<CompiledPatch>>(
    listener: &mut DynamicMessage,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    let mut default = take(listener, "default_filter_chain");
    let mut chains = match listener.get_field_by_name_mut("filter_chains").and_then(Value::as_list_mut) {
        Some(chains) => std::mem::take(chains),
        None => return,
    };
    remove(&mut chains, &mut default, facts, patches, outcomes);
    for chain in chains.iter_mut().filter_map(Value::as_message_mut).chain(default.as_mut()) {
        filter_chain(chain, facts, patches, outcomes);
    }
    for patch in of(patches, ApplyTo::FilterChain).filter(|patch| patch.operation == PatchOperation::Add) {
        let Some(value) = patch.value.as_ref().filter(|_| facts.matches(patch)) else {
            continue;
        };
        // Envoy rejects a listener with two chains for the same connections.
        let mut there = chains.iter().filter_map(Value::as_message);
        let outcome = match there.find(|there| conditions(there) == conditions(value)) {
            Some(there) => Err(format!("the filter chain {:?} takes the same connections", text(there, "name"))),
            None => {
                chains.push(Value::Message(value.clone()));
                Ok(true)
            }
        };
        outcomes.note(patch, outcome);
    }
    listener.set_field_by_name("filter_chains", Value::List(chains));
    if let Some(default) = default {
        listener.set_field_by_name("default_filter_chain", Value::Message(default));
    }
}

/// Removes chains, except for the last one: a listener needs a chain.
fn remove<P: Borrow<CompiledPatch>>(
    chains: &mut Vec<Value>,
    default: &mut Option<DynamicMessage>,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    let mut found = Outcomes::default();
    let mut removed = |chain: &DynamicMessage| {
        let mut goes = false;
        for patch in of(patches, ApplyTo::FilterChain).filter(|patch| patch.operation == PatchOperation::Remove) {
            if matches_chain(patch, facts, chain) {
                found.applied(&patch.id);
                goes = true;
            }
        }
        goes
    };
    let kept: Vec<Value> =
        chains.iter().filter(|chain| !chain.as_message().is_some_and(&mut removed)).cloned().collect();
    let default_goes = default.as_ref().is_some_and(&mut removed);
    if !kept.is_empty() || (default.is_some() && !default_goes) {
        *chains = kept;
        default.take_if(|_| default_goes);
    } else {
        found.discarded("the listener would be left without filter chains");
    }
    outcomes.add(found);
}

fn filter_chain<P: Borrow<CompiledPatch>>(
    chain: &mut DynamicMessage,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    for patch in of(patches, ApplyTo::FilterChain).filter(|patch| patch.operation.merges()) {
        if !matches_chain(patch, facts, chain) {
            continue;
        }
        let socket = socket_of(patch);
        let outcome = match (socket, inner(chain, "transport_socket")) {
            (Some(socket), Some(there)) if text(&socket, "name") == text(there, "name") => merge_socket(there, &socket),
            _ => merge_value(chain, patch, false),
        };
        outcomes.note(patch, outcome);
    }
    if facts.inbound {
        http::inline_routes(chain, patches, outcomes);
    }
    network_filters(chain, facts, patches, outcomes);
    http::filters(chain, facts, patches, outcomes);
}

fn network_filters<P: Borrow<CompiledPatch>>(
    chain: &mut DynamicMessage,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    let matching: Vec<&CompiledPatch> =
        of(patches, ApplyTo::NetworkFilter).filter(|patch| matches_chain(patch, facts, chain)).collect();
    let Some(filters) = list(chain, "filters").filter(|_| !matching.is_empty()) else {
        return;
    };
    for patch in &matching {
        let wanted = filter_match(patch);
        let meant = |filter: &DynamicMessage| wanted.is_some_and(|wanted| text(filter, "name") == *wanted.name);
        let ends = |name: &str| ENDS.contains(&name);
        let outcome = match patch.operation {
            // INSERT_FIRST does not depend on the other filters.
            PatchOperation::InsertFirst => place_filter(filters, patch, None, &ends),
            _ => place_filter(filters, patch, wanted.is_some().then_some(&meant), &ends),
        };
        outcomes.note(patch, outcome);
    }
    for filter in filters.iter_mut().filter_map(Value::as_message_mut) {
        for patch in &matching {
            if filter_match(patch).is_none_or(|wanted| text(filter, "name") == *wanted.name) {
                outcomes.note(patch, merge_filter(filter, patch));
            }
        }
    }
}

/// Whether a patch matches this chain of this listener.
pub(super) fn matches_chain(patch: &CompiledPatch, facts: &ListenerFacts, chain: &DynamicMessage) -> bool {
    if !facts.matches(patch) {
        return false;
    }
    let Some(wanted) = listener_match(patch).flatten() else {
        return true;
    };
    let takes = conditions(chain);
    let port = takes.as_ref().and_then(|takes| take_wrapped(takes, "destination_port"));
    if facts.is_virtual() && wanted.port_number > 0 && port != Some(wanted.port_number) {
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

/// The network filter that a patch names.
pub(super) fn filter_match(patch: &CompiledPatch) -> Option<&FilterMatch> {
    let chain = listener_match(patch).flatten()?.filter_chain.as_ref()?;
    chain.filter.as_ref()
}

/// The connections that a chain matches.
fn conditions(chain: &DynamicMessage) -> Option<DynamicMessage> {
    let conditions = chain.get_field_by_name("filter_chain_match");
    let conditions = conditions.filter(|_| chain.has_field_by_name("filter_chain_match"))?;
    conditions.as_message().cloned()
}

fn take_wrapped(message: &DynamicMessage, field: &str) -> Option<u32> {
    let wrapper = message.get_field_by_name(field).filter(|_| message.has_field_by_name(field))?;
    wrapper.as_message()?.get_field_by_name("value")?.as_u32()
}

fn take(message: &mut DynamicMessage, field: &str) -> Option<DynamicMessage> {
    match message.take_field_by_name(field) {
        Some(Value::Message(inner)) => Some(inner),
        _ => None,
    }
}
