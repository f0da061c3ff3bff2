//! Clusters of the services that proxies call themselves: those that receive logs and traces, and those that authorize
//! requests. Every client has them, whether or not it sees the service. Gateways also have those of InferencePools and of their
//! endpoint pickers, if routes refer to the pools.

use std::sync::Arc;

use flow::Reads;
use gateway_api::pools::PoolServices;
use model::audience::Scope;
use model::service::ServiceKey;
use model::tls::ClientFacts;
use names::{ClusterName, Hostname};
use security::authorization::AuthorizationServices;
use security::telemetry::TelemetryServices;

use super::{Entry, add_service};
use crate::scope::{Ports, VisibleService};

/// Services with a port.
type Backends = Arc<[(ServiceKey, u16)]>;

fn backends(cx: &Reads<'_>, gateway: bool) -> [Option<Arc<Backends>>; 3] {
    let pools = if gateway { cx.get::<PoolServices>(&()) } else { None };
    [cx.get::<TelemetryServices>(&()), cx.get::<AuthorizationServices>(&()), pools]
}

/// Adds the missing clusters of these hosts.
pub(super) fn add(
    cx: &Reads<'_>,
    scope: &Scope,
    client: ClientFacts,
    wanted: impl Fn(&Hostname) -> bool,
    entries: &mut Vec<Entry>,
) {
    for services in backends(cx, client.gateway).iter().flatten() {
        for (service, port) in services.iter().filter(|(service, _)| wanted(&service.hostname)) {
            let name = ClusterName::outbound(*port, "", service.hostname.as_str()).to_string();
            if entries.iter().all(|(present, _)| **present != *name) {
                add_service(cx, scope, &only(service, *port), client, entries);
            }
        }
    }
}

/// The service of this host and port, for clients that do not see it otherwise.
pub(super) fn find(cx: &Reads<'_>, host: &Hostname, port: u16) -> Option<VisibleService> {
    let backends = backends(cx, true);
    let mut services = backends.iter().flatten().flat_map(|services| services.iter());
    let (service, port) = services.find(|(service, number)| service.hostname == *host && *number == port)?;
    Some(only(service, *port))
}

fn only(service: &ServiceKey, port: u16) -> VisibleService {
    VisibleService { key: service.clone(), ports: Ports::Only(Arc::from([port])) }
}
