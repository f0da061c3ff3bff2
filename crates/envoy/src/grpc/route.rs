//! Route tables with the features that gRPC supports.

use std::sync::Arc;

use bytes::Bytes;
use flow::Reads;
use model::audience::{RouteTable, RoutesKey, VirtualHostContent};
use model::kube::HttpRouteKey;
use protos::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::{FilterConfig, HeaderMatcher, Route, RouteAction, RouteMatch, route_action};
use protos::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

use crate::parts::any;
use crate::route::{EncodedRoutes, direct_response, encoded, kube, routes_of, sessions, virtual_host};
use crate::wire::Writer;

/// The only filter whose options every gRPC library supports.
const FAULT: &str = "envoy.filters.http.fault";
/// The method of every gRPC request.
const METHOD: &str = "POST";

flow::rule! {
    /// Encoded routes of VirtualServices, and default routes of services, for gRPC clients.
    pub GrpcRoutes: Arc<RoutesKey> => EncodedRoutes = "grpc routes", derive_grpc_routes;
}

flow::rule! {
    /// The encoded matches of HTTPRoutes and GRPCRoutes, as `KubeRoutes`, for gRPC clients.
    pub GrpcKubeRoutes: Arc<HttpRouteKey> => Arc<[Bytes]> = "grpc routes of http routes", derive_grpc_kube_routes;
}

fn derive_grpc_kube_routes(cx: &Reads<'_>, key: &Arc<HttpRouteKey>) -> Option<Arc<[Bytes]>> {
    kube::derive(cx, key, understood)
}

fn derive_grpc_routes(cx: &Reads<'_>, key: &Arc<RoutesKey>) -> Option<EncodedRoutes> {
    encoded(cx, key, understood)
}

/// Encodes a route table. Reads the routes of its virtual hosts.
pub(crate) fn route_configuration(cx: &Reads<'_>, name: &str, table: &RouteTable) -> Bytes {
    let mut writer = Writer::default();
    writer.text(1, name);
    for host in table.virtual_hosts.iter() {
        let routes: Vec<EncodedRoutes> = match &host.content {
            VirtualHostContent::Routes(keys) => {
                keys.iter().filter_map(|key| cx.get::<GrpcRoutes>(key)).map(|row| (*row).clone()).collect()
            }
            VirtualHostContent::Matches(matches) => routes_of(matches, |key| cx.get::<GrpcKubeRoutes>(key)),
            VirtualHostContent::NotFound => Vec::new(),
            _ => continue,
        };
        writer.raw(&virtual_host(host, &routes, false));
    }
    writer.finish()
}

/// Converts a route for gRPC. `None` if its condition cannot hold for gRPC, or gRPC cannot evaluate it.
fn understood(mut route: Route) -> Option<Route> {
    let condition = route.r#match.as_mut()?;
    if !decide(condition) {
        return None;
    }
    // gRPC cannot ask whether a request is allowed.
    if route.typed_per_filter_config.contains_key(kube::auth::FILTER) {
        route.action = Some(Action::DirectResponse(direct_response(503, None)));
    }
    let session = route.typed_per_filter_config.remove(sessions::FILTER).filter(sessions::has_cookie);
    // gRPC rejects a table with options of an unknown filter.
    route.typed_per_filter_config.retain(|filter, _| filter == FAULT);
    let optional = |options| any(&FilterConfig { config: Some(options), is_optional: true, ..Default::default() });
    route.typed_per_filter_config.extend(session.map(|options| (sessions::FILTER.to_owned(), optional(options))));
    route.decorator = None;
    if let Some(Action::Route(action)) = &mut route.action {
        limit_time(action);
    }
    Some(route)
}

/// Evaluates the parts of a condition that gRPC ignores. Returns whether the condition can hold.
fn decide(condition: &mut RouteMatch) -> bool {
    // gRPC ignores these conditions or skips the route.
    if !condition.query_parameters.is_empty() || !condition.dynamic_metadata.is_empty() {
        return false;
    }
    let known = |header: &HeaderMatcher| match &*header.name {
        ":method" => Some(METHOD),
        // The scheme that sidecars see in requests that arrive unencrypted.
        ":scheme" => Some("http"),
        _ => None,
    };
    let mut holds = true;
    condition.headers.retain(|header| match known(header) {
        Some(value) => {
            holds &= is(header, value).unwrap_or(false);
            false
        }
        None => true,
    });
    holds
}

/// Whether a header with this value matches; `None` for regular expressions other than plain words.
fn is(header: &HeaderMatcher, value: &str) -> Option<bool> {
    let holds = match &header.header_match_specifier {
        Some(HeaderMatchSpecifier::PresentMatch(present)) => *present,
        Some(HeaderMatchSpecifier::StringMatch(text)) => match text.match_pattern.as_ref()? {
            MatchPattern::Exact(text) => text == value,
            MatchPattern::Prefix(text) => value.starts_with(&**text),
            MatchPattern::SafeRegex(regex) if regex.regex == ".*" => true,
            MatchPattern::SafeRegex(regex) => regex.regex.split('|').any(|word| word == value),
            _ => return None,
        },
        _ => return None,
    };
    Some(holds != header.invert_match)
}

/// Sets the timeout in the field that gRPC uses.
fn limit_time(action: &mut RouteAction) {
    let limit = action.timeout.take().filter(|time| time.seconds > 0 || time.nanos > 0);
    action.max_stream_duration =
        limit.map(|limit| route_action::MaxStreamDuration { max_stream_duration: Some(limit), ..Default::default() });
}

#[cfg(test)]
mod tests;
