//! Translates the HTTP rules of a VirtualService to routes.

use config::MeshConfig;
use config::istio::{HttpAction, HttpMatchRequest, HttpRoute, VirtualService};
use model::audience::RoutesKey;
use model::service::ObjectId;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::ClusterSpecifier;
use protos::envoy::config::route::v3::{Decorator, Route};
use traffic::virtual_service::Guard;

use super::destinations::Destinations;
use super::headers::Operations;
use super::{action, faults, matching, sessions};
use crate::parts::{istio_metadata, origin};

/// The context of translation.
pub(crate) struct Context<'a> {
    /// The VirtualService.
    pub(crate) id: &'a ObjectId,
    /// The clients of the routes.
    pub(crate) key: &'a RoutesKey,
    /// The mesh's defaults.
    pub(crate) config: &'a MeshConfig,
    /// The services of destination hosts.
    pub(crate) destinations: &'a Destinations,
}

/// The routes of a VirtualService, in order. Conditions that cannot hold for this client are left out.
pub(crate) fn routes<'a>(spec: &'a VirtualService, context: &'a Context<'_>) -> impl Iterator<Item = Route> + 'a {
    spec.http
        .iter()
        .flat_map(move |rule| conditions(rule, context).map(move |condition| route(rule, condition, context)))
}

/// The conditions of a rule that can hold for this client; a rule without any always holds.
fn conditions<'a>(
    rule: &'a HttpRoute,
    context: &'a Context<'_>,
) -> impl Iterator<Item = Option<&'a HttpMatchRequest>> + 'a {
    let key = context.key;
    let admitted = move |guard: &Guard| guard.admits(key.port, key.gateway.as_ref(), &key.source);
    let always = rule.matches.is_empty().then_some(None);
    let conditions = always.into_iter().chain(rule.matches.iter().map(Some));
    conditions.zip(Guard::of_route(rule)).filter(move |(_, guard)| admitted(guard)).map(|(condition, _)| condition)
}

fn route(rule: &HttpRoute, condition: Option<&HttpMatchRequest>, context: &Context<'_>) -> Route {
    let mut out = Route {
        name: route_name(rule, condition),
        r#match: Some(condition.map_or_else(matching::everything, matching::translate)),
        metadata: istio_metadata(vec![origin("virtual-service", context.id)]),
        stat_prefix: condition.map(|condition| condition.stat_prefix.to_string()).unwrap_or_default(),
        typed_per_filter_config: faults::filter_options(rule),
        ..Default::default()
    };
    let authority = Operations::of(rule.headers.as_ref()).add_to(&mut out);
    match rule.action() {
        HttpAction::Redirect(redirect) => out.action = Some(action::redirect(redirect, context.key.port)),
        HttpAction::DirectResponse(response) => out.action = Some(action::respond(response)),
        HttpAction::Route(_) | HttpAction::Delegate(_) => {
            action::forward(&mut out, rule, authority, context.destinations, context.config);
            let session = context.destinations.session(rule).map(sessions::options);
            out.typed_per_filter_config.extend(session.map(|options| (sessions::FILTER.to_owned(), options)));
        }
    }
    let operation = operation(&out, &context.id.name, context.key.port);
    out.decorator = Some(Decorator { operation, propagate: None });
    out
}

/// `RULE`, or `RULE.CONDITION`.
fn route_name(rule: &HttpRoute, condition: Option<&HttpMatchRequest>) -> String {
    match condition {
        Some(condition) if !condition.name.is_empty() => format!("{}.{}", rule.name, condition.name),
        _ => rule.name.to_string(),
    }
}

/// The name of the route in traces: `HOST:PORT/PATH` for one destination, otherwise `OBJECT:PORT/PATH`.
pub(crate) fn operation(route: &Route, object: &str, port: u16) -> String {
    let path = route.r#match.as_ref().map(matching::shown_path).unwrap_or_else(|| "/*".into());
    let cluster = match &route.action {
        Some(Action::Route(action)) => match &action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(cluster)) => names::ClusterName::parse(cluster).ok(),
            _ => None,
        },
        _ => None,
    };
    match cluster {
        Some(cluster) => format!("{}:{}{path}", cluster.host, cluster.port),
        None => format!("{object}:{port}{path}"),
    }
}
