//! Patches of filter chains and of network filters.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, PatchOperation};
use protos::dynamic::{DynamicMessage, Value};

use super::cluster::socket_of;
use super::facts::{ListenerFacts, conditions, filter_match};
use super::places::change_filters;
use super::{http, inner, list, merge_inner, merge_value, of, text};
use crate::compile::CompiledPatch;
use crate::error::PatchError;
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
        outcomes.attempt(patch, || {
            // Envoy rejects a listener with two chains for the same connections.
            let mut there = chains.iter().filter_map(Value::as_message);
            if let Some(there) = there.find(|there| conditions(there) == conditions(value)) {
                return Err(PatchError::SameConnections(text(there, "name")));
            }
            chains.push(Value::Message(value.clone()));
            Ok(true)
        });
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
    let mut found = outcomes.part();
    let mut removed = |chain: &DynamicMessage| {
        let mut goes = false;
        for patch in of(patches, ApplyTo::FilterChain).filter(|patch| patch.operation == PatchOperation::Remove) {
            if facts.matches_chain(patch, chain) {
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
        found.discarded(&PatchError::NoChainLeft);
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
        if !facts.matches_chain(patch, chain) {
            continue;
        }
        let socket = socket_of(patch);
        outcomes.attempt(patch, || match (socket, inner(chain, "transport_socket")) {
            (Some(socket), Some(there)) if text(&socket, "name") == text(there, "name") => merge_inner(there, &socket),
            _ => merge_value(chain, patch, false),
        });
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
        of(patches, ApplyTo::NetworkFilter).filter(|patch| facts.matches_chain(patch, chain)).collect();
    let Some(filters) = list(chain, "filters").filter(|_| !matching.is_empty()) else {
        return;
    };
    let ends = |kind: &str| ENDS.contains(&kind);
    change_filters(filters, &matching, |patch| Some(&*filter_match(patch)?.name), &ends, outcomes);
}

fn take(message: &mut DynamicMessage, field: &str) -> Option<DynamicMessage> {
    match message.take_field_by_name(field) {
        Some(Value::Message(inner)) => Some(inner),
        _ => None,
    }
}
