//! Routes of HTTPRoutes and GRPCRoutes, which are translated as HTTPRoutes.
//!
//! Each match is encoded on its own, because matches of several HTTPRoutes alternate in a virtual host. `traffic` decides
//! their order.

mod action;
pub(crate) mod auth;
mod filters;
mod matching;
mod session;

use std::sync::Arc;

use bytes::Bytes;
use config::MeshConfig;
use config::gateway_api::HttpRoute;
use config::gateway_api::filter::HttpPathModifier;
use config::gateway_api::http_route::{HttpRouteMatch, HttpRouteRule};
use flow::Reads;
use gateway_api::backends::{self, Backend, MeshBackends, RouteBackends};
use gateway_api::grpc::http_route;
use gateway_api::rules;
use model::kube::{HttpRouteKey, RouteId, RouteKind};
use model::session::Session;
use protos::Message;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::{Decorator, Route};
use registry::inputs::RouteObjects;
use registry::proxy_settings::mesh_of;

use self::action::Failure;
use super::{Destinations, translate};
use crate::parts::{any, istio_metadata, origin_in};
use crate::wire::Writer;

/// The group and version of routes.
const VERSION: &str = "gateway.networking.k8s.io/v1";

flow::rule! {
    /// The encoded matches of HTTPRoutes and GRPCRoutes, rule by rule, each as the `routes` field of a virtual host; empty for a match that
    /// never holds.
    pub KubeRoutes: Arc<HttpRouteKey> => Arc<[Bytes]> = "routes of http routes", derive_kube_routes;
}

fn derive_kube_routes(cx: &Reads<'_>, key: &Arc<HttpRouteKey>) -> Option<Arc<[Bytes]>> {
    derive(cx, key, Some)
}

/// The encoded matches of a key, filtered by `keep`.
pub(crate) fn derive(
    cx: &Reads<'_>,
    key: &HttpRouteKey,
    keep: impl Fn(Route) -> Option<Route>,
) -> Option<Arc<[Bytes]>> {
    let mesh = mesh_of(cx, key.overrides.as_ref())?;
    let object = cx.get::<RouteObjects>(&key.route)?;
    let spec = http_route(&object)?;
    let backends = match key.mesh {
        true => (*cx.get::<MeshBackends>(&key.route)?).clone(),
        false => (*cx.get::<RouteBackends>(&key.route)?).clone(),
    };
    let destinations = Destinations::of(cx, key.port, &key.destinations);
    let context = Context { key, config: &mesh.config, destinations: &destinations };
    Some(encoded(&spec, &backends, &context, keep))
}

/// The context of translation.
struct Context<'a> {
    key: &'a HttpRouteKey,
    /// The mesh's defaults.
    config: &'a MeshConfig,
    /// The services of backends.
    destinations: &'a Destinations,
}

impl Context<'_> {
    fn failure(&self) -> Failure {
        match self.key.route.kind {
            RouteKind::Grpc => Failure::Call,
            _ => Failure::Request,
        }
    }
}

/// A rule with its resolved backends.
#[derive(Clone)]
struct Rule<'a> {
    spec: &'a HttpRouteRule,
    /// One for each of `backendRefs`.
    backends: &'a [Backend],
    /// One for each mirror.
    mirrors: &'a [Backend],
    /// One for each external authorization service.
    authorizers: &'a [Backend],
    failure: Failure,
    session: Option<Session>,
    /// Whether responses say which backend a session belongs to.
    marks: bool,
}

fn encoded(
    spec: &HttpRoute,
    backends: &[Backend],
    context: &Context<'_>,
    keep: impl Fn(Route) -> Option<Route>,
) -> Arc<[Bytes]> {
    let (mut out, mut rest) = (Vec::new(), backends);
    for (index, spec) in spec.rules.iter().enumerate() {
        let [backends, mirrors, authorizers] = backends::count(spec).map(|count| {
            let (own, behind) = rest.split_at(count.min(rest.len()));
            rest = behind;
            own
        });
        let session = session::of(spec, &context.key.route, index);
        let marks = matches!(session, Some(Session::Cookie { .. })) && backends.len() > 1;
        let rule = Rule { spec, backends, mirrors, authorizers, failure: context.failure(), session, marks };
        let (of_sessions, shared) = (session::routes(&rule, index, context), route(&rule, index, context));
        out.extend(spec.matches.iter().map(|condition| {
            let of_sessions = of_sessions.iter().map(|(route, cookie)| (route, Some(cookie)));
            let routes = of_sessions.chain([(&shared, None)]);
            fields(routes.filter_map(|(route, cookie)| {
                let mut route = of_match(route, spec, condition, context)?;
                route.r#match.as_mut()?.headers.extend(cookie.cloned());
                keep(route)
            }))
        }));
    }
    out.into()
}

/// Routes as fields of a virtual host.
fn fields(routes: impl Iterator<Item = Route>) -> Bytes {
    let mut writer = Writer::default();
    routes.for_each(|route| writer.bytes(3, &route.encode_to_vec()));
    writer.finish()
}

/// The route of a rule, without the parts that depend on the match.
fn route(rule: &Rule<'_>, index: usize, context: &Context<'_>) -> Route {
    let RouteId { kind, id } = &context.key.route;
    let kind = if *kind == RouteKind::Grpc { "grpcroute" } else { "httproute" };
    let name = rule.spec.name.as_deref().map(str::to_owned);
    let mut out = Route {
        name: name.unwrap_or_else(|| format!("{}.{}.{index}", id.namespace, id.name)),
        metadata: istio_metadata(vec![origin_in(VERSION, kind, id)]),
        ..Default::default()
    };
    let asks = auth::options(rule, context.destinations);
    if rules::is_unsupported(rule.spec) || asks.is_err() {
        out.action = Some(rule.failure.action());
        return out;
    }
    if let Ok(Some(options)) = asks {
        out.typed_per_filter_config.insert(auth::FILTER.to_owned(), options);
    }
    if let Some(cors) = filters::cors(rule.spec) {
        out.typed_per_filter_config.insert(filters::CORS.to_owned(), any(&cors));
    }
    match filters::redirect(rule.spec) {
        Some(redirect) => {
            filters::operations(&rule.spec.filters).add_to(&mut out);
            out.action = Some(Action::Redirect(action::redirect(redirect, context.key.port, context.key.secure)));
        }
        None => action::forward(&mut out, rule, context.destinations, context.config),
    }
    out
}

/// The route of a match. `None` if it never holds.
fn of_match(shared: &Route, rule: &HttpRouteRule, condition: &HttpRouteMatch, context: &Context<'_>) -> Option<Route> {
    let mut out = Route { r#match: Some(matching::translate(condition)?), ..shared.clone() };
    if let (Some(modifier), Some(action)) = (path_modifier(rule), &mut out.action) {
        match action::path_change(modifier, matching::prefix(condition)) {
            Some(change) => action::set_path(action, change),
            None => *action = context.failure().action(),
        }
    }
    let operation = translate::operation(&out, &context.key.route.id.name, context.key.port);
    out.decorator = Some(Decorator { operation, propagate: None });
    Some(out)
}

/// The change of the path, by a redirect or else a rewrite.
fn path_modifier(rule: &HttpRouteRule) -> Option<&HttpPathModifier> {
    match filters::redirect(rule) {
        Some(redirect) => redirect.path.as_ref(),
        None => filters::rewrite(rule)?.path.as_ref(),
    }
}

#[cfg(test)]
mod tests;
