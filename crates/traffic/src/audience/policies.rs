//! Security policies that select a proxy's workload.

use config::istio::{AuthorizationPolicy, RequestAuthentication};
use model::audience::Policies;
use model::proxy::ProxyKind;
use security::selection;

use super::facts::Facts;

/// The policies of a sidecar's workload or of a gateway; none for proxies that do not enforce them.
pub(super) fn of(facts: &Facts<'_>) -> Policies {
    let (cx, root, namespace, labels) = (facts.cx, facts.root(), &facts.proxy.namespace, facts.labels);
    match facts.proxy.kind {
        ProxyKind::Sidecar | ProxyKind::Router => Policies {
            authorization: selection::of_workload::<AuthorizationPolicy>(cx, root, namespace, labels),
            authentication: selection::of_workload::<RequestAuthentication>(cx, root, namespace, labels),
        },
        ProxyKind::Grpc => Policies::default(),
    }
}
