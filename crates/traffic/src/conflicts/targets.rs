//! Problems of the objects that a policy is attached to.

use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::service::{ObjectId, SourceId};
use registry::inputs::KubeGateways;
use security::selection::{Place, Targeted};

use super::diagnostic;

/// Reports references of a policy that attach it to nothing.
pub(super) fn problems<P: Targeted>(cx: &Reads<'_>, kind: Kind, key: &ObjectId, spec: &P) -> Vec<Diagnostic> {
    let targets = spec.targets();
    let of_gateway = |place: &Option<Place>| matches!(place, Some(Place::Gateway(_)));
    let places: Vec<Option<Place>> = targets.iter().map(Place::of_target).collect();
    let some_effect = places.iter().any(of_gateway);
    let mut found = Vec::new();
    for (index, (target, place)) in targets.iter().zip(&places).enumerate() {
        let path = FieldPath::spec().field("targetRefs").index(index);
        match place {
            Some(Place::Gateway(name)) => {
                let id = ObjectId { namespace: key.namespace.clone(), name: name.clone() };
                let source = SourceId { cluster: Arc::default(), id };
                if !cx.contains::<KubeGateways>(&source) {
                    let message = format!(
                        "there is no Gateway {name} of the Gateway API in the namespace {}: the policy protects only proxies \
                         whose label names it",
                        key.namespace
                    );
                    let hint = "create the Gateway, or select the workloads with spec.selector";
                    found.push(diagnostic(kind, key, Diagnostic::MISSING_REFERENCE, path, message, hint));
                }
            }
            _ => {
                let code = if some_effect { "unsupported" } else { Diagnostic::WITHOUT_EFFECT };
                let message = format!(
                    "policies for a {} are enforced by waypoints (ambient mode), which are not implemented yet: the \
                     reference has no effect",
                    target.kind
                );
                let hint = "select the workloads with spec.selector";
                found.push(diagnostic(kind, key, code, path, message, hint));
            }
        }
    }
    found
}
