//! Backends of routes: which services and InferencePools `backendRefs` and mirrors refer to.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::HttpRoute;
use config::gateway_api::http_route::{HttpBackendRef, HttpRouteRule};
use config::gateway_api::l4_route::L4RouteRule;
use config::gateway_api::reference::{BackendObjectReference, BackendRef};
use flow::Reads;
use model::kube::{RouteId, RouteKind};
use model::service::{ObjectId, ServiceKey, ServicePort};
use names::{Hostname, Protocol};
use registry::inputs::{Mesh, RouteObject, RouteObjects};
use registry::{Services, ServicesByHost};

use crate::grants::{self, FromKind, Reference, ToKind};
use crate::grpc::http_route;
use crate::pools::{self, Picker, Pools};

/// The cluster of requests and connections to a backend that does not exist, as in Istio. No cluster has this name.
pub const UNKNOWN_SERVICE: &str = "UnknownService";

/// A reference to a backend, resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// The service, or why there is none.
    pub target: Result<Target, BackendProblem>,
}

/// A port of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The service.
    pub service: ServiceKey,
    /// The number of one of its ports.
    pub port: u16,
    /// Selects the endpoint of each request, for an InferencePool that has one.
    pub picker: Option<Picker>,
}

/// Why a reference has no service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackendProblem {
    /// The reason, as in conditions.
    pub reason: BackendReason,
    /// The message.
    pub message: Arc<str>,
}

/// Reasons of [`BackendProblem`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BackendReason {
    /// No ReferenceGrant allows it.
    RefNotPermitted,
    /// The kind is not supported.
    InvalidKind,
    /// There is no such service, or it has no such port of the route's transport.
    BackendNotFound,
}

impl BackendReason {
    /// The reason as in conditions.
    pub fn name(self) -> &'static str {
        match self {
            BackendReason::RefNotPermitted => "RefNotPermitted",
            BackendReason::InvalidKind => "InvalidKind",
            BackendReason::BackendNotFound => "BackendNotFound",
        }
    }
}

flow::rule! {
    /// The backends of a route, resolved: for each rule in order one entry for each of its `backendRefs`, then one for each
    /// of its filters of type RequestMirror and one for each of type ExternalAuth, if the route has filters. Entries of
    /// backends with the weight 0 are there, too.
    pub RouteBackends: RouteId => Arc<[Backend]> = "backends of routes", derive_backends;
    /// The same for parents that are services, whose routes need no ReferenceGrant.
    pub MeshBackends: RouteId => Arc<[Backend]> = "backends of routes of services", derive_mesh_backends;
}

/// The number of entries that a rule has in [`RouteBackends`]: of `backendRefs`, of mirrors, and of external authorization.
pub fn count(rule: &HttpRouteRule) -> [usize; 3] {
    [rule.backend_refs.len(), mirrors(rule).count(), authorizers(rule).count()]
}

fn mirrors(rule: &HttpRouteRule) -> impl Iterator<Item = &BackendObjectReference> {
    rule.filters.iter().filter_map(|filter| Some(&filter.request_mirror.as_ref()?.backend_ref))
}

fn authorizers(rule: &HttpRouteRule) -> impl Iterator<Item = &BackendObjectReference> {
    rule.filters.iter().filter_map(|filter| Some(&filter.external_auth.as_ref()?.backend_ref))
}

