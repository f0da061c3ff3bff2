//! Conflicts between objects: an object that is overridden by another, or a reference that does not resolve.
//!
//! Validation reports errors of an object by itself. Conflicts do not depend on connected proxies, except between
//! Gateways. They are derived for watched objects only.

mod attached;
mod authorization;
mod claims;
mod connections;
mod credentials;
mod entries;
mod gateways;
mod kube_routes;
mod leaders;
mod peer_authentication;
mod policies;
mod proxy_configs;
mod references;
mod request_authentication;
mod routes;
mod scopes;
mod selectors;
mod targets;

pub use authorization::AuthorizationPolicyConflicts;
pub use entries::ServiceEntryConflicts;
pub use gateways::GatewayConflicts;
pub use kube_routes::RouteConflicts;
pub use leaders::VirtualServicesByHost;
pub use peer_authentication::PeerAuthenticationConflicts;
pub use policies::DestinationRuleConflicts;
pub use proxy_configs::ProxyConfigConflicts;
pub use request_authentication::RequestAuthenticationConflicts;
pub use routes::VirtualServiceConflicts;
pub use scopes::SidecarConflicts;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind, ObjectKey};
use model::service::{ExportTo, ObjectId};

use crate::virtual_service::{Summary, precedence};

/// The conflicts of one object, in the order of its fields; never empty.
pub type Conflicts = Arc<[Diagnostic]>;

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    selectors::register(b);
    references::register(b);
    claims::register(b);
    routes::register(b);
    kube_routes::register(b);
    gateways::register(b);
    policies::register(b);
    entries::register(b);
    scopes::register(b);
    proxy_configs::register(b);
    peer_authentication::register(b);
    authorization::register(b);
    request_authentication::register(b);
}

/// A row of these conflicts; none without any.
fn row(conflicts: Vec<Diagnostic>) -> Option<Conflicts> {
    (!conflicts.is_empty()).then(|| conflicts.into())
}

/// The namespaces that see both and give the rival precedence, as text.
fn overruled_in(own: &Summary, rival: &Summary) -> Option<String> {
    let first = |namespace: &str| precedence(rival, own, namespace).is_lt();
    let those: BTreeSet<&Arc<str>> = match (&own.export_to, &rival.export_to) {
        (ExportTo::All, ExportTo::All) => return first("").then(|| "all namespaces".to_owned()),
        (ExportTo::Namespaces(_), ExportTo::All) => return None,
        (ExportTo::All, ExportTo::Namespaces(theirs)) => theirs.iter().collect(),
        (ExportTo::Namespaces(own), ExportTo::Namespaces(theirs)) => own.intersection(theirs).collect(),
    };
    let those: Vec<&str> = those.into_iter().map(|n| &**n).filter(|n| first(n)).collect();
    match those[..] {
        [] => None,
        [one] => Some(format!("the namespace {one}")),
        _ => Some(format!("the namespaces {}", those.join(", "))),
    }
}

fn diagnostic(
    kind: Kind,
    id: &ObjectId,
    code: &'static str,
    path: FieldPath,
    message: String,
    hint: &str,
) -> Diagnostic {
    let object = ObjectKey::new(kind, &*id.namespace, &*id.name);
    Diagnostic::warning(object, code, path, message, hint)
}

/// The conflict that another object has precedence over this one.
fn conflict(kind: Kind, id: &ObjectId, path: FieldPath, message: String, hint: &str) -> Diagnostic {
    diagnostic(kind, id, Diagnostic::CONFLICT, path, message, hint)
}
