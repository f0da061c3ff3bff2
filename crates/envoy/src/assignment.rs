//! The encoding of a `ClusterLoadAssignment`: endpoints, grouped by locality.
//!
//! This is the hottest path of the control plane, so the message is written straight into one buffer.

use std::net::IpAddr;

use bytes::Bytes;
use model::proxy::{Labels, Locality};
use model::service::{Endpoint, EndpointAddress, Health};

use crate::wire::Writer;

/// Bytes to set aside for each endpoint, from experience.
const BYTES_PER_ENDPOINT: usize = 128;

/// `envoy.config.core.v3.HealthStatus`.
const HEALTHY: u64 = 1;
const UNHEALTHY: u64 = 2;
const DRAINING: u64 = 3;

/// Which endpoints of a service a cluster has.
#[derive(Clone, Copy)]
pub(crate) struct Selection<'a> {
    /// The name of the service's port; endpoints without it are left out.
    pub(crate) port_name: &'a str,
    /// Labels that an endpoint must have (those of the subset).
    pub(crate) labels: Option<&'a Labels>,
    /// Unhealthy endpoints are sent as such; else they are left out.
    pub(crate) unhealthy: bool,
    /// Draining endpoints are sent as such (persistent sessions); else they are left out.
    pub(crate) draining: bool,
    /// Endpoints with DNS names instead of those with addresses: Envoy resolves them.
    pub(crate) dns: bool,
    /// Of all of them only the first (LOGICAL_DNS allows one).
    pub(crate) single: bool,
}

/// The encoded `ClusterLoadAssignment` of this cluster, and how many endpoints it has. `cluster_id` names the Kubernetes
/// cluster (or whatever plays its part) in which the workloads run.
///
/// Localities are in ascending order and endpoints in the order given, so that equal input has equal bytes. The weight
/// of a locality is the sum of its endpoints' weights.
pub(crate) fn encode(
    cluster: &str,
    endpoints: &[Endpoint],
    selection: Selection<'_>,
    cluster_id: &str,
) -> (Bytes, usize) {
    let mut chosen: Vec<(&Endpoint, u16)> = endpoints.iter().filter_map(|e| Some((e, selection.port(e)?))).collect();
    if selection.single {
        chosen.truncate(1);
    }
    if !chosen.is_sorted_by(|(a, _), (b, _)| a.locality <= b.locality) {
        chosen.sort_by(|(a, _), (b, _)| a.locality.cmp(&b.locality));
    }
    let mut writer = Writer::with_capacity(cluster.len() + 16 + chosen.len() * BYTES_PER_ENDPOINT);
    writer.text(1, cluster);
    for group in chosen.chunk_by(|(a, _), (b, _)| a.locality == b.locality) {
        writer.message(2, |w| write_group(w, group, cluster_id));
    }
    (writer.finish(), chosen.len())
}

impl Selection<'_> {
    /// The port of an endpoint that belongs to the cluster.
    fn port(&self, endpoint: &Endpoint) -> Option<u16> {
        let address_fits = match &endpoint.address {
            EndpointAddress::Ip(_) => true,
            EndpointAddress::Hostname(_) => self.dns,
            EndpointAddress::Unix(_) => !self.dns,
        };
        let health_fits = match endpoint.health {
            Health::Healthy => true,
            Health::Unhealthy => self.unhealthy,
            Health::Draining => self.draining,
        };
        let labels_fit = self.labels.is_none_or(|labels| is_subset(labels, &endpoint.labels));
        (address_fits && health_fits && labels_fit)
            .then(|| endpoint.ports.get(self.port_name).copied())
            .flatten()
    }
}

fn is_subset(asked: &Labels, given: &Labels) -> bool {
    asked.iter().all(|(key, value)| given.get(key) == Some(value))
}

/// The fields of `LocalityLbEndpoints`.
fn write_group(w: &mut Writer, group: &[(&Endpoint, u16)], cluster_id: &str) {
    if let Some((first, _)) = group.first() {
        w.message(1, |w| write_locality(w, &first.locality));
    }
    let mut weight = 0u32;
    for (endpoint, port) in group {
        w.message(2, |w| write_endpoint(w, endpoint, *port, cluster_id));
        weight = weight.saturating_add(endpoint.weight.max(1));
    }
    w.wrapped(3, u64::from(weight));
}

