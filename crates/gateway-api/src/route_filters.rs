//! Filters that only some routes need. Proxies have them in their listeners once any route of their kind of parent needs them,
//! so that later routes change no listeners.

use config::gateway_api::filter::HttpFilterType;
use config::gateway_api::http_route::HttpRouteRule;
use flow::Reads;
use model::kube::RouteId;
use model::service::{ObjectId, Registry, Service};
use registry::inputs::{RouteObject, RouteObjects};

use crate::backends;
use crate::grpc;
use crate::mesh;

/// A filter that routes configure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RouteFilter {
    /// Session affinity.
    Sessions,
    /// External authorization.
    ExternalAuth,
}

/// A filter, and the proxies that may need it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FilterUse {
    /// The filter.
    pub filter: RouteFilter,
    /// Sidecars, for routes of services; else gateways.
    pub mesh: bool,
}

flow::index! {
    /// Routes by the filters that they need.
    pub RoutesByFilter: FilterUse => members of RouteObjects = "routes by filter", routes_by_filter_keys;
    /// Routes by the Services to which they bind sessions.
    SessionRoutesByService: ObjectId => members of RouteObjects = "routes with sessions by service", session_routes_by_service_keys;
}

flow::rule! {
    /// The filters that some route needs. Readers are not affected by further routes.
    pub FiltersInUse: FilterUse => () = "filters in use", derive_use;
}

fn routes_by_filter_keys(_: &RouteId, route: &RouteObject) -> Vec<FilterUse> {
    let Some(http) = grpc::http_route(route) else { return Vec::new() };
    let filters =
        [(RouteFilter::Sessions, has_session as fn(&HttpRouteRule) -> bool), (RouteFilter::ExternalAuth, is_asked)];
    let needed = filters.into_iter().filter(|(_, needs)| http.rules.iter().any(needs)).map(|(filter, _)| filter);
    let sides =
        [false, true].map(|side| (side, http.parent_refs.iter().any(|parent| mesh::is_service(parent) == side)));
    let sides = sides.into_iter().filter(|(_, any)| *any).map(|(mesh, _)| mesh);
    needed.flat_map(|filter| sides.clone().map(move |mesh| FilterUse { filter, mesh })).collect()
}

fn session_routes_by_service_keys(id: &RouteId, route: &RouteObject) -> Vec<ObjectId> {
    backends::services_with_sessions(route, &id.id.namespace).into_iter().collect()
}

fn has_session(rule: &HttpRouteRule) -> bool {
    rule.session_persistence.is_some()
}

fn is_asked(rule: &HttpRouteRule) -> bool {
    rule.filters.iter().any(|filter| filter.kind == HttpFilterType::ExternalAuth)
}

fn derive_use(cx: &Reads<'_>, key: &FilterUse) -> Option<()> {
    cx.get::<RoutesByFilter>(key).map(|_| ())
}

/// Whether the proxies of a kind need a filter.
pub fn in_use(cx: &Reads<'_>, filter: RouteFilter, mesh: bool) -> bool {
    cx.get::<FiltersInUse>(&FilterUse { filter, mesh }).is_some()
}

/// Whether a route binds sessions to the endpoints of a service.
pub fn binds_sessions(cx: &Reads<'_>, service: &Service) -> bool {
    service.registry == Registry::Kubernetes && cx.get::<SessionRoutesByService>(&service.object).is_some()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<RoutesByFilter>();
    b.index::<SessionRoutesByService>();
    b.view::<FiltersInUse>();
}
