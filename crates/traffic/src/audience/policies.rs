//! Security policies that select a proxy's workload.

use config::istio::{AuthorizationPolicy, RequestAuthentication};
use model::audience::{Policies, PolicyIds};
use model::proxy::ProxyKind;
use model::service::ObjectId;
use security::authorization::EnforcedByGrpc;
use security::selection::{self, Targeted};

use super::facts::Facts;

/// The policies of a sidecar's workload or of a gateway; none for proxies that do not enforce them.
pub(super) fn of(facts: &Facts<'_>) -> Policies {
    match facts.proxy.kind {
        ProxyKind::Sidecar | ProxyKind::Router => Policies {
            authorization: of_kind::<AuthorizationPolicy>(facts),
            authentication: of_kind::<RequestAuthentication>(facts),
        },
        ProxyKind::Grpc => Policies::default(),
    }
}

/// The AuthorizationPolicies of a gRPC server that it enforces.
pub(super) fn of_grpc(facts: &Facts<'_>) -> PolicyIds {
    let selected = of_kind::<AuthorizationPolicy>(facts);
    let enforced = |id: &&ObjectId| facts.cx.with::<EnforcedByGrpc, _>(*id, |action| action.is_some());
    selected.iter().filter(enforced).cloned().collect()
}

fn of_kind<P: Targeted>(facts: &Facts<'_>) -> PolicyIds {
    selection::of_workload::<P>(facts.cx, facts.root(), &facts.proxy.namespace, facts.labels)
}
