//! Routes of the mesh: routes whose parent is a Service or a ServiceEntry.
//!
//! ```text
//! RouteSummaries, Services ─► MeshAttachments ─► RoutesByFrontend ─┬─► FrontendsByService ──► (traffic: scopes, virtual hosts)
//!                                                                  ├─► FrontendMatches ─────► (traffic: virtual hosts)
//!                                                                  └─► FrontendConnections ─► (traffic: listeners)
//! ```
//!
//! A route of the service's namespace is a *producer* route, which applies to all clients. A route of another namespace is a
//! *consumer* route: it applies to the clients of its own namespace, where no producer route applies any more. Routes of one
//! [`Frontend`] are merged as those of a host of a Gateway. Hostnames of HTTPRoutes and GRPCRoutes have no effect; those of TLSRoutes
//! are server names.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::Timestamp;
use config::gateway_api::reference::ParentReference;
use flow::{Members, Reads};
use model::kube::{RouteId, RouteKind};
use model::service::{ObjectId, ServiceKey, ServicePort};
use names::{Hostname, Protocol};
use registry::Services;
use registry::inputs::RouteObjects;

use crate::matches::{self, MatchOf};
use crate::route::{self, RouteSummaries, RouteSummary};
use crate::service_objects;

/// The group of ServiceEntries.
const ISTIO: &str = "networking.istio.io";

/// A port of a service, as the clients that one group of routes applies to call it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Frontend {
    /// The service.
    pub service: ServiceKey,
    /// The number of its port.
    pub port: u16,
    /// The part of its traffic.
    pub layer: Layer,
    /// The namespace of the clients, for consumer routes. None for producer routes.
    pub consumer: Option<Arc<str>>,
}

/// A part of the traffic of a port, for which kinds of routes are alternatives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Layer {
    /// HTTP requests: HTTPRoutes and GRPCRoutes.
    Requests,
    /// Other connections: TLSRoutes and TCPRoutes.
    Connections,
}

/// A service or entry that a route refers to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshParent {
    /// The index in `parentRefs`.
    pub index: usize,
    /// The ports that the route attaches to; at least one, or the reason why there is none.
    pub outcome: Result<Vec<Frontend>, MeshRefusal>,
}

/// Why a route does not attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshRefusal {
    /// The reason, as in conditions.
    pub reason: &'static str,
    /// The message.
    pub message: Arc<str>,
}

/// The routes of a frontend, in the order of their matches.
#[derive(Clone, PartialEq, Debug)]
pub struct Merged {
    /// When the oldest of the routes was created.
    pub created: Option<Timestamp>,
    /// The matches in order of precedence. None follow a match of all requests.
    pub matches: Arc<[MatchOf]>,
}

/// The routes of connections to a frontend.
#[derive(Clone, PartialEq, Debug)]
pub struct Connections {
    /// When the oldest of the routes was created.
    pub created: Option<Timestamp>,
    /// The oldest route of each server name; `*` for all connections.
    pub routes: Vec<(Hostname, RouteId)>,
}

flow::rule! {
    /// The ports of services that routes attach to: one entry for each of the `parentRefs` that is a Service or ServiceEntry.
    pub MeshAttachments: RouteId => Arc<[MeshParent]> = "attachments of routes to services", derive_attachment;
    /// The routes of a frontend, merged.
    pub FrontendMatches: Frontend => Arc<Merged> = "merged routes of services", derive_matches;
    /// The routes of connections to a frontend.
    pub FrontendConnections: Frontend => Arc<Connections> = "connection routes of services", derive_connections;
    /// Whether any route has a service as a parent. Most meshes have none, and then nothing else is read.
    pub HasMeshRoutes: () => () = "presence of routes of services", derive_presence;
}

