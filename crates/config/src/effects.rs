//! Kinds and fields that are read but have no effect. Objects with such fields get a warning.
//!
//! [`KINDS_NOT_YET`] lists the kinds that are not implemented yet: remove an entry when it is implemented. Fields declare
//! that they have no effect: `warn "not-implemented-yet" "…"`, or `"not-served"` if only other components use them.

use Kind::*;

use crate::decode::Problem;
use crate::object::Kind;
use crate::problem::{FieldPath, Severity};
use crate::yaml::Node;

/// The code of the warnings.
pub const CODE: &str = "not-implemented-yet";

/// The code of diagnostics for fields that only other components use.
pub const ELSEWHERE_CODE: &str = "not-served";

/// Kinds without effect. Their objects are read and validated.
pub const KINDS_NOT_YET: &[Kind] = &[
    Telemetry,
    WasmPlugin,
    TrafficExtension,
    GatewayClass,
    KubeGateway,
    ListenerSet,
    HttpRoute,
    GrpcRoute,
    TlsRoute,
    TcpRoute,
    UdpRoute,
    ReferenceGrant,
    BackendTlsPolicy,
    BackendTrafficPolicy,
    InferencePool,
];

/// The diagnostic for an object of a kind without effect.
pub(crate) fn of_object(kind: Kind, root: &Node) -> Option<Problem> {
    let idle = KINDS_NOT_YET.contains(&kind) && !is_network_gateway(kind, root) && !is_secret_grant(kind, root);
    idle.then(|| Problem {
        path: FieldPath::root(),
        at: root.at,
        severity: Severity::Warning,
        code: CODE,
        message: format!("the kind {} is not implemented yet and has no effect", kind.name()),
        hint: None,
    })
}

/// Whether an object is a Gateway for a remote network, which has an effect.
fn is_network_gateway(kind: Kind, root: &Node) -> bool {
    let labels = root.get("metadata").and_then(|metadata| metadata.get("labels"));
    kind == KubeGateway && labels.is_some_and(|labels| labels.get("topology.istio.io/network").is_some())
}

/// Whether an object is a ReferenceGrant for Secrets, which has an effect.
fn is_secret_grant(kind: Kind, root: &Node) -> bool {
    let to = root.get("spec").and_then(|spec| spec.get("to"));
    let mut kinds = to.map(Node::items).unwrap_or_default().iter().filter_map(|to| to.get("kind")?.text());
    kind == ReferenceGrant && kinds.any(|kind| &**kind == "Secret")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, parse_documents};

    #[test]
    fn every_kind_without_effect_is_reported_once() {
        for kind in KINDS_NOT_YET {
            let (version, name) = (kind.api_version(), kind.name());
            let text = format!("{{apiVersion: {version}, kind: {name}, metadata: {{name: a}}, spec: {{}}}}");
            let diagnostics = parse_documents(text.as_bytes(), "f", &ParseOptions::default()).diagnostics;
            let found = diagnostics.iter().filter(|d| d.code == CODE && d.path.is_empty());
            assert_eq!(found.count(), 1, "{kind}: {diagnostics:?}");
        }
    }
}
