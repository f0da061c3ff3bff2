//! Keys of routes: a VirtualService or a service's default route, with its destinations as a client resolves them.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow::Reads;
use model::audience::{DestinationRef, PolicyKey, RoutesKey, Scope, Source};
use model::proxy::Labels;
use model::service::{ObjectId, ServiceKey};
use names::Hostname;

use crate::policy::policy_for;
use crate::scope::{self, Visible};
use crate::virtual_service::Summary;

/// The routes of a VirtualService for a host, port, gateway (none for sidecars) and client. The key contains only the
/// client facts that the VirtualService tests, so that many clients share it.
pub fn bind(
    cx: &Reads<'_>,
    scope: &Scope,
    visible: &Visible,
    summary: &Summary,
    at: (&Hostname, u16, Option<&ObjectId>),
    source: &Source,
) -> Arc<RoutesKey> {
    let find = |host: &Hostname| visible.find(host).map(|s| s.key.clone());
    bind_with(cx, scope, &find, summary, at, source)
}

/// As [`bind`], with another way to find services.
pub(super) fn bind_with(
    cx: &Reads<'_>,
    scope: &Scope,
    find: &dyn Fn(&Hostname) -> Option<ServiceKey>,
    summary: &Summary,
    at: (&Hostname, u16, Option<&ObjectId>),
    source: &Source,
) -> Arc<RoutesKey> {
    let (host, port, gateway) = at;
    let aliases = registry::aliases::aliases(cx);
    let meant = |host: &Hostname| {
        let service = find(scope::behind(&aliases, find, host));
        let policy = service.as_ref().and_then(|key| policy_for(cx, scope, key));
        (host.clone(), DestinationRef { service, policy })
    };
    let destinations: BTreeMap<Hostname, DestinationRef> = summary.http_destinations.iter().map(meant).collect();
    Arc::new(RoutesKey {
        virtual_service: Some(summary.id.clone()),
        overrides: None,
        host: host.clone(),
        port,
        gateway: gateway.cloned(),
        source: Arc::new(summary.cut(port, gateway, source)),
        destinations: destinations.into_iter().collect(),
    })
}

/// The default route of a service, to the service itself.
pub(super) fn default(service: &ServiceKey, port: u16, policy: Option<PolicyKey>) -> Arc<RoutesKey> {
    let meant = DestinationRef { service: Some(service.clone()), policy };
    Arc::new(RoutesKey {
        virtual_service: None,
        overrides: None,
        host: service.hostname.clone(),
        port,
        gateway: None,
        source: Arc::new(unconditional()),
        destinations: Arc::new([(service.hostname.clone(), meant)]),
    })
}

/// The client of routes without conditions on the client.
pub(super) fn unconditional() -> Source {
    Source { namespace: "".into(), labels: Labels::new(), regex_limit: None }
}
