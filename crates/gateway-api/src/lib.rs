//! Rules of the Gateway API: classes, listeners, attached routes, their order and their backends.
//!
//! ```text
//! GatewayClass ─► Classes ─┐
//! Gateway ─► HomeGateways ─┴► OwnPlans ─┬─► GatewayServices ─► GatewaysByService ─► (traffic: audiences)
//!                                       ├─► AllowedSets ─► SetsByGateway
//! ListenerSet ─► SetPlans ──────────────┘
//! OwnPlans, SetPlans, SetsByGateway ─► GatewayPlans ─┬─► (traffic: servers)
//!                                                    └─► ListenersByOwner, HostsOfPort
//! Gateway, ListenerSet ─► ListenerCertificates ─► PermittedCredentials ─► (traffic: servers, secrets)
//! Namespaces ─► SelectedByListener ─┐
//! ListenersByOwner, HostsOfPort ────┤
//! routes ─► RouteSummaries ─────────┴─► Attempts ─► Displaced ─► Attachments ─► RoutesByHost
//! RoutesByHost ─┬─► HostsOfListener ─► (traffic: tables, filter chains)
//!               ├─► HostMatches ─────► (traffic: virtual hosts)
//!               └─► FirstRoutes ─────► (traffic: filter chains)
//! routes, Services ─► MeshAttachments ─► RoutesByFrontend ─► FrontendMatches ─► (traffic: virtual hosts of sidecars)
//! InferencePool, routes, Attachments ─► Pools, PoolServices, PickingGateways ─► (traffic: clusters, filter chains)
//! routes, Services, Pools, ReferenceGrants ─► RouteBackends ─┬─► (traffic: keys; envoy: routes)
//!                                                     └─► Shares ─► (traffic: TCP and UDP proxies)
//! routes ─► FiltersInUse ─► (traffic: listeners)
//! BackendTLSPolicy, XBackendTrafficPolicy, Services, ConfigMaps ─► BackendPolicies ─► (traffic: policies)
//! Gateway, ConfigMaps, Secrets ─┬► ClientVerifications ─► (traffic: servers)
//!                               └► ClientCertificates ─► (traffic: audiences)
//! XMesh ─► MeshStandings
//! all of these ─► ClassStandings, GatewayStandings, SetStandings, RouteStandings ─► (world: statuses)
//! ```
//!
//! Invariants: the crate knows no proxies, no route tables and no protobuf. Listeners are identified by
//! [`ListenerId`](model::kube::ListenerId), never by their position. [`RouteSummary`](route::RouteSummary) has no backends
//! and no filters, so that their changes do not attach a route again.

pub mod attach;
mod authorities;
pub mod backend_policy;
pub mod backends;
pub mod binding;
pub mod certificates;
pub mod class;
pub mod client_certificate;
pub mod conflict;
pub mod connections;
pub mod displaced;
pub mod frontend;
pub mod grants;
pub mod grpc;
pub mod hostnames;
pub mod matches;
pub mod merged;
pub mod mesh;
pub mod namespaces;
pub mod plan;
pub mod pools;
pub mod rank;
pub mod route;
pub mod route_filters;
pub mod rules;
mod service_objects;
pub mod sets;
pub mod standings;

/// Adds this crate's rules to a graph. The rules of `registry` must be there.
pub fn register(b: &mut flow::Builder) {
    grants::register(b);
    class::register(b);
    plan::register(b);
    sets::register(b);
    merged::register(b);
    namespaces::register(b);
    frontend::register(b);
    client_certificate::register(b);
    certificates::register(b);
    binding::register(b);
    route::register(b);
    route_filters::register(b);
    attach::register_attempts(b);
    displaced::register(b);
    attach::register(b);
    matches::register(b);
    mesh::register(b);
    pools::register(b);
    backends::register(b);
    backend_policy::register(b);
    connections::register(b);
    standings::register(b);
}
