//! Facts for the statuses of GatewayClasses, Gateways, ListenerSets, routes, policies and InferencePools.
//!
//! ```text
//! KnownClasses ─► ClassStandings
//! XMeshes ─► MeshStandings
//! ClientCertificates ─► GatewayFacts
//! ListenersByOwner, CertificateProblems, ClientVerifications, RoutesByListener, GatewayAddresses ─► GatewayFacts ─┬─► GatewayStandings
//! ListenersByOwner, CertificateProblems, RoutesByListener ─► SetStandings ◄─────────────────────────────────────┘        ▲
//!                                                            SetStandings ─► AcceptedSets ───────────────────────────────┘
//! Attachments, RouteBackends, MeshAttachments, MeshBackends, the rules of the route, GatewayControllers ─► RouteStandings
//! RefusedObjects ─► GatewayFacts, SetStandings, RouteStandings, …PolicyStandings, of objects without a valid version
//! Pools, RoutesByPool, Attachments ─► PoolStandings
//! RoutesByBackend, Attachments ─► GatewaysOfBackend ─┬─► TlsPolicyStandings, TrafficPolicyStandings
//! Services, Definitions, policies by target ─────────┘
//! ```
//!
//! Conditions and messages are those of the Gateway API's specification and of Istio; DESIGN.md has the sources.

mod addresses;
mod ancestors;
mod classes;
mod dropped;
mod gateways;
mod listeners;
mod policies;
mod pools;
mod refused;
mod routes;
mod sets;

use model::standing::{Fact, condition};

pub use classes::{ClassStandings, MeshStandings};
pub use gateways::GatewayStandings;
pub use policies::{TlsPolicyStandings, TrafficPolicyStandings};
pub use pools::PoolStandings;
pub use routes::RouteStandings;
pub use sets::SetStandings;

/// The message of a condition of a listener without problem.
const NO_ERRORS: &str = "No errors found";

/// The condition `ResolvedRefs` for these problems, each a reason and a message: the first reason, and all messages.
fn resolved<'a>(
    problems: impl IntoIterator<Item = (&'static str, &'a str)>,
    without: impl FnOnce() -> &'static str,
) -> Fact {
    let mut first = None;
    let mut messages: Vec<&str> = Vec::new();
    for (reason, message) in problems {
        first.get_or_insert(reason);
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    match first {
        Some(reason) => Fact::no(condition::RESOLVED, reason, messages.join("; ")),
        None => Fact::yes(condition::RESOLVED, condition::RESOLVED, without()),
    }
}

/// Adds the rules of this module.
pub(crate) fn register(b: &mut flow::Builder) {
    classes::register(b);
    listeners::register(b);
    addresses::register(b);
    gateways::register_facts(b);
    sets::register(b);
    gateways::register(b);
    routes::register(b);
    policies::register(b);
    pools::register(b);
}
