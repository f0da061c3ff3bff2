//! What is to be said of an object because of others: that another goes before it, or that what it names is not there.
//!
//! What is wrong with an object by itself is validation's. None of this depends on which proxies are connected, but for where
//! Gateways meet; it is derived for the objects that somebody watches.

mod connections;
mod entries;
mod gateways;
mod peer_authentication;
mod policies;
mod proxy_configs;
mod routes;
mod scopes;

pub use entries::ServiceEntryConflicts;
pub use gateways::GatewayConflicts;
pub use peer_authentication::PeerAuthenticationConflicts;
pub use policies::DestinationRuleConflicts;
pub use proxy_configs::ProxyConfigConflicts;
pub use routes::{VirtualServiceConflicts, VirtualServicesByHost};
pub use scopes::SidecarConflicts;

use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind, Object, ObjectKey};
use model::service::ObjectId;

/// The conflicts on one object, in the order of its fields; never empty.
pub type Conflicts = Arc<[Diagnostic]>;

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    routes::register(b);
    policies::register(b);
    gateways::register(b);
    entries::register(b);
    scopes::register(b);
    proxy_configs::register(b);
    peer_authentication::register(b);
}

/// A row of them; none if there is nothing to say.
fn row(conflicts: Vec<Diagnostic>) -> Option<Conflicts> {
    (!conflicts.is_empty()).then(|| conflicts.into())
}

/// The oldest of these objects that is older than one of them and covers it: that one is for nobody.
fn older<T>(
    own: &Object<T>,
    all: impl IntoIterator<Item = Arc<Object<T>>>,
    covers: impl Fn(&T, &T) -> bool,
) -> Option<Arc<Object<T>>> {
    all.into_iter()
        .filter(|other| other.meta.by_age(&own.meta).is_lt() && covers(&other.spec, &own.spec))
        .min_by(|a, b| a.meta.by_age(&b.meta))
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

/// The conflict that another object goes before this one.
fn conflict(kind: Kind, id: &ObjectId, path: FieldPath, message: String, hint: &str) -> Diagnostic {
    diagnostic(kind, id, Diagnostic::CONFLICT, path, message, hint)
}
