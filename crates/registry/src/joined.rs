//! Joins ServiceEntries of one hostname and namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::service::Service;

/// A service with the ports and addresses of later ServiceEntries that are otherwise equal to clients. Existing port
/// numbers and names win. A service without addresses, which matches any address, stays without.
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
            if ports.iter().all(|p| p.number != port.number && p.name != port.name) {
                ports.push(port.clone());
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

/// The same addresses in the same order without duplicates.
pub(crate) fn once_each(addresses: Vec<IpNet>) -> Vec<IpNet> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().filter(|address| seen.insert(*address)).collect()
}
