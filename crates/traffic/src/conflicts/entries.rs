//! Ports of ServiceEntries without a sidecar listener, because another one's port has the same address and connections
//! cannot be distinguished.

use std::net::IpAddr;
use std::sync::Arc;

use config::{FieldPath, Kind};
use flow::Reads;
use model::service::{ExportTo, ObjectId, Registry, Service, ServiceKey, ServicePort};
use names::{Hostname, Protocol};
use registry::Services;
use registry::inputs::{ServiceObject, ServiceObjectKey, ServiceObjects};

use super::{Conflicts, conflict, row};
use crate::listeners::entry::{Meeting, meeting};

/// An address (none for all) and port of a sidecar listener.
type Place = (Option<IpAddr>, u16);

flow::index! {
    /// Services of ServiceEntries by listener address. Kubernetes services have unique addresses.
    pub(super) EntriesByPlace: Place => members of Services = "service entries by place", entries_by_place_keys;
}

fn entries_by_place_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<Place> {
    if row.registry != Registry::ServiceEntry {
        return Vec::new();
    }
    let mut places: Vec<Place> = row.ports.iter().flat_map(|port| places(row, port)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// The listener addresses of a port. Networks share listeners and are matched by filter chains.
fn places(service: &Service, port: &ServicePort) -> Vec<Place> {
    let whole = |net: &ipnet::IpNet| net.prefix_len() == net.max_prefix_len() && !net.addr().is_unspecified();
    match &service.addresses[..] {
        _ if port.protocol == Protocol::Udp => Vec::new(),
        [] => vec![(None, port.number)],
        _ if port.protocol.is_http() => vec![(None, port.number)],
        nets => {
            let hosts = nets.iter().filter(|net| whole(net));
            hosts.map(|net| (Some(net.addr()), port.number)).collect()
        }
    }
}

flow::rule! {
    /// The conflicts on each ServiceEntry.
    pub ServiceEntryConflicts: ObjectId => Conflicts = "conflicts on service entries", derive_service_entry_conflicts;
}

fn derive_service_entry_conflicts(cx: &Reads<'_>, key: &ObjectId) -> Option<Conflicts> {
    let object = cx.get::<ServiceObjects>(&ServiceObjectKey {
        registry: Registry::ServiceEntry,
        cluster: Arc::default(),
        id: key.clone(),
    })?;
    let ServiceObject::Entry(entry) = &*object else {
        return None;
    };
    let mut conflicts = Vec::new();
    for (index, port) in entry.spec.ports.iter().enumerate() {
        let services = entry.spec.hosts.iter().filter_map(|host| {
            let hostname = Hostname::parse(host).ok()?;
            let namespace = key.namespace.clone();
            cx.get::<Services>(&ServiceKey { hostname, namespace })
        });
        let lost = services.filter(|own| own.object == *key).find_map(|own| {
            let number = u16::try_from(port.number).ok()?;
            rival(cx, &own, own.port(number)?)
        });
        let Some((rival, theirs, place)) = lost else { continue };
        let at = place.map_or_else(|| "all addresses".to_owned(), |ip| ip.to_string());
        let message = format!(
            "{} (ServiceEntry {}/{}) has the port {} at {at}, too, as {theirs}, and takes precedence: sidecars that see \
             both have no listener for this port there",
            rival.key.hostname, rival.object.namespace, rival.object.name, port.number
        );
        let hint = "give the services addresses of their own, or ports that differ";
        let path = FieldPath::spec().field("ports").index(index);
        conflicts.push(conflict(Kind::ServiceEntry, key, path, message, hint));
    }
    row(conflicts)
}

/// The first service that covers a port of this one, with its protocol and address.
fn rival(cx: &Reads<'_>, own: &Service, port: &ServicePort) -> Option<(Arc<Service>, Protocol, Option<IpAddr>)> {
    places(own, port).into_iter().find_map(|place| {
        // Most addresses have one service.
        let members = cx.get::<EntriesByPlace>(&place).filter(|members| members.len() > 1)?;
        let others = members.iter().filter_map(|key| cx.get::<Services>(key));
        let mut before: Vec<Arc<Service>> = others
            .map(|other| (*other).clone())
            .filter(|other| precedence(other) < precedence(own) && meet(own, other))
            .collect();
        before.sort_by(|a, b| precedence(a).cmp(&precedence(b)));
        before.into_iter().find_map(|other| {
            let theirs = other.port(place.1)?.protocol;
            takes_all(theirs, port.protocol, place.0).then(|| (other.clone(), theirs, place.0))
        })
    })
}

/// Services that are exported explicitly have precedence, then the oldest.
fn precedence(service: &Service) -> (bool, Option<i64>, &ServiceKey) {
    (service.export_to == ExportTo::All, service.created, &service.key)
}

/// Whether some clients may see both.
fn meet(own: &Service, other: &Service) -> bool {
    match (&own.export_to, &other.export_to) {
        (ExportTo::All, ExportTo::All) => true,
        (ExportTo::All, ExportTo::Namespaces(some)) | (ExportTo::Namespaces(some), ExportTo::All) => !some.is_empty(),
        (ExportTo::Namespaces(own), ExportTo::Namespaces(theirs)) => !own.is_disjoint(theirs),
    }
}

/// Whether the listener of existing services covers another one. SNI distinguishes TLS where the address does not.
fn takes_all(there: Protocol, other: Protocol, address: Option<IpAddr>) -> bool {
    match meeting(there, other) {
        Meeting::Refused => true,
        Meeting::Merged if other.is_tls() => there.is_tls() && address.is_some(),
        Meeting::Merged => other.is_tcp() && (!there.is_tls() || address.is_some()),
        Meeting::Shared | Meeting::Sniffed | Meeting::Replaced => false,
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.index::<EntriesByPlace>();
    b.view::<ServiceEntryConflicts>();
}
