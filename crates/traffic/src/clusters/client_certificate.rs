//! Clusters with the certificate that a Gateway of the Gateway API presents to backends.

use std::sync::Arc;

use flow::Reads;
use gateway_api::backend_policy::{BackendPolicies, BackendTls, ServicePortKey};
use model::audience::{ClusterKey, OutboundKey, ResourceKey};

use super::Entry;
use crate::policy::{effective, merged};

/// Sets the certificate in the clusters whose TLS is that of a BackendTLSPolicy. All others are shared with clients without one.
pub(super) fn present(cx: &Reads<'_>, certificate: &Arc<str>, entries: &mut [Entry]) {
    for (_, key) in entries {
        if let ResourceKey::Cluster(ClusterKey::Outbound(key)) = key
            && !key.sni_passthrough
            && has_tls(cx, key)
        {
            key.client_certificate = Some(certificate.clone());
        }
    }
}

/// Whether a BackendTLSPolicy decides the TLS of a cluster. A DestinationRule that does so wins.
fn has_tls(cx: &Reads<'_>, key: &OutboundKey) -> bool {
    let port = ServicePortKey { service: key.service.clone(), port: key.port };
    let by_policy = cx.with::<BackendPolicies, _>(&port, |row| {
        row.is_some_and(|policy| matches!(policy.tls, Some(BackendTls::Settings(_))))
    });
    by_policy && effective(merged(cx, key.policy.as_ref()).as_deref(), &key.subset, key.port).tls.is_none()
}
