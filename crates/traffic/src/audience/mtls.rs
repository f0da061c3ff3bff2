//! Inbound mTLS of a workload, as far as its proxy can serve it.

use std::sync::Arc;

use model::mtls::{Mode, MtlsModes, labelled};
use model::proxy::Proxy;
use model::tls::OwnFiles;
use security::peers;

use super::facts::Facts;

/// The modes of a sidecar's workload. A proxy without certificates accepts plain text only where the mode is permissive.
pub(super) fn modes(facts: &Facts<'_>) -> Arc<MtlsModes> {
    let modes = peers::of_workload(facts.cx, facts.root(), &facts.proxy.namespace, facts.labels);
    Arc::new(match facts.proxy.has_agent() {
        true => modes,
        false => modes.without_certificates(),
    })
}

/// The ports of a gRPC server that require mutual TLS. A gRPC server cannot accept both; in permissive mode clients
/// follow the workload's label.
pub(super) fn of_grpc(facts: &Facts<'_>, served: &[u16]) -> Arc<[u16]> {
    let modes = peers::of_workload(facts.cx, facts.root(), &facts.proxy.namespace, facts.labels);
    let requires = |port: &&u16| match modes.at(**port) {
        Mode::Disable => false,
        Mode::Permissive => labelled(facts.labels) == Some(true),
        Mode::Strict => true,
    };
    served.iter().filter(requires).copied().collect()
}

/// The certificate files that a proxy's metadata names, which replace the agent's certificates.
pub(super) fn files(proxy: &Proxy) -> Arc<OwnFiles> {
    let path = |key: &str| proxy.metadata.get(key).filter(|path| !path.is_empty()).cloned();
    let pair = path("TLS_SERVER_CERT_CHAIN").zip(path("TLS_SERVER_KEY"));
    Arc::new(OwnFiles {
        pair: pair.filter(|_| proxy.has_agent()),
        authorities: path("TLS_SERVER_ROOT_CERT").filter(|_| proxy.has_agent()),
    })
}
