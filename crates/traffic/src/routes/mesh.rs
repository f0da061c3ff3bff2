//! HTTPRoutes and GRPCRoutes of services, for one client.
//!
//! They and VirtualServices may have routes for one service. The order is that of VirtualServices among each other: those that are
//! exported to the client's namespace explicitly, and consumer routes, precede those for all clients; then the oldest precede.
//! Routes of a service precede VirtualServices with a wildcard, as VirtualServices with the host do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::Timestamp;
use flow::Reads;
use gateway_api::backends::MeshBackends;
use gateway_api::mesh::{self, Frontend, FrontendMatches, Layer};
use model::audience::{Scope, VirtualHostContent};
use model::kube::{HttpRouteKey, MatchRef, RouteId};
use model::service::{ExportTo, ServiceKey};
use names::Hostname;

use crate::gateways::destinations;
use crate::policy::particular_to;
use crate::scope::particular;
use crate::virtual_service::Summary;

/// Decides the matches of a virtual host of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct FrontendKey {
    /// The services that the client sees. It has no namespace if clients of that namespace see what others see.
    scope: Arc<Scope>,
    frontend: Frontend,
}

/// The routes of a service that apply to a client.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Attached {
    is_for_all: bool,
    created: Option<Timestamp>,
    /// Their matches in order.
    pub(super) matches: Arc<[MatchRef]>,
}

flow::rule! {
    /// The routes of a service for the clients of a scope. A relation of its own, so that a change of one service's routes does
    /// not derive others.
    pub(super) AttachedRoutes: FrontendKey => Attached = "routes of services", derive_attached;
}

fn derive_attached(cx: &Reads<'_>, key: &FrontendKey) -> Option<Attached> {
    let merged = cx.get::<FrontendMatches>(&key.frontend)?;
    let mut keys: BTreeMap<&RouteId, Arc<HttpRouteKey>> = BTreeMap::new();
    let mut matches = Vec::new();
    for one in merged.matches.iter() {
        let key = keys.entry(&one.route).or_insert_with(|| Arc::new(bind(cx, key, &one.route)));
        matches.push(MatchRef { key: key.clone(), index: one.index });
    }
    let is_for_all = key.frontend.consumer.is_none();
    Some(Attached { is_for_all, created: merged.created, matches: matches.into() })
}

fn bind(cx: &Reads<'_>, key: &FrontendKey, route: &RouteId) -> HttpRouteKey {
    let backends = cx.get::<MeshBackends>(route);
    HttpRouteKey {
        route: route.clone(),
        port: key.frontend.port,
        secure: false,
        mesh: true,
        destinations: Arc::new(destinations(cx, &key.scope, backends.iter().flat_map(|all| all.iter()))),
        overrides: None,
    }
}

/// The routes of a service that apply to the clients of a scope at one of its ports, if it has any.
pub(super) fn attached(cx: &Reads<'_>, scope: &Arc<Scope>, service: &ServiceKey, port: u16) -> Option<Attached> {
    let frontend = mesh::applying(cx, service, (port, Layer::Requests), &scope.namespace)?;
    let key = FrontendKey { scope: particular::shared(cx, scope), frontend };
    cx.get::<AttachedRoutes>(&key).map(|row| (*row).clone())
}

impl Attached {
    /// Whether they precede a VirtualService.
    pub(super) fn precede(&self, other: &Summary, host: &Hostname) -> bool {
        precede((self.is_for_all, self.created), other, host)
    }

    /// The content of the service's virtual host. A request that no match fits gets 404.
    pub(super) fn content(self) -> VirtualHostContent {
        match self.matches.is_empty() {
            true => VirtualHostContent::NotFound,
            false => VirtualHostContent::Matches(self.matches),
        }
    }
}

/// Whether routes of the service with this host precede a VirtualService. They are for all clients or for one namespace, and the
/// oldest of them has this age.
pub(crate) fn precede((is_for_all, created): (bool, Option<Timestamp>), other: &Summary, host: &Hostname) -> bool {
    let other_is_for_all = other.export_to == ExportTo::All;
    !other.hosts.contains(host) || (is_for_all, created) < (other_is_for_all, other.created)
}

/// The destinations of a virtual host with matches.
pub(super) fn destinations_of(content: &VirtualHostContent) -> impl Iterator<Item = &Hostname> {
    let matches = match content {
        VirtualHostContent::Matches(matches) => &matches[..],
        _ => &[],
    };
    matches.iter().flat_map(|one| one.key.destinations.keys())
}

/// Adds the namespaces whose clients may have other routes of a service than the producer routes, or other destinations of these.
pub(super) fn add_particular(
    cx: &Reads<'_>,
    (service, port): (&ServiceKey, u16),
    content: Option<&VirtualHostContent>,
    names: &mut BTreeSet<Arc<str>>,
) {
    names.extend(mesh::consumers(cx, service, port));
    let destinations: BTreeSet<&Hostname> = content.into_iter().flat_map(destinations_of).collect();
    for destination in destinations.into_iter().filter(|host| **host != service.hostname) {
        particular_to(cx, destination, names);
    }
}

/// Adds the rules of this module.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<AttachedRoutes>();
}

#[cfg(test)]
mod tests {
    use config::Object;
    use config::istio::VirtualService;
    use model::service::ObjectId;

    use super::*;

    #[test]
    fn what_is_for_one_namespace_precedes_and_then_the_oldest() {
        let time = |at: u8| (at > 0).then(|| Timestamp::from_unix(at.into()));
        let routes = |is_for_all, at| Attached { is_for_all, created: time(at), matches: Arc::from([]) };
        let other = |host: &str, is_for_all: bool, at| {
            let spec = VirtualService { hosts: vec![host.into()], ..Default::default() };
            let mut object = Object::new("a", "vs", spec);
            object.meta.creation_timestamp = time(at);
            let export_to = if is_for_all { ExportTo::All } else { ExportTo::Namespaces(["b".into()].into()) };
            Summary::of(ObjectId { namespace: "a".into(), name: "vs".into() }, &object, export_to)
        };
        let host = Hostname::parse("api.a.com").unwrap();
        let precede = |routes: Attached, other: Summary| routes.precede(&other, &host);
        assert!(precede(routes(true, 1), other("api.a.com", true, 2)));
        assert!(!precede(routes(true, 2), other("api.a.com", true, 1)));
        assert!(!precede(routes(true, 1), other("api.a.com", true, 1)), "the VirtualService, if the times are equal");
        assert!(precede(routes(true, 0), other("api.a.com", true, 1)), "no time is the oldest");
        assert!(precede(routes(false, 2), other("api.a.com", true, 1)));
        assert!(!precede(routes(true, 1), other("api.a.com", false, 2)));
        assert!(precede(routes(false, 1), other("api.a.com", false, 2)));
        assert!(precede(routes(true, 2), other("*.a.com", false, 1)), "a wildcard yields");
    }
}
