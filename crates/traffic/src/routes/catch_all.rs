//! The virtual host for requests to unknown hosts.

use std::sync::Arc;

use config::istio::Destination;
use flow::Reads;
use model::audience::{Scope, VirtualHostContent, VirtualHostSpec};
use names::ClusterName;

use crate::listeners::chain::PASSTHROUGH;
use crate::scope::{self, OutboundPolicy};

/// `allow_any`, `allow_any_dynamic_dns` or `block_all`, by the scope's policy for unknown destinations.
pub(super) fn virtual_host(cx: &Reads<'_>, scope: &Arc<Scope>) -> Arc<VirtualHostSpec> {
    let (name, content) = match &scope::outbound_policy(cx, scope) {
        OutboundPolicy::RegistryOnly => ("block_all", VirtualHostContent::BlockAll),
        OutboundPolicy::ByName => ("allow_any_dynamic_dns", VirtualHostContent::DynamicForwardProxy),
        OutboundPolicy::AllowAny { egress_proxy } => {
            let cluster = match egress_proxy {
                Some(proxy) => through(proxy),
                None => Some(PASSTHROUGH.into()),
            };
            let content = cluster.map_or(VirtualHostContent::BlockAll, VirtualHostContent::AllowAny);
            ("allow_any", content)
        }
    };
    Arc::new(VirtualHostSpec {
        name: name.into(),
        overrides: None,
        domains: vec!["*".into()],
        content,
        require_tls: false,
        session: None,
    })
}

/// The cluster of traffic to unknown destinations.
fn through(proxy: &Destination) -> Option<Arc<str>> {
    let port = u16::try_from(proxy.port.as_ref()?.number).ok()?;
    let cluster = ClusterName::outbound(port, proxy.subset.clone(), proxy.host.clone());
    Some(cluster.to_string().into())
}
