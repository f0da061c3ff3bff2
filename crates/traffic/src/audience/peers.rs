//! What a workload takes on the way in, as far as its proxy can serve it.

use std::sync::Arc;

use flow::Reads;
use model::mtls::{Mode, PeerModes, labelled};
use model::proxy::{Labels, Proxy};
use model::tls::OwnFiles;
use security::peers;

/// What the workload of a sidecar takes. A proxy without certificates takes plain text where it could take both.
pub(super) fn modes(cx: &Reads<'_>, proxy: &Proxy, labels: &Labels, root: &Arc<str>) -> Arc<PeerModes> {
    let modes = peers::of_workload(cx, root, &proxy.namespace, labels);
    Arc::new(match proxy.has_agent() {
        true => modes,
        false => modes.without_certificates(),
    })
}

/// Those of its ports at which a gRPC server takes mutual TLS: it cannot take both, and where it may clients go by the
/// workload's label.
pub(super) fn of_grpc(cx: &Reads<'_>, proxy: &Proxy, labels: &Labels, root: &Arc<str>, served: &[u16]) -> Arc<[u16]> {
    let modes = peers::of_workload(cx, root, &proxy.namespace, labels);
    let takes = |port: &&u16| match modes.at(**port) {
        Mode::Disable => false,
        Mode::Permissive => labelled(labels) == Some(true),
        Mode::Strict => true,
    };
    served.iter().filter(takes).copied().collect()
}

/// The files that the metadata of a proxy names in the place of what its agent has.
pub(super) fn files(proxy: &Proxy) -> Arc<OwnFiles> {
    let path = |key: &str| proxy.metadata.get(key).filter(|path| !path.is_empty()).cloned();
    let pair = path("TLS_SERVER_CERT_CHAIN").zip(path("TLS_SERVER_KEY"));
    Arc::new(OwnFiles {
        pair: pair.filter(|_| proxy.has_agent()),
        authorities: path("TLS_SERVER_ROOT_CERT").filter(|_| proxy.has_agent()),
    })
}
