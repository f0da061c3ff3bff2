//! Clusters of the services that proxies send logs and traces to. Every client has them, whether or not it sees the service.

use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::tls::ClientFacts;
use names::{ClusterName, Hostname};
use security::telemetry::TelemetryServices;

use super::{Entry, add_service};
use crate::scope::{Ports, VisibleService};

/// Adds the missing clusters.
pub(super) fn add(cx: &Reads<'_>, scope: &Scope, client: ClientFacts, entries: &mut Vec<Entry>) {
    let Some(services) = cx.get::<TelemetryServices>(&()) else {
        return;
    };
    for (service, port) in services.iter() {
        let name = ClusterName::outbound(*port, "", service.hostname.as_str()).to_string();
        if entries.iter().all(|(present, _)| **present != *name) {
            add_service(cx, scope, &only(service, *port), client, entries);
        }
    }
}

/// The telemetry service of this host and port, for clients that do not see it otherwise.
pub(super) fn find(cx: &Reads<'_>, host: &Hostname, port: u16) -> Option<VisibleService> {
    let services = cx.get::<TelemetryServices>(&())?;
    let (service, port) = services.iter().find(|(service, number)| service.hostname == *host && *number == port)?;
    Some(only(service, *port))
}

fn only(service: &model::service::ServiceKey, port: u16) -> VisibleService {
    VisibleService { key: service.clone(), ports: Ports::Only(Arc::from([port])) }
}
