//! Endpoints that receive plain text although they support the mesh's mutual TLS.

use std::sync::Arc;

use config::istio::ClientTlsMode;
use flow::Reads;
use model::service::{Endpoint, ServiceKey};
use security::plain::{self, Places};
use traffic::policy::EffectivePolicy;

/// The endpoints of a service for which PeerAuthentications disable mutual TLS. Usually there are none.
#[derive(Default)]
pub(crate) struct Plain {
    found: Option<Arc<Places>>,
}

impl Plain {
    /// Finds the plain-text endpoints among those of the service. `None`: all of them, because a rule sets another TLS
    /// mode. `ISTIO_MUTUAL` in a rule overrides PeerAuthentications.
    pub(crate) fn of(
        cx: &Reads<'_>,
        service: &ServiceKey,
        policy: &EffectivePolicy<'_>,
        endpoints: &[Endpoint],
    ) -> Option<Plain> {
        match policy.tls.map(|tls| tls.mode) {
            None => Some(Plain { found: plain::of_service(cx, service, endpoints) }),
            Some(ClientTlsMode::IstioMutual) => Some(Plain::default()),
            Some(_) => None,
        }
    }

    /// Whether an endpoint receives plain text at this port of its workload.
    pub(super) fn has(&self, endpoint: &Endpoint, port: u16) -> bool {
        self.found.as_ref().is_some_and(|found| plain::has(found, endpoint, port))
    }
}
