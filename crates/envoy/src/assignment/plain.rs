//! Endpoints that receive plain text although they support the mesh's mutual TLS.

use std::sync::Arc;

use flow::Reads;
use model::service::{Endpoint, ServiceKey};
use security::plain::{self, Places};

/// The endpoints of a service for which PeerAuthentications disable mutual TLS. Usually there are none.
#[derive(Default)]
pub(crate) struct Plain {
    found: Option<Arc<Places>>,
}

impl Plain {
    /// Finds the plain-text endpoints among those of the service.
    pub(crate) fn of(cx: &Reads<'_>, service: &ServiceKey, endpoints: &[Endpoint]) -> Plain {
        Plain { found: plain::of_service(cx, service, endpoints) }
    }

    /// Whether an endpoint receives plain text at this port of its workload.
    pub(super) fn has(&self, endpoint: &Endpoint, port: u16) -> bool {
        self.found.as_ref().is_some_and(|found| plain::has(found, endpoint, port))
    }
}