flow::index! {
    /// Attached routes by frontend.
    pub RoutesByFrontend: Frontend => members of MeshAttachments = "routes by port of services", routes_by_frontend_keys;
    /// Frontends with routes, by service.
    pub FrontendsByService: ServiceKey => members of RoutesByFrontend = "routed ports by service", frontends_by_service_keys;
    /// Frontends whose connections some namespace routes on its own.
    ConnectionConsumers: () => members of RoutesByFrontend = "connection routes of consumers", connection_consumers_keys;
    /// All frontends with routes.
    AllFrontends: () => members of RoutesByFrontend = "routed ports of services", all_frontends_keys;
}

fn routes_by_frontend_keys(_: &RouteId, row: &Arc<[MeshParent]>) -> Vec<Frontend> {
    let joined = row.iter().filter_map(|parent| parent.outcome.as_ref().ok()).flatten();
    joined.cloned().collect::<BTreeSet<Frontend>>().into_iter().collect()
}

fn frontends_by_service_keys(frontend: &Frontend, _: &Members<RouteId>) -> Vec<ServiceKey> {
    vec![frontend.service.clone()]
}

fn all_frontends_keys(_: &Frontend, _: &Members<RouteId>) -> Vec<()> {
    vec![()]
}

fn connection_consumers_keys(frontend: &Frontend, _: &Members<RouteId>) -> Vec<()> {
    let of_consumer = frontend.layer == Layer::Connections && frontend.consumer.is_some();
    of_consumer.then_some(()).into_iter().collect()
}

fn derive_presence(cx: &Reads<'_>, (): &()) -> Option<()> {
    cx.get::<AllFrontends>(&()).map(|_| ())
}

fn derive_attachment(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<[MeshParent]>> {
    let summary = cx.get::<RouteSummaries>(id)?;
    let parents: Vec<MeshParent> = parents(cx, id, &summary).collect();
    (!parents.is_empty()).then(|| parents.into())
}

fn parents<'a>(cx: &'a Reads<'_>, id: &'a RouteId, summary: &'a RouteSummary) -> impl Iterator<Item = MeshParent> + 'a {
    summary.parents.iter().enumerate().filter_map(|(index, reference)| {
        let target = Target::of(reference, &id.id.namespace)?;
        let outcome = Attempt { cx, id, reference, target: &target }.outcome();
        Some(MeshParent { index, outcome })
    })
}

/// Whether a parent is a service.
pub(crate) fn is_service(parent: &ParentReference) -> bool {
    matches!((&*parent.group, &*parent.kind), ("", "Service") | (ISTIO, "ServiceEntry"))
}

/// The object that a reference means.
struct Target {
    is_entry: bool,
    id: ObjectId,
}

impl Target {
    /// None for other kinds.
    fn of(reference: &ParentReference, namespace: &Arc<str>) -> Option<Target> {
        if !is_service(reference) {
            return None;
        }
        let is_entry = &*reference.group == ISTIO;
        let namespace = reference.namespace.as_ref().unwrap_or(namespace).clone();
        Some(Target { is_entry, id: ObjectId { namespace, name: reference.name.clone() } })
    }

    fn kind(&self) -> &'static str {
        service_objects::kind(self.is_entry)
    }
}

/// An attempt to attach a route to a service.
struct Attempt<'a> {
    cx: &'a Reads<'a>,
    id: &'a RouteId,
    reference: &'a ParentReference,
    target: &'a Target,
}

