//! Routes of connections and datagrams: TLSRoute, TCPRoute and UDPRoute.

use std::sync::Arc;

use flow::Reads;
use model::kube::{ListenerId, RouteId, RouteKind};
use names::Hostname;
use registry::inputs::{RouteObject, RouteObjects};

use crate::attach::RoutesByHost;
use crate::backends::{Backend, MeshBackends, RouteBackends, Target};
use crate::route;

/// A backend of a route, with its part of the connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The weight, at least 1.
    pub weight: u32,
    /// The service; none if the reference is invalid, so that these connections are refused.
    pub target: Option<Target>,
}

flow::rule! {
    /// The backends of a TLSRoute, TCPRoute or UDPRoute, without those of weight 0. A relation of its own, so that listeners do not
    /// depend on the rest of the route.
    pub Shares: RouteId => Arc<[Share]> = "shares of connections", derive_shares;
    /// The same for parents that are services.
    pub MeshShares: RouteId => Arc<[Share]> = "shares of connections to services", derive_mesh_shares;
    /// The route that applies to the connections with a host to a listener: of several the oldest.
    pub FirstRoutes: (ListenerId, Hostname) => RouteId = "first routes of connections", derive_first_route;
}

flow::index! {
    /// UDPRoutes by the hosts and ports of services that they lead to.
    pub UdpRoutesByPort: (Hostname, u16) => members of Shares = "udp routes by port", udp_routes_by_port_keys;
}

fn udp_routes_by_port_keys(id: &RouteId, row: &Arc<[Share]>) -> Vec<(Hostname, u16)> {
    let shares = row.iter().filter(|_| id.kind == RouteKind::Udp);
    let targets = shares.filter_map(|share| share.target.as_ref());
    targets.map(|target| (target.service.hostname.clone(), target.port)).collect()
}

fn derive_shares(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<[Share]>> {
    shares(cx, id, || cx.get::<RouteBackends>(id))
}

fn derive_mesh_shares(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<[Share]>> {
    shares(cx, id, || cx.get::<MeshBackends>(id))
}

fn shares(
    cx: &Reads<'_>,
    id: &RouteId,
    backends: impl FnOnce() -> Option<Arc<Arc<[Backend]>>>,
) -> Option<Arc<[Share]>> {
    if matches!(id.kind, RouteKind::Http | RouteKind::Grpc) {
        return None;
    }
    let object = cx.get::<RouteObjects>(id)?;
    let rules = match &*object {
        RouteObject::Tls(object) => &object.spec.rules,
        RouteObject::Tcp(object) => &object.spec.rules,
        RouteObject::Udp(object) => &object.spec.rules,
        RouteObject::Http(_) | RouteObject::Grpc(_) => return None,
    };
    let backends = backends()?;
    let references = rules.iter().flat_map(|rule| &rule.backend_refs).zip(backends.iter());
    let used = references.filter(|(reference, _)| reference.weight > 0);
    let share =
        used.map(|(reference, backend)| Share { weight: reference.weight, target: backend.target.clone().ok() });
    Some(share.collect())
}

fn derive_first_route(cx: &Reads<'_>, key: &(ListenerId, Hostname)) -> Option<RouteId> {
    let routes = cx.get::<RoutesByHost>(key)?;
    let mut routes: Vec<&RouteId> = routes.iter().collect();
    if let [only] = routes[..] {
        return Some(only.clone());
    }
    routes.sort_by(|a, b| route::by_age((route::created(cx, a), a), (route::created(cx, b), b)));
    routes.first().map(|id| (*id).clone())
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<Shares, RouteObjects>();
    b.view::<MeshShares>();
    b.view::<FirstRoutes>();
    b.index::<UdpRoutesByPort>();
}
