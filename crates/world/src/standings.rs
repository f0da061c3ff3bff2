//! Facts for the statuses of the Gateway API's objects, and those that a commit changed.

use std::sync::Arc;

use config::{Kind, ObjectKey};
use flow::{CellId, Change, Delta, Engine, Rule};
use gateway_api::standings::{
    ClassStandings, GatewayStandings, MeshStandings, PoolStandings, RouteStandings, SetStandings, TlsPolicyStandings,
    TrafficPolicyStandings,
};
use model::kube::{RouteId, RouteKind};
use model::service::ObjectId;
use model::standing::Standing;

use crate::World;

/// The facts about an object; `None` if no class that is known has to do with it.
pub type Facts = Option<Arc<Standing>>;

/// The kinds of routes with facts.
const ROUTES: [(Kind, RouteKind); 5] = [
    (Kind::HttpRoute, RouteKind::Http),
    (Kind::GrpcRoute, RouteKind::Grpc),
    (Kind::TlsRoute, RouteKind::Tls),
    (Kind::TcpRoute, RouteKind::Tcp),
    (Kind::UdpRoute, RouteKind::Udp),
];

/// The route that an object is.
pub(crate) fn route_id(object: &ObjectKey) -> Option<RouteId> {
    let (_, kind) = *ROUTES.iter().find(|(of, _)| *of == object.kind)?;
    Some(RouteId { kind, id: ObjectId { namespace: object.namespace.clone(), name: object.name.clone() } })
}

/// The object of a route.
pub(crate) fn route_key(route: &RouteId) -> Option<ObjectKey> {
    let (kind, _) = *ROUTES.iter().find(|(_, of)| *of == route.kind)?;
    Some(ObjectKey::new(kind, route.id.namespace.clone(), route.id.name.clone()))
}

impl World {
    /// Watches the facts about an object. Returns the current ones; [`crate::Changes::standings`] reports changes. `None` for
    /// kinds without facts, and for objects of remote clusters. [`World::close`] ends the watch.
    pub fn watch_standing(&mut self, object: &ObjectKey) -> Option<(CellId, Facts)> {
        if !object.cluster.is_empty() {
            return None;
        }
        let id = ObjectId { namespace: object.namespace.clone(), name: object.name.clone() };
        let engine = &mut self.engine;
        Some(match object.kind {
            Kind::GatewayClass => watch::<ClassStandings>(engine, object.name.clone()),
            Kind::XMesh => watch::<MeshStandings>(engine, object.name.clone()),
            Kind::KubeGateway => watch::<GatewayStandings>(engine, id),
            Kind::ListenerSet => watch::<SetStandings>(engine, id),
            Kind::BackendTlsPolicy => watch::<TlsPolicyStandings>(engine, id),
            Kind::BackendTrafficPolicy => watch::<TrafficPolicyStandings>(engine, id),
            Kind::InferencePool => watch::<PoolStandings>(engine, id),
            _ => watch::<RouteStandings>(engine, route_id(object)?),
        })
    }
}

/// Watches the facts in a row.
fn watch<R: Rule<Row = Arc<Standing>>>(engine: &mut Engine, key: R::Key) -> (CellId, Facts) {
    let cell = engine.subscribe::<R>(key);
    (cell, engine.row::<R>(cell).as_deref().cloned())
}

/// The facts that a commit changed.
pub(crate) fn of(delta: &Delta) -> Vec<(ObjectKey, Facts)> {
    let route = |change: Change<'_, RouteStandings>| Some((route_key(change.key)?, change.after.as_deref().cloned()));
    let routes = delta.changes::<RouteStandings>().filter_map(route);
    let classes = of_cluster::<ClassStandings>(delta, Kind::GatewayClass);
    let meshes = of_cluster::<MeshStandings>(delta, Kind::XMesh);
    let gateways = of_namespaces::<GatewayStandings>(delta, Kind::KubeGateway);
    let sets = of_namespaces::<SetStandings>(delta, Kind::ListenerSet);
    let tls = of_namespaces::<TlsPolicyStandings>(delta, Kind::BackendTlsPolicy);
    let traffic = of_namespaces::<TrafficPolicyStandings>(delta, Kind::BackendTrafficPolicy);
    let pools = of_namespaces::<PoolStandings>(delta, Kind::InferencePool);
    let of_gateways = classes.chain(meshes).chain(gateways).chain(sets).chain(routes);
    of_gateways.chain(tls).chain(traffic).chain(pools).collect()
}

/// The changed facts about objects of a kind without namespaces.
fn of_cluster<R>(delta: &Delta, kind: Kind) -> impl Iterator<Item = (ObjectKey, Facts)>
where
    R: Rule<Key = Arc<str>, Row = Arc<Standing>>,
{
    let changes = delta.changes::<R>();
    changes.map(move |change| (ObjectKey::new(kind, "", change.key.clone()), change.after.as_deref().cloned()))
}

/// The changed facts about objects of a kind with namespaces.
fn of_namespaces<R>(delta: &Delta, kind: Kind) -> impl Iterator<Item = (ObjectKey, Facts)>
where
    R: Rule<Key = ObjectId, Row = Arc<Standing>>,
{
    delta.changes::<R>().map(move |change| {
        let key = ObjectKey::new(kind, change.key.namespace.clone(), change.key.name.clone());
        (key, change.after.as_deref().cloned())
    })
}
