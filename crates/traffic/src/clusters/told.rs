//! Clusters of the services that proxies send logs and traces to: they are there for a client whatever it sees otherwise.

use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::tls::ClientFacts;
use names::{ClusterName, Hostname};
use security::telemetry::TelemetryServices;

use super::{Entry, add_service};
use crate::scope::{Ports, VisibleService};

/// Adds the clusters that are not there yet.
pub(super) fn add(cx: &Reads<'_>, scope: &Scope, client: ClientFacts, entries: &mut Vec<Entry>) {
    let Some(told) = cx.get::<TelemetryServices>(&()) else {
        return;
    };
    for (service, port) in told.iter() {
        let name = ClusterName::outbound(*port, "", service.hostname.as_str()).to_string();
        if entries.iter().all(|(there, _)| **there != *name) {
            add_service(cx, scope, &only(service, *port), client, entries);
        }
    }
}

/// The service that a client who sees none of this host and port sends logs or traces to.
pub(super) fn find(cx: &Reads<'_>, host: &Hostname, port: u16) -> Option<VisibleService> {
    let told = cx.get::<TelemetryServices>(&())?;
    let (service, port) = told
        .iter()
        .find(|(service, number)| service.hostname == *host && *number == port)?;
    Some(only(service, *port))
}

fn only(service: &model::service::ServiceKey, port: u16) -> VisibleService {
    VisibleService {
        key: service.clone(),
        ports: Ports::Only(Arc::from([port])),
    }
}