impl Attempt<'_> {
    fn outcome(&self) -> Result<Vec<Frontend>, MeshRefusal> {
        let Target { id, .. } = self.target;
        let Some(layer) = Layer::of(self.id.kind) else {
            let message = format!("a {} cannot have a {} as a parent", self.id.kind.name(), self.target.kind());
            return refuse("InvalidKind", message);
        };
        let consumer = (id.namespace != self.id.id.namespace).then(|| self.id.id.namespace.clone());
        let (mut found, mut joined, mut others) = (false, Vec::new(), false);
        for key in service_objects::keys(self.cx, self.target.is_entry, id) {
            let Some(service) = self.cx.get::<Services>(&key) else { continue };
            if consumer.as_ref().is_some_and(|namespace| !service.export_to.includes(namespace)) {
                continue;
            }
            found = true;
            for port in service.ports.iter().filter(|port| self.names(port)) {
                if applies_to(self.id.kind, port.protocol) {
                    let (service, consumer) = (key.clone(), consumer.clone());
                    joined.push(Frontend { service, port: port.number, layer, consumer });
                } else {
                    others = true;
                }
            }
        }
        match (joined.is_empty(), found) {
            (false, _) => Ok(joined),
            (true, false) => refuse(NO_PARENT, format!("{} {} not found", self.target.kind(), id)),
            (true, true) if others => {
                let spoken = spoken(self.id.kind);
                refuse(NO_PARENT, format!("{} {} has no such port for {spoken}", self.target.kind(), id))
            }
            (true, true) => refuse(NO_PARENT, self.missing()),
        }
    }

    /// Whether the reference means this port.
    fn names(&self, port: &ServicePort) -> bool {
        let by_name = self.reference.section_name.as_ref().is_none_or(|name| *name == port.name);
        by_name && self.reference.port.is_none_or(|number| number == port.number)
    }

    fn missing(&self) -> String {
        match (self.reference.port, &self.reference.section_name) {
            (Some(port), None) => format!("port {port} not found"),
            (None, Some(name)) => format!("sectionName {name:?} not found"),
            (Some(port), Some(name)) => format!("port {port} with the sectionName {name:?} not found"),
            (None, None) => format!("{} {} has no ports", self.target.kind(), self.target.id),
        }
    }
}

const NO_PARENT: &str = "NoMatchingParent";

fn refuse<T>(reason: &'static str, message: String) -> Result<T, MeshRefusal> {
    Err(MeshRefusal { reason, message: message.into() })
}

impl Layer {
    /// None for kinds that cannot have a service as a parent: sidecars do not capture datagrams.
    fn of(kind: RouteKind) -> Option<Layer> {
        match kind {
            RouteKind::Http | RouteKind::Grpc => Some(Layer::Requests),
            RouteKind::Tls | RouteKind::Tcp => Some(Layer::Connections),
            RouteKind::Udp => None,
        }
    }
}

/// Whether a port with this protocol may have routes of this kind.
fn applies_to(kind: RouteKind, protocol: Protocol) -> bool {
    match kind {
        RouteKind::Http | RouteKind::Grpc => protocol.is_http() || protocol.is_unsupported(),
        RouteKind::Tls => protocol.is_tls(),
        RouteKind::Tcp => protocol.is_tcp() || protocol.is_unsupported(),
        RouteKind::Udp => false,
    }
}

/// The protocol of the ports that may have routes of this kind, for messages.
fn spoken(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::Http | RouteKind::Grpc => "HTTP",
        RouteKind::Tls => "TLS",
        RouteKind::Tcp => "TCP",
        RouteKind::Udp => "UDP",
    }
}

/// The kind of routes that take the place of routes of this kind at one frontend.
pub(crate) fn more_specific(kind: RouteKind) -> Option<RouteKind> {
    match kind {
        RouteKind::Http => Some(RouteKind::Grpc),
        RouteKind::Tcp => Some(RouteKind::Tls),
        RouteKind::Grpc | RouteKind::Tls | RouteKind::Udp => None,
    }
}

/// The routes that apply at a frontend. As the specification says, HTTPRoutes do not, if there is a GRPCRoute; nor do TCPRoutes, if
/// there is a TLSRoute.
pub fn routes_of(cx: &Reads<'_>, frontend: &Frontend) -> Vec<RouteId> {
    let Some(members) = cx.get::<RoutesByFrontend>(frontend) else { return Vec::new() };
    members.iter().filter(|id| !yields(id, &members)).cloned().collect()
}

fn yields(id: &RouteId, members: &Members<RouteId>) -> bool {
    more_specific(id.kind).is_some_and(|kind| members.iter().any(|other| other.kind == kind))
}