fn write_locality(w: &mut Writer, locality: &Locality) {
    w.text(1, &locality.region);
    w.text(2, &locality.zone);
    w.text(3, &locality.sub_zone);
}

/// The fields of `LbEndpoint`.
fn write_endpoint(w: &mut Writer, endpoint: &Endpoint, port: u16, cluster_id: &str) {
    w.message(1, |w| w.message(1, |w| write_address(w, &endpoint.address, port)));
    let health = match endpoint.health {
        Health::Healthy => HEALTHY,
        Health::Unhealthy => UNHEALTHY,
        Health::Draining => DRAINING,
    };
    w.uint(2, health);
    // Istio's statistics filter learns from this who answered, where the server cannot say itself.
    w.message(3, |w| {
        w.entry(1, "istio", |w| {
            w.entry(1, "workload", |w| {
                w.message(3, |w| write_workload(w, endpoint, cluster_id))
            })
        });
    });
    w.wrapped(4, u64::from(endpoint.weight.max(1)));
}

/// The fields of `Address`.
fn write_address(w: &mut Writer, address: &EndpointAddress, port: u16) {
    match address {
        EndpointAddress::Ip(ip) => w.message(1, |w| {
            match ip {
                IpAddr::V4(ip) => w.ipv4(2, *ip),
                IpAddr::V6(ip) => w.display(2, ip),
            }
            w.port(port);
        }),
        EndpointAddress::Hostname(name) => w.message(1, |w| {
            w.text(2, name);
            w.port(port);
        }),
        EndpointAddress::Unix(path) => w.message(2, |w| w.text(1, path)),
    }
}

impl Writer {
    /// `SocketAddress.port_value`, which is written even if zero: it is in a `oneof`.
    fn port(&mut self, port: u16) {
        match port {
            0 => self.raw(&[3 << 3, 0]),
            port => self.uint(3, u64::from(port)),
        }
    }
}

/// `NAME;NAMESPACE;CANONICAL_NAME;CANONICAL_REVISION;CLUSTER`, as text; what is not known is empty.
fn write_workload(w: &mut Writer, endpoint: &Endpoint, cluster_id: &str) {
    let labels = WellKnown::of(&endpoint.labels);
    let (name, namespace) = match &endpoint.workload {
        Some(id) => (owner_name(&id.name, labels.template_hash), &*id.namespace),
        None => ("", ""),
    };
    let canonical = labels.name.iter().flatten().next().copied().unwrap_or(name);
    let revision = labels
        .revision
        .iter()
        .flatten()
        .next()
        .copied()
        .filter(|revision| *revision != "latest");
    for part in [name, namespace, canonical, revision.unwrap_or_default()] {
        w.raw(part.as_bytes());
        w.raw(b";");
    }
    w.raw(cluster_id.as_bytes());
}

/// Labels that tell what a workload is called. One pass over the labels is cheaper than looking for each.
#[derive(Default)]
struct WellKnown<'a> {
    /// Labels with the canonical name, the one that counts most first.
    name: [Option<&'a str>; 3],
    /// Labels with the canonical revision, the one that counts most first.
    revision: [Option<&'a str>; 3],
    template_hash: Option<&'a str>,
}

impl<'a> WellKnown<'a> {
    fn of(labels: &'a Labels) -> WellKnown<'a> {
        let mut found = WellKnown::default();
        for (key, value) in labels {
            let place = match &**key {
                "service.istio.io/canonical-name" => &mut found.name[0],
                "app.kubernetes.io/name" => &mut found.name[1],
                "app" => &mut found.name[2],
                "service.istio.io/canonical-revision" => &mut found.revision[0],
                "app.kubernetes.io/version" => &mut found.revision[1],
                "version" => &mut found.revision[2],
                "pod-template-hash" => &mut found.template_hash,
                _ => continue,
            };
            *place = Some(value);
        }
        found
    }
}

/// The name of the Deployment that a pod belongs to, `NAME-HASH-SUFFIX` without the last two; other names as they are.
fn owner_name<'a>(name: &'a str, template_hash: Option<&str>) -> &'a str {
    let owner = template_hash.and_then(|hash| {
        let (rest, _) = name.rsplit_once('-')?;
        rest.strip_suffix(hash)?.strip_suffix('-')
    });
    owner.unwrap_or(name)
}

#[cfg(test)]
mod tests;
