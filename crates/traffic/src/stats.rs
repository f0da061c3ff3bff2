//! Names in statistics from the patterns `outboundClusterStatName` and `inboundClusterStatName`.

use std::sync::Arc;

use flow::Reads;
use model::service::{Registry, Service, ServiceKey};
use registry::Services;
use registry::inputs::Mesh;

flow::rule! {
    /// The patterns of the mesh; no row without any.
    pub StatPatterns: () => Patterns = "patterns of names in statistics", derive_stat_patterns;
}

/// See [`StatPatterns`]; empty if not set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Patterns {
    /// Outbound.
    pub outbound: Arc<str>,
    /// Inbound.
    pub inbound: Arc<str>,
}

fn derive_stat_patterns(cx: &Reads<'_>, (): &()) -> Option<Patterns> {
    let mesh = cx.get::<Mesh>(&())?;
    let patterns = Patterns {
        outbound: mesh.config.outbound_cluster_stat_name.clone(),
        inbound: mesh.config.inbound_cluster_stat_name.clone(),
    };
    (patterns != Patterns::default()).then_some(patterns)
}

/// The name of a service's port in the statistics of its clients; none without a pattern.
pub fn outbound(cx: &Reads<'_>, key: &ServiceKey, port: u16, subset: &str) -> Option<Arc<str>> {
    let patterns = cx.get::<StatPatterns>(&())?;
    filled(cx, &patterns.outbound, key, (port, subset, 0))
}

/// The name of a service's port in the statistics of a workload that serves it at the port `target`.
pub fn inbound(cx: &Reads<'_>, key: &ServiceKey, port: u16, target: u16) -> Option<Arc<str>> {
    let patterns = cx.get::<StatPatterns>(&())?;
    filled(cx, &patterns.inbound, key, (port, "", target))
}

fn filled(
    cx: &Reads<'_>,
    pattern: &str,
    key: &ServiceKey,
    (port, subset, target): (u16, &str, u16),
) -> Option<Arc<str>> {
    if pattern.is_empty() {
        return None;
    }
    cx.with::<Services, _>(key, |service| Some(prefix(pattern, service?, port, subset, target).into()))
}

/// Expands a pattern for a service's port. `target` is the workload's port, 0 for outbound.
pub fn prefix(pattern: &str, service: &Service, port: u16, subset: &str, target: u16) -> String {
    let host = service.key.hostname.as_str();
    let short = match service.registry {
        Registry::Kubernetes | Registry::Import | Registry::Pool => {
            format!("{}.{}", service.object.name, service.key.namespace)
        }
        Registry::ServiceEntry => host.to_owned(),
    };
    let port_name = service.port(port).map_or("", |port| &*port.name);
    let values = [
        ("%SERVICE%", &*short),
        ("%SERVICE_NAME%", short_name(service)),
        ("%SERVICE_FQDN%", host),
        ("%SUBSET_NAME%", subset),
        ("%TARGET_PORT%", &target.to_string()),
        ("%SERVICE_PORT%", &port.to_string()),
        ("%SERVICE_PORT_NAME%", port_name),
    ];
    values.into_iter().fold(pattern.to_owned(), |name, (operator, value)| name.replace(operator, value))
}

/// The short name of a Kubernetes service; the hostname of others.
pub fn short_name(service: &Service) -> &str {
    match service.registry {
        Registry::Kubernetes | Registry::Import | Registry::Pool => &service.object.name,
        Registry::ServiceEntry => service.key.hostname.as_str(),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<StatPatterns>();
}