fn derive_backends(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<[Backend]>> {
    backends(cx, id, true)
}

fn derive_mesh_backends(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<[Backend]>> {
    backends(cx, id, false)
}

fn backends(cx: &Reads<'_>, id: &RouteId, needs_grant: bool) -> Option<Arc<[Backend]>> {
    let object = cx.get::<RouteObjects>(id)?;
    let domain = cx.get::<Mesh>(&())?.domain.clone();
    let finder = Finder { cx, kind: id.kind, namespace: &id.id.namespace, domain: &domain, needs_grant };
    Some(references(&object).iter().map(|reference| finder.find(reference)).collect())
}

/// The Services that a route of this namespace refers to, whether or not it may.
pub(crate) fn services(route: &RouteObject, namespace: &Arc<str>) -> impl Iterator<Item = ObjectId> {
    references(route).into_iter().filter(is_service).map(move |one| id_of(&one, namespace))
}

/// The Services of the rules with session affinity of a route of this namespace, whether or not it may refer to them.
pub(crate) fn services_with_sessions(route: &RouteObject, namespace: &Arc<str>) -> BTreeSet<ObjectId> {
    let Some(http) = http_route(route) else { return BTreeSet::new() };
    let rules = http.rules.iter().filter(|rule| rule.session_persistence.is_some());
    let references = rules.flat_map(|rule| rule.backend_refs.iter().map(HttpBackendRef::object));
    references.filter(is_service).map(|one| id_of(&one, namespace)).collect()
}

fn is_service(reference: &BackendObjectReference) -> bool {
    reference.group.is_empty() && &*reference.kind == "Service"
}

/// The InferencePools that a route of this namespace refers to, whether or not it may.
pub(crate) fn pools_of(route: &RouteObject, namespace: &Arc<str>) -> impl Iterator<Item = ObjectId> {
    references(route).into_iter().filter(pools::is_pool).map(move |one| id_of(&one, namespace))
}

fn id_of(reference: &BackendObjectReference, namespace: &Arc<str>) -> ObjectId {
    let namespace = reference.namespace.as_ref().unwrap_or(namespace).clone();
    ObjectId { namespace, name: reference.name.clone() }
}

/// The references of a route, in the order of [`RouteBackends`].
fn references(route: &RouteObject) -> Vec<BackendObjectReference> {
    match route {
        RouteObject::Http(_) | RouteObject::Grpc(_) => {
            http_route(route).map(|http| of_requests(&http)).unwrap_or_default()
        }
        RouteObject::Tls(object) => of_connections(&object.spec.rules),
        RouteObject::Tcp(object) => of_connections(&object.spec.rules),
        RouteObject::Udp(object) => of_connections(&object.spec.rules),
    }
}

fn of_requests(route: &HttpRoute) -> Vec<BackendObjectReference> {
    let of_rule = |rule: &HttpRouteRule| {
        let direct = rule.backend_refs.iter().map(HttpBackendRef::object);
        direct.chain(mirrors(rule).chain(authorizers(rule)).cloned()).collect::<Vec<_>>()
    };
    route.rules.iter().flat_map(of_rule).collect()
}

fn of_connections(rules: &[L4RouteRule]) -> Vec<BackendObjectReference> {
    rules.iter().flat_map(|rule| &rule.backend_refs).map(BackendRef::object).collect()
}

/// Finds the backends of one route.
struct Finder<'a> {
    cx: &'a Reads<'a>,
    kind: RouteKind,
    namespace: &'a Arc<str>,
    domain: &'a str,
    /// Services of other namespaces need a ReferenceGrant.
    needs_grant: bool,
}

impl Finder<'_> {
    fn find(&self, reference: &BackendObjectReference) -> Backend {
        let service = match (&*reference.group, &*reference.kind) {
            ("", "Service") => self.service(reference),
            ("networking.istio.io", "Hostname") => self.host(reference),
            _ if pools::is_pool(reference) && self.needs_grant && pools::are_backends_of(self.kind) => {
                return Backend { target: self.pool(reference) };
            }
            (group, kind) => {
                let message = format!("referencing unsupported backendRef: group {group:?} kind {kind:?}");
                Err(problem(BackendReason::InvalidKind, message))
            }
        };
        Backend { target: service.and_then(|service| self.port(service, reference.port)) }
    }

    /// The service and the endpoint picker of an InferencePool. As in Istio, the port of the reference does not matter.
    fn pool(&self, reference: &BackendObjectReference) -> Result<Target, BackendProblem> {
        let id = self.permitted(reference, ToKind::InferencePool)?;
        let pool = self.cx.get::<Pools>(&id).ok_or_else(|| not_found(&reference.name))?;
        Ok(Target { service: pool.service.clone(), port: registry::pools::PORT, picker: pool.picker.clone() })
    }

    /// The object that a reference means. The grant is asked for first, so that nobody learns what exists elsewhere.
    fn permitted(&self, reference: &BackendObjectReference, to: ToKind) -> Result<ObjectId, BackendProblem> {
        let target = id_of(reference, self.namespace);
        let from = FromKind::Route(self.kind);
        let asked = Reference { from, namespace: self.namespace.clone(), to, target };
        if self.needs_grant && !grants::is_allowed(self.cx, &asked) {
            let message = format!(
                "backendRef {}/{} not accessible to a {} in namespace {:?} (missing a ReferenceGrant?)",
                reference.name,
                asked.target.namespace,
                self.kind.name(),
                self.namespace
            );
            return Err(problem(BackendReason::RefNotPermitted, message));
        }
        Ok(asked.target)
    }

    /// The service of a Kubernetes Service.
    fn service(&self, reference: &BackendObjectReference) -> Result<ServiceKey, BackendProblem> {
        let ObjectId { namespace, name } = self.permitted(reference, ToKind::Service)?;
        let host = Hostname::of_service(&name, &namespace, self.domain);
        let key = host.ok().map(|hostname| ServiceKey { hostname, namespace: namespace.clone() });
        key.filter(|key| self.cx.contains::<Services>(key))
            .ok_or_else(|| not_found(&format!("{name}.{namespace}.svc.{}", self.domain)))
    }

    /// The service of a host, preferably one of the route's namespace.
    fn host(&self, reference: &BackendObjectReference) -> Result<ServiceKey, BackendProblem> {
        if reference.namespace.is_some() {
            let message = "namespace may not be set with Hostname type";
            return Err(problem(BackendReason::InvalidKind, message.to_owned()));
        }
        let host = Hostname::parse(&reference.name).ok();
        let services = host.and_then(|host| self.cx.get::<ServicesByHost>(&host));
        let own = services.iter().flat_map(|all| all.iter()).find(|key| key.namespace == *self.namespace);
        let any = services.iter().flat_map(|all| all.iter()).next();
        own.or(any).cloned().ok_or_else(|| not_found(&reference.name))
    }

    /// The port of a service. An alias needs none of its own: the port is that of its target.
    fn port(&self, service: ServiceKey, port: Option<u16>) -> Result<Target, BackendProblem> {
        let Some(port) = port else {
            return Err(problem(BackendReason::BackendNotFound, "port is required in backendRef".to_owned()));
        };
        let udp = self.kind == RouteKind::Udp;
        let fits = |one: &ServicePort| one.number == port && (one.protocol == Protocol::Udp) == udp;
        let has = |key: &ServiceKey| {
            self.cx.with::<Services, _>(key, |service| service.is_some_and(|service| service.ports.iter().any(fits)))
        };
        let aliases = registry::aliases::aliases(self.cx);
        let host = &service.hostname;
        let (found, message) = match aliases.target(host) {
            Some(target) => (
                self.cx.get::<ServicesByHost>(target).is_some_and(|keys| keys.iter().any(has)),
                format!("backend({host}) leads to {target}, which is no service with port {port}"),
            ),
            None => (has(&service), format!("backend({host}) has no port {port}")),
        };
        if !found {
            return Err(problem(BackendReason::BackendNotFound, message));
        }
        Ok(Target { service, port, picker: None })
    }
}

fn problem(reason: BackendReason, message: String) -> BackendProblem {
    BackendProblem { reason, message: message.into() }
}

fn not_found(host: &str) -> BackendProblem {
    problem(BackendReason::BackendNotFound, format!("backend({host}) not found"))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<RouteBackends>();
    b.view::<MeshBackends>();
}