/// Whether a route does not apply at a frontend, because one of a more specific kind does.
pub(crate) fn is_displaced(cx: &Reads<'_>, id: &RouteId, frontend: &Frontend) -> bool {
    let found = |members: Option<&Members<RouteId>>| members.is_some_and(|members| yields(id, members));
    more_specific(id.kind).is_some() && cx.with::<RoutesByFrontend, _>(frontend, found)
}

/// The frontends of a service whose routes apply to the clients of a namespace: for each port those of the namespace's consumer
/// routes, else those of the producer routes.
pub fn all_applying(cx: &Reads<'_>, service: &ServiceKey, namespace: &str) -> Vec<Frontend> {
    let all = frontends(cx, service);
    let is_own = |one: &Frontend| one.consumer.as_deref() == Some(namespace);
    let has_own =
        |here: &Frontend| all.iter().any(|one| is_own(one) && (one.port, one.layer) == (here.port, here.layer));
    all.iter().filter(|one| is_own(one) || one.consumer.is_none() && !has_own(one)).cloned().collect()
}

/// The frontend for a part of the traffic of a port, of [`all_applying`]. None without routes.
pub fn applying(
    cx: &Reads<'_>,
    service: &ServiceKey,
    (port, layer): (u16, Layer),
    namespace: &str,
) -> Option<Frontend> {
    all_applying(cx, service, namespace).into_iter().find(|one| (one.port, one.layer) == (port, layer))
}

/// The frontends of a service that have routes, ascending.
pub fn frontends(cx: &Reads<'_>, service: &ServiceKey) -> Vec<Frontend> {
    if !cx.contains::<HasMeshRoutes>(&()) {
        return Vec::new();
    }
    cx.get::<FrontendsByService>(service).map(|all| all.to_vec()).unwrap_or_default()
}

/// The namespaces whose consumer routes of requests apply to a port of a service.
pub fn consumers(cx: &Reads<'_>, service: &ServiceKey, port: u16) -> Vec<Arc<str>> {
    let here = frontends(cx, service).into_iter().filter(|one| (one.port, one.layer) == (port, Layer::Requests));
    here.filter_map(|one| one.consumer).collect()
}

/// Whether some namespace has consumer routes of connections.
pub fn has_connection_consumers(cx: &Reads<'_>) -> bool {
    cx.contains::<HasMeshRoutes>(&()) && cx.get::<ConnectionConsumers>(&()).is_some()
}

fn derive_matches(cx: &Reads<'_>, frontend: &Frontend) -> Option<Arc<Merged>> {
    let routes = routes_of(cx, frontend);
    let created = routes.iter().map(|id| route::created(cx, id)).min()?;
    Some(Arc::new(Merged { created, matches: matches::ordered(cx, &routes) }))
}

fn derive_connections(cx: &Reads<'_>, frontend: &Frontend) -> Option<Arc<Connections>> {
    let mut all: Vec<_> = routes_of(cx, frontend).into_iter().map(|id| (route::created(cx, &id), id)).collect();
    all.sort_by(|a, b| route::by_age((a.0, &a.1), (b.0, &b.1)));
    let created = all.first()?.0;
    let mut routes: Vec<(Hostname, RouteId)> = Vec::new();
    for (_, id) in all {
        let summary = cx.get::<RouteSummaries>(&id)?;
        for host in &summary.hostnames {
            if routes.iter().all(|(other, _)| other != host) {
                routes.push((host.clone(), id.clone()));
            }
        }
    }
    Some(Arc::new(Connections { created, routes }))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<MeshAttachments, RouteObjects>();
    b.index::<RoutesByFrontend>();
    b.index::<FrontendsByService>();
    b.index::<ConnectionConsumers>();
    b.index::<AllFrontends>();
    b.view::<FrontendMatches>();
    b.view::<FrontendConnections>();
    b.view::<HasMeshRoutes>();
}
