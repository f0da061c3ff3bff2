//! Ports of ServiceEntries without a sidecar listener, because another one's port has the same address and connections
//! cannot be distinguished.

use std::collections::BTreeMap;
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

flow::rule! {
    /// The services of a listener address that may take ports from others: a change of any other service at the address
    /// stops here, so that thousands of services can share a port.
    Leaders: Place => PlaceLeaders = "leading service entries by place", derive_leaders;
}

/// The first services of a listener address by precedence, each once for the protocols of its port.
#[derive(Clone, PartialEq, Debug, Default)]
struct PlaceLeaders {
    /// Among the services that are exported to all namespaces.
    public: ByProtocol,
    /// Among those that are exported to some namespaces.
    explicit: ByProtocol,
    /// Among those that are exported to this namespace explicitly.
    to_namespace: BTreeMap<Arc<str>, ByProtocol>,
}

type ByProtocol = BTreeMap<Protocol, Leader>;

/// A service, with what its precedence depends on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Leader {
    public: bool,
    created: Option<i64>,
    key: ServiceKey,
    object: ObjectId,
}

impl Leader {
    /// Ascending by precedence: services that are exported explicitly come first, then the oldest.
    fn of(service: &Service) -> Leader {
        Leader {
            public: service.export_to == ExportTo::All,
            created: service.created,
            key: service.key.clone(),
            object: service.object.clone(),
        }
    }
}

fn derive_leaders(cx: &Reads<'_>, place: &Place) -> Option<PlaceLeaders> {
    // Most addresses have one service.
    let members = cx.get::<EntriesByPlace>(place).filter(|members| members.len() > 1)?;
    let mut leaders = PlaceLeaders::default();
    for service in members.iter().filter_map(|key| cx.get::<Services>(key)) {
        let Some(port) = service.port(place.1) else { continue };
        let leader = Leader::of(&service);
        let note = |list: &mut ByProtocol| {
            let first = list.entry(port.protocol).or_insert_with(|| leader.clone());
            if leader < *first {
                *first = leader.clone();
            }
        };
        match &service.export_to {
            ExportTo::All => note(&mut leaders.public),
            ExportTo::Namespaces(names) => {
                if !names.is_empty() {
                    note(&mut leaders.explicit);
                }
                names.iter().for_each(|name| note(leaders.to_namespace.entry(name.clone()).or_default()));
            }
        }
    }
    Some(leaders)
}

/// The first service that covers a port of this one for clients that may see both, with its protocol and address.
fn rival(cx: &Reads<'_>, own: &Service, port: &ServicePort) -> Option<(Leader, Protocol, Option<IpAddr>)> {
    let first = Leader::of(own);
    places(own, port).into_iter().find_map(|place| {
        let leaders = cx.get::<Leaders>(&place)?;
        let lists: Vec<&ByProtocol> = match &own.export_to {
            ExportTo::All => vec![&leaders.public, &leaders.explicit],
            // A service that is exported to all namespaces never precedes this one.
            ExportTo::Namespaces(names) => names.iter().filter_map(|name| leaders.to_namespace.get(name)).collect(),
        };
        let others = lists.into_iter().flatten();
        let covering = others.filter(|(theirs, other)| **other < first && takes_all(**theirs, port.protocol, place.0));
        let (theirs, other) = covering.min_by_key(|(_, other)| *other)?;
        Some((other.clone(), *theirs, place.0))
    })
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
    b.view::<Leaders>();
    b.view::<ServiceEntryConflicts>();
}
