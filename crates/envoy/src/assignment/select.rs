//! Selects the endpoints of a cluster and groups them by locality. Endpoints in other networks become gateways.

use std::collections::BTreeMap;

use model::audience::{ClientView, OwnWorkload, TEMPLATE_LABELS};
use model::network::{NetworkEntries, NetworkEntry};
use model::proxy::{Labels, Locality};
use model::service::{Endpoint, EndpointAddress, Health};

use super::Plain;

/// The conditions on the endpoints of a cluster.
#[derive(Clone, Copy, Default)]
pub(crate) struct Selection<'a> {
    /// The name of the service's port; endpoints without it are left out.
    pub(crate) port_name: &'a str,
    /// Labels that an endpoint must have (those of the subset).
    pub(crate) labels: Option<&'a Labels>,
    /// Whether unhealthy endpoints are sent, marked as such; otherwise they are left out.
    pub(crate) unhealthy: bool,
    /// Whether draining endpoints are sent, marked as such (persistent sessions); otherwise they are left out.
    pub(crate) draining: bool,
    /// Endpoints with DNS names, which Envoy resolves, instead of those with addresses.
    pub(crate) dns: bool,
    /// Only the first endpoint (LOGICAL_DNS allows one).
    pub(crate) single: bool,
    /// Only instances of this workload.
    pub(crate) own: Option<&'a OwnWorkload>,
    /// The facts of the client that the endpoints depend on, if any.
    pub(crate) view: Option<&'a ClientView>,
    /// If present, endpoints that support the mesh's mutual TLS use it, except for these workloads.
    pub(crate) mutual_tls: Option<&'a Plain>,
    /// Whether endpoints without the mesh's mutual TLS are left out.
    pub(crate) only_mutual_tls: bool,
}

/// The other networks, as a client sees them.
#[derive(Clone, Copy)]
pub(crate) struct Horizon<'a> {
    pub(crate) gateways: &'a NetworkEntries,
    /// The client's network. If empty, it is unknown, and the gateways of all networks are used.
    pub(crate) network: &'a str,
}

/// Endpoints with the same locality and priority.
pub(crate) struct Group<'a> {
    pub(super) locality: &'a Locality,
    /// 0 is the highest priority.
    pub(super) priority: u32,
    pub(super) weight: u32,
    pub(crate) members: Vec<Member<'a>>,
}

/// An endpoint as a client sees it.
pub(crate) struct Member<'a> {
    pub(super) place: Target<'a>,
    /// Whether the mesh's mutual TLS is used.
    pub(super) mutual_tls: bool,
    pub(super) weight: u32,
}

/// The destination of connections.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// An endpoint, at this port.
    Endpoint(&'a Endpoint, u16),
    /// A gateway, which forwards connections.
    Gateway(&'a NetworkEntry),
}

impl<'a> Group<'a> {
    /// A group of these members, which may be empty.
    pub(super) fn new(locality: &'a Locality, members: Vec<Member<'a>>) -> Group<'a> {
        let weight = members.iter().fold(0u32, |sum, m| sum.saturating_add(m.weight));
        Group { locality, priority: 0, weight, members }
    }
}

impl<'a> Member<'a> {
    /// The value of a label. Gateways only have their network and cluster.
    pub(super) fn label(&self, key: &str) -> Option<&'a str> {
        match (self.place, key) {
            (Target::Endpoint(endpoint, _), _) => endpoint.label(key),
            (Target::Gateway(entry), "topology.istio.io/network") => Some(&entry.network),
            (Target::Gateway(entry), "topology.istio.io/cluster") => Some(&entry.cluster),
            (Target::Gateway(_), _) => None,
        }
    }
}

/// The selected endpoints by locality, ascending; within a locality in the given order.
pub(super) fn groups<'a>(
    endpoints: &'a [Endpoint],
    selection: Selection<'_>,
    horizon: Option<Horizon<'a>>,
) -> Vec<Group<'a>> {
    let port = |endpoint: &Endpoint| selection.port(endpoint, horizon.is_some());
    let mut chosen: Vec<(&Endpoint, u16)> = endpoints.iter().filter_map(|e| Some((e, port(e)?))).collect();
    if selection.single {
        chosen.truncate(1);
    }
    if !chosen.is_sorted_by(|(a, _), (b, _)| a.locality <= b.locality) {
        chosen.sort_by(|(a, _), (b, _)| a.locality.cmp(&b.locality));
    }
    let by_locality = chosen.chunk_by(|(a, _), (b, _)| a.locality == b.locality);
    let groups = by_locality.map(|group| match horizon {
        Some(horizon) => Group::new(&group[0].0.locality, horizon.seen(group, selection)),
        None => {
            let member = |(endpoint, port): &(&'a Endpoint, u16)| Member {
                place: Target::Endpoint(endpoint, *port),
                mutual_tls: selection.speaks_mutual_tls(endpoint, *port),
                weight: endpoint.weight.max(1),
            };
            Group::new(&group[0].0.locality, group.iter().map(member).collect())
        }
    });
    groups.filter(|group| !group.members.is_empty()).collect()
}

