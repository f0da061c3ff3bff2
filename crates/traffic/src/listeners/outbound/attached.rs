//! TCPRoutes and TLSRoutes of services. Beside VirtualServices, the order is that of HTTPRoutes.

use std::sync::Arc;

use flow::Reads;
use gateway_api::backends::UNKNOWN_SERVICE;
use gateway_api::connections::MeshShares;
use gateway_api::mesh::{self, Connections, FrontendConnections, Layer};
use ipnet::IpNet;
use model::audience::Scope;
use model::listener::ChainKind;
use model::service::ServiceKey;

use super::plain::Plain;
use crate::gateways;
use crate::listeners::chain::{self, Chain};
use crate::listeners::l4::Router;
use crate::routes::precede;
use crate::virtual_service::Summary;

/// The routes of connections to a port of a service, for one client.
pub(super) struct Attached {
    is_for_all: bool,
    connections: Arc<Connections>,
}

impl Attached {
    /// None without routes.
    pub(super) fn of(cx: &Reads<'_>, scope: &Scope, service: &ServiceKey, port: u16) -> Option<Attached> {
        let frontend = mesh::applying(cx, service, (port, Layer::Connections), &scope.namespace)?;
        let connections = (*cx.get::<FrontendConnections>(&frontend)?).clone();
        Some(Attached { is_for_all: frontend.consumer.is_none(), connections })
    }

    /// Whether they precede a VirtualService.
    pub(super) fn precede(&self, other: &Summary, service: &ServiceKey) -> bool {
        precede((self.is_for_all, self.connections.created), other, &service.hostname)
    }

    /// Their filter chains at these addresses. Connections with another server name are closed, as requests that no route
    /// matches get 404.
    pub(super) fn chains(&self, router: &Router<'_>, plain: &Plain, subnets: &[IpNet]) -> Vec<Chain> {
        let place = |sni: Vec<Arc<str>>, kind| Chain { sni, subnets: subnets.to_vec(), ..Chain::any(kind) };
        let mut chains = Vec::new();
        let mut all = false;
        for (host, route) in &self.connections.routes {
            let Some(shares) = router.cx.get::<MeshShares>(route) else { continue };
            let tcp = gateways::proxy(router, route, &shares).speaking(plain.protocol);
            all |= host.is_everything();
            let sni = if host.is_everything() { plain.names.to_vec() } else { vec![host.as_arc().clone()] };
            chains.push(place(sni, ChainKind::Tcp(tcp)));
        }
        if !all {
            chains.push(place(plain.names.to_vec(), chain::to_cluster(UNKNOWN_SERVICE)));
        }
        chains
    }
}
