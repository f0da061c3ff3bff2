//! The virtual host for requests to hosts that nobody knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow::Reads;
use model::audience::{DestinationRef, RoutesKey, Scope, VirtualHostContent, VirtualHostSpec};
use names::Hostname;
use resources::istio::Destination;

use super::bind;
use crate::policy::policy_for;
use crate::scope::{self, OutboundPolicy};

/// `allow_any` or `block_all`, as the scope's policy for unknown destinations says.
pub(super) fn virtual_host(cx: &Reads<'_>, scope: &Arc<Scope>) -> Arc<VirtualHostSpec> {
    let (name, content) = match &scope::outbound_policy(cx, scope) {
        OutboundPolicy::RegistryOnly => ("block_all", VirtualHostContent::BlockAll),
        OutboundPolicy::AllowAny { egress_proxy: None } => ("allow_any", VirtualHostContent::AllowAny),
        OutboundPolicy::AllowAny {
            egress_proxy: Some(proxy),
        } => {
            let routes = through(cx, scope, proxy).map(|key| VirtualHostContent::Routes(vec![key]));
            ("allow_any", routes.unwrap_or(VirtualHostContent::BlockAll))
        }
    };
    Arc::new(VirtualHostSpec {
        name: name.into(),
        domains: vec!["*".into()],
        content,
        require_tls: false,
    })
}

/// The default routes of the service that unknown traffic is sent through.
fn through(cx: &Reads<'_>, scope: &Arc<Scope>, proxy: &Destination) -> Option<Arc<RoutesKey>> {
    let host = Hostname::parse(&proxy.host).ok()?;
    let port = u16::try_from(proxy.port.as_ref()?.number).ok()?;
    let service = scope::find(cx, scope, &host).map(|s| s.key);
    let policy = service.as_ref().and_then(|key| policy_for(cx, scope, key));
    let meant = DestinationRef { service, policy };
    Some(Arc::new(RoutesKey {
        virtual_service: None,
        host: host.clone(),
        port,
        gateway: None,
        source: Arc::new(bind::nobody()),
        destinations: Arc::new(BTreeMap::from([(host, meant)])),
    }))
}
