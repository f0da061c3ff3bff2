//! Patches of HTTP connection managers: their filters, and the routes of inbound listeners.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, PatchContext, PatchOperation};
use protos::dynamic::{DynamicMessage, Value, pack, unpack};

use super::chain::{filter_match, matches_chain};
use super::listener::ListenerFacts;
use super::places::{merge_filter, place_filter};
use super::{inner, list, of, route_configuration, text};
use crate::compile::CompiledPatch;
use crate::outcome::Outcomes;

/// The well-known name of the HTTP connection manager.
const MANAGER: &str = "envoy.filters.network.http_connection_manager";
/// The filter that ends the list of HTTP filters.
const ROUTER: &str = "envoy.extensions.filters.http.router.v3.Router";

/// Changes the HTTP filters of the connection managers of a chain.
pub(super) fn filters<P: Borrow<CompiledPatch>>(
    chain: &mut DynamicMessage,
    facts: &ListenerFacts,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    let matching: Vec<&CompiledPatch> = of(patches, ApplyTo::HttpFilter)
        .filter(|patch| matches_chain(patch, facts, chain))
        .filter(|patch| filter_match(patch).is_none_or(|wanted| *wanted.name == *MANAGER))
        .collect();
    if matching.is_empty() {
        return;
    }
    managers(chain, |manager| {
        let Some(filters) = list(manager, "http_filters") else {
            return;
        };
        for patch in &matching {
            let wanted = filter_match(patch).and_then(|wanted| wanted.sub_filter.as_ref());
            let meant = |filter: &DynamicMessage| wanted.is_some_and(|wanted| text(filter, "name") == *wanted.name);
            let ends = |name: &str| name == ROUTER;
            let outcome = match patch.operation {
                PatchOperation::InsertFirst => place_filter(filters, patch, None, &ends),
                _ => place_filter(filters, patch, wanted.is_some().then_some(&meant), &ends),
            };
            outcomes.note(patch, outcome);
        }
        for filter in filters.iter_mut().filter_map(Value::as_message_mut) {
            for patch in &matching {
                let wanted = filter_match(patch).and_then(|wanted| wanted.sub_filter.as_ref());
                if wanted.is_none_or(|wanted| text(filter, "name") == *wanted.name) {
                    outcomes.note(patch, merge_filter(filter, patch));
                }
            }
        }
    });
}

/// Changes the inline routes of the connection managers of a chain.
pub(super) fn inline_routes<P: Borrow<CompiledPatch>>(
    chain: &mut DynamicMessage,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    const ROUTES: [ApplyTo; 3] = [ApplyTo::RouteConfiguration, ApplyTo::VirtualHost, ApplyTo::HttpRoute];
    let routes = patches.iter().map(Borrow::borrow);
    let routes = routes.filter(|patch: &&CompiledPatch| ROUTES.contains(&patch.apply_to));
    let routes: Vec<&CompiledPatch> = routes.filter(|patch| patch.is_for(PatchContext::SidecarInbound)).collect();
    if routes.is_empty() {
        return;
    }
    managers(chain, |manager| {
        if let Some(table) = inner(manager, "route_config") {
            route_configuration(table, &routes, outcomes);
        }
    });
}

/// Unpacks the connection managers of a chain, and packs the changed ones.
fn managers(chain: &mut DynamicMessage, mut change: impl FnMut(&mut DynamicMessage)) {
    let Some(filters) = list(chain, "filters") else {
        return;
    };
    for filter in filters.iter_mut().filter_map(Value::as_message_mut) {
        if text(filter, "name") != MANAGER {
            continue;
        }
        let Some(config) = inner(filter, "typed_config") else {
            continue;
        };
        let Some(Ok(mut manager)) = unpack(config) else {
            continue;
        };
        change(&mut manager);
        // Rutter packed it, so that it can be unpacked; otherwise it is not changed.
        let _ = config.transcode_from(&pack(&manager));
    }
}
