//! Conflicts of PeerAuthentications: others for the same workloads, and selectors in the root namespace.

use config::istio::PeerAuthentication;
use config::{Diagnostic, FieldPath, Kind, Object};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::{Mesh, PeerAuthentications};
use security::peers;

use super::{Conflicts, conflict, row, selectors};

flow::rule! {
    /// The conflicts of each PeerAuthentication.
    pub PeerAuthenticationConflicts: ObjectId => Conflicts = "conflicts on peer authentications", derive_peer_authentication_conflicts;
}

fn derive_peer_authentication_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<PeerAuthentications>(key)?;
    let in_root = cx.get::<Mesh>(&())?.config.root_namespace == key.namespace;
    let selects = peers::selector(&own.spec).is_some();
    let found = match selects && in_root {
        true => Some(in_vain(key)),
        false => overshadowed(cx, key, &own),
    };
    row(found.into_iter().collect())
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<PeerAuthenticationConflicts>();
}

fn in_vain(key: &ObjectId) -> Diagnostic {
    let message = "in the mesh's root namespace a PeerAuthentication with a selector has no effect".to_owned();
    let hint = "there one without a selector is for the whole mesh; for single workloads make one in their namespace";
    let path = FieldPath::spec().field("selector");
    conflict(Kind::PeerAuthentication, key, path, message, hint)
}

fn overshadowed(cx: &Reads<'_>, key: &ObjectId, own: &Object<PeerAuthentication>) -> Option<Diagnostic> {
    let labels = peers::selector(&own.spec);
    let ObjectId { namespace, name } = selectors::covering(cx, Kind::PeerAuthentication, &own.meta, labels)?;
    let (path, what) = match labels {
        None => (FieldPath::spec(), "has no selector either"),
        Some(_) => (FieldPath::spec().field("selector"), "selects the same workloads"),
    };
    let message = format!("PeerAuthentication {namespace}/{name} {what} and is older: this one has no effect");
    let hint = "of those of a namespace one without a selector and one that selects a workload count: join them";
    Some(conflict(Kind::PeerAuthentication, key, path, message, hint))
}