impl Selection<'_> {
    /// The port of an endpoint that belongs to the cluster. Endpoints without an address belong to it if there may be a
    /// gateway before them.
    fn port(&self, endpoint: &Endpoint, behind_gateways: bool) -> Option<u16> {
        let address_fits = match &endpoint.address {
            EndpointAddress::Ip(_) => true,
            EndpointAddress::Hostname(_) if endpoint.address.is_unknown() => behind_gateways,
            EndpointAddress::Hostname(_) => self.dns,
            EndpointAddress::Unix(_) => !self.dns,
        };
        let health_fits = match endpoint.health {
            Health::Healthy => true,
            Health::Unhealthy => self.unhealthy,
            Health::Draining => self.draining,
        };
        let has = |(key, value): (&std::sync::Arc<str>, &std::sync::Arc<str>)| endpoint.label(key) == Some(value);
        let labels_fit = self.labels.is_none_or(|labels| labels.iter().all(has));
        let seen = self.view.is_none_or(|view| is_seen(view, endpoint));
        let own_fits = self.own.is_none_or(|own| is_instance(own, endpoint));
        let port = (address_fits && health_fits && labels_fit && seen && own_fits)
            .then(|| endpoint.ports.get(self.port_name).copied())
            .flatten()?;
        (!self.only_mutual_tls || self.speaks_mutual_tls(endpoint, port)).then_some(port)
    }

    fn speaks_mutual_tls(&self, endpoint: &Endpoint, port: u16) -> bool {
        endpoint.mutual_tls && self.mutual_tls.is_some_and(|plain| !plain.has(endpoint, port))
    }
}

/// Whether an endpoint is an instance of a workload, of the same version and in the same region.
fn is_instance(own: &OwnWorkload, endpoint: &Endpoint) -> bool {
    let template = |name: &str| endpoint.labels.get(name).map(|value| &**value).unwrap_or_default();
    let templates = TEMPLATE_LABELS.iter().zip(&own.templates);
    endpoint.locality.region == own.region
        && templates.into_iter().all(|(name, value)| template(name) == &**value)
        && super::workload_name(endpoint) == &*own.workload
}

/// Whether a client may use an endpoint.
fn is_seen(view: &ClientView, endpoint: &Endpoint) -> bool {
    let own = |cluster: &std::sync::Arc<str>| *cluster == endpoint.cluster;
    (!endpoint.own_cluster || view.cluster.as_ref().is_none_or(own))
        && view.node.as_ref().is_none_or(|node| *node == endpoint.node)
        && (view.networks.is_empty() || endpoint.network.is_empty() || view.networks.contains(&endpoint.network))
}

impl<'a> Horizon<'a> {
    /// The endpoints of one locality as the client sees them. Endpoints in other networks with gateways are reached
    /// through these, if they support the mesh's mutual TLS; their weights are divided among the gateways.
    fn seen(self, group: &[(&'a Endpoint, u16)], selection: Selection<'_>) -> Vec<Member<'a>> {
        let scale = self.gateways.scale();
        let mut members = Vec::with_capacity(group.len());
        let mut entries: BTreeMap<&'a NetworkEntry, u32> = BTreeMap::new();
        for (endpoint, port) in group {
            let weight = endpoint.weight.max(1).saturating_mul(scale);
            let own = endpoint.network.is_empty() || *endpoint.network == *self.network;
            let gateways = match own {
                true => Vec::new(),
                false => self.gateways.towards(&endpoint.network, &endpoint.cluster),
            };
            let mutual_tls = selection.speaks_mutual_tls(endpoint, *port);
            if gateways.is_empty() {
                if !endpoint.address.is_unknown() {
                    members.push(Member { place: Target::Endpoint(endpoint, *port), mutual_tls, weight });
                }
            } else if mutual_tls {
                // A gateway routes connections by their SNI and forwards them without terminating TLS.
                let share = (weight / u32::try_from(gateways.len()).unwrap_or(u32::MAX)).max(1);
                for gateway in gateways {
                    let sum = entries.entry(gateway).or_default();
                    *sum = sum.saturating_add(share);
                }
            }
        }
        members.extend(entries.into_iter().map(|(entry, weight)| Member {
            place: Target::Gateway(entry),
            mutual_tls: true,
            weight,
        }));
        members
    }
}
