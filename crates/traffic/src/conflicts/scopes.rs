//! Conflicts of `Sidecar`s: others for the same workloads, and TLS that the mesh's mutual TLS overrides.

use config::istio::{IngressListener, Sidecar};
use config::{Diagnostic, FieldPath, Kind, Object};
use flow::Reads;
use model::mtls::Mode;
use model::proxy::Labels;
use model::service::ObjectId;
use registry::inputs::{Mesh, Sidecars};

use super::credentials::MissingOfSidecar;
use super::{Conflicts, conflict, row, selectors};

flow::rule! {
    /// The conflicts of each `Sidecar`.
    pub SidecarConflicts: ObjectId => Conflicts = "conflicts on sidecars", derive_sidecar_conflicts;
}

fn derive_sidecar_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let own = cx.get::<Sidecars>(key)?;
    let mut conflicts = not_opened(cx, key, &own.spec);
    conflicts.extend(covered(cx, key, &own));
    let missing = cx.get::<MissingOfSidecar>(key);
    conflicts.extend(missing.iter().flat_map(|all| all.iter().cloned()));
    row(conflicts)
}

/// TLS of ports that accept the mesh's mutual TLS.
fn not_opened(cx: &Reads<'_>, key: &ObjectId, own: &Sidecar) -> Vec<Diagnostic> {
    let mut listeners = own.ingress.iter().enumerate().filter(|(_, l)| l.tls.is_some()).peekable();
    if listeners.peek().is_none() {
        return Vec::new();
    }
    let everybody = Labels::new();
    let selected = own.workload_selector.as_ref().map_or(&everybody, |selector| &selector.labels);
    let Some(mesh) = cx.get::<Mesh>(&()) else {
        return Vec::new();
    };
    let modes = security::peers::of_workload(cx, &mesh.config.root_namespace, &key.namespace, selected);
    let port = |listener: &IngressListener| u16::try_from(listener.port.as_ref()?.number).ok();
    let taken = listeners.filter(|(_, l)| port(l).is_some_and(|port| modes.at(port) != Mode::Disable));
    let message = "the mesh's mutual TLS applies at this port and takes precedence over this, except for proxies without an agent";
    let hint = "make a PeerAuthentication for these workloads with the mode DISABLE for the port (portLevelMtls)";
    let path = |index| FieldPath::spec().field("ingress").index(index).field("tls");
    let found = |index| conflict(Kind::Sidecar, key, path(index), message.to_owned(), hint);
    taken.map(|(index, _)| found(index)).collect()
}

/// Another one covers all its workloads.
fn covered(cx: &Reads<'_>, key: &ObjectId, own: &Object<Sidecar>) -> Option<Diagnostic> {
    let labels = own.spec.workload_selector.as_ref().map(|selector| &selector.labels);
    let ObjectId { namespace, name } = selectors::covering(cx, Kind::Sidecar, &own.meta, labels)?;
    let message = match own.spec.workload_selector {
        None => {
            format!("Sidecar {namespace}/{name} has no workloadSelector either and is older: this one has no effect")
        }
        Some(_) => {
            format!("Sidecar {namespace}/{name} selects the same workloads and is older: this one has no effect")
        }
    };
    let path = match own.spec.workload_selector {
        None => FieldPath::spec(),
        Some(_) => FieldPath::spec().field("workloadSelector"),
    };
    let hint = "a workload has one Sidecar: remove one of them, or select other workloads";
    Some(conflict(Kind::Sidecar, key, path, message, hint))
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<SidecarConflicts>();
}
