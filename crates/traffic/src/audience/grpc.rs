//! Builds the audience of proxyless gRPC clients and servers.

use model::audience::GrpcAudience;
use model::proxy::ProxyKind;

use super::facts::Facts;
use super::{inbound, mtls, policies};

/// The audience of a gRPC client or server; none for other classes.
pub(super) fn audience(facts: &Facts<'_>) -> Option<GrpcAudience> {
    if facts.proxy.kind != ProxyKind::Grpc {
        return None;
    }
    let served = inbound::served(facts);
    Some(GrpcAudience {
        scope: facts.scope.clone(),
        domain: facts.proxy.dns_domain.clone(),
        mutual_tls: mtls::of_grpc(facts, &served),
        inbound: served,
        policies: policies::of_grpc(facts),
    })
}
