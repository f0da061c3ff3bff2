//! Joins ServiceEntries of one hostname and namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::service::{Service, ServicePort};

/// A service with the ports and addresses of later ServiceEntries that are otherwise equal to clients. Existing port
/// numbers win. A port whose name another number already has gets a name of its own, because endpoints refer to ports by
/// name. A service without addresses, which matches any address, stays without.
pub(crate) fn joined(first: Arc<Service>, later: &[Arc<Service>]) -> Arc<Service> {
    let alike = |s: &&Arc<Service>| {
        s.registry == first.registry
            && s.resolution == first.resolution
            && s.labels == first.labels
            && s.export_to == first.export_to
    };
    let (mut ports, mut addresses) = (first.ports.clone(), first.addresses.clone());
    for service in later.iter().filter(alike) {
        for port in &service.ports {
            if ports.iter().all(|p| p.number != port.number) {
                let name = unused_name(port, &ports);
                ports.push(ServicePort { name, ..port.clone() });
            }
        }
        if !first.addresses.is_empty() {
            addresses.extend(&service.addresses);
        }
    }
    let addresses = once_each(addresses);
    if ports.len() == first.ports.len() && addresses.len() == first.addresses.len() {
        return first;
    }
    ports.sort_by_key(|p| p.number);
    Arc::new(Service { ports, addresses, ..(*first).clone() })
}

/// The name of a port, with its number (`NAME-NUMBER`) if one of the other ports has the name.
fn unused_name(port: &ServicePort, others: &[ServicePort]) -> Arc<str> {
    let mut name = port.name.clone();
    while others.iter().any(|other| other.name == name) {
        name = format!("{name}-{}", port.number).into();
    }
    name
}

/// The same addresses in the same order without duplicates.
pub(crate) fn once_each(addresses: Vec<IpNet>) -> Vec<IpNet> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(*address)).collect()
}
