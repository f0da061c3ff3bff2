//! Patches of HTTP connection managers: their filters, and the routes of inbound listeners.

use std::borrow::Borrow;

use config::istio::envoy_filter::{ApplyTo, PatchContext};
use protos::dynamic::{DynamicMessage, Value, pack, unpack};

use super::facts::{ListenerFacts, filter_match};
use super::places::change_filters;
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
        .filter(|patch| facts.matches_chain(patch, chain))
        .filter(|patch| filter_match(patch).is_none_or(|wanted| *wanted.name == *MANAGER))
        .collect();
    if matching.is_empty() {
        return;
    }
    managers(chain, |manager| {
        let Some(filters) = list(manager, "http_filters") else {
            return;
        };
        let ends = |kind: &str| kind == ROUTER;
        change_filters(
            filters,
            &matching,
            |patch| Some(&*filter_match(patch)?.sub_filter.as_ref()?.name),
            &ends,
            outcomes,
        );
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
