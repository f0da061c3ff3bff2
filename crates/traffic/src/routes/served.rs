//! Services that have a port or a host.

use flow::Reads;
use model::service::ServiceKey;
use names::Hostname;

use crate::scope::{ServicesByPort, VisibleService};

/// The services with this port, of any protocol, ascending.
pub(super) fn services_with<'s>(cx: &Reads<'_>, services: &'s [VisibleService], port: u16) -> Vec<&'s VisibleService> {
    let Some(with_port) = cx.get::<ServicesByPort>(&port) else {
        return Vec::new();
    };
    // Both are ordered by hostname and namespace.
    let mut rest = with_port.iter().peekable();
    let mut has_port = |key: &ServiceKey| {
        while rest.next_if(|other| *other < key).is_some() {}
        rest.peek().is_some_and(|other| *other == key)
    };
    services.iter().filter(|s| has_port(&s.key) && s.ports.include(port)).collect()
}

/// Whether one of these services, ascending, has this host or, for a wildcard, an overlapping one.
pub(super) fn is_served<'s, S>(services: &'s [S], key: impl Fn(&'s S) -> &'s ServiceKey, host: &Hostname) -> bool {
    if host.is_wildcard() {
        return services.iter().any(|service| key(service).hostname.matches(host));
    }
    services.binary_search_by(|service| key(service).hostname.cmp(host)).is_ok()
}
