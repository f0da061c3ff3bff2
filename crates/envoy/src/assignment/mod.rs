//! The encoding of a `ClusterLoadAssignment`: endpoints, grouped by locality.
//!
//! This is the hottest path of the control plane, so the message is written straight into one buffer.

mod plain;
mod prefer;
mod select;

use std::net::IpAddr;

use bytes::Bytes;
use model::network::NetworkEntry;
use model::proxy::{Labels, Locality};
use model::service::{Endpoint, EndpointAddress, Health};
use traffic::policy::preference::Preference;

use crate::wire::Writer;
pub(crate) use plain::Plain;
pub(crate) use select::{Group, Horizon, Selection};
use select::{Member, Target};

/// The capacity to reserve for each endpoint, from experience, in bytes.
const BYTES_PER_ENDPOINT: usize = 128;
/// The capacity with [`write_mutual_tls`].
const BYTES_PER_SECURE_ENDPOINT: usize = BYTES_PER_ENDPOINT + 64;

/// The endpoint metadata key that selects the transport socket, and its value for the mesh's mutual TLS.
pub(crate) const TLS_MODE: &str = "tlsMode";
pub(crate) const MUTUAL_TLS: &str = "istio";

/// `envoy.config.core.v3.HealthStatus`.
const HEALTHY: u64 = 1;
const UNHEALTHY: u64 = 2;
const DRAINING: u64 = 3;

/// Encodes the `ClusterLoadAssignment` of this cluster, and returns it with the number of endpoints.
///
/// Localities are in ascending order and endpoints in the order given, so that equal input has equal bytes. The weight
/// of a locality is the sum of its endpoints' weights, unless shares are distributed.
pub(crate) fn encode(
    cluster: &str,
    endpoints: &[Endpoint],
    selection: Selection<'_>,
    horizon: Option<Horizon<'_>>,
    preference: Preference<'_>,
) -> (Bytes, usize) {
    let groups = groups(endpoints, selection, horizon, preference);
    (whole(cluster, &groups), count(&groups))
}

/// The endpoints of a cluster, in groups with priorities and weights.
pub(crate) fn groups<'a>(
    endpoints: &'a [Endpoint],
    selection: Selection<'_>,
    horizon: Option<Horizon<'a>>,
    preference: Preference<'_>,
) -> Vec<Group<'a>> {
    let groups = select::groups(endpoints, selection, horizon);
    match selection.view {
        Some(view) => prefer::apply(groups, view, preference),
        None => groups,
    }
}

/// The total number of endpoints in these groups.
pub(crate) fn count(groups: &[Group<'_>]) -> usize {
    groups.iter().map(|group| group.members.len()).sum()
}

/// Encodes the `ClusterLoadAssignment` of these groups, with all endpoints.
pub(crate) fn whole(cluster: &str, groups: &[Group<'_>]) -> Bytes {
    let secure = groups.iter().flat_map(|group| &group.members).any(|member| member.mutual_tls);
    let bytes = match secure {
        true => BYTES_PER_SECURE_ENDPOINT,
        false => BYTES_PER_ENDPOINT,
    };
    let mut writer = Writer::with_capacity(cluster.len() + 16 + count(groups) * bytes);
    writer.text(1, cluster);
    for group in groups {
        writer.message(2, |w| write_group(w, group));
    }
    writer.finish()
}

/// The fields of `LocalityLbEndpoints`.
fn write_group(w: &mut Writer, group: &Group<'_>) {
    w.message(1, |w| write_locality(w, group.locality));
    for member in &group.members {
        w.message(2, |w| write_member(w, member));
    }
    w.wrapped(3, u64::from(group.weight));
    w.uint(5, u64::from(group.priority));
}

fn write_locality(w: &mut Writer, locality: &Locality) {
    w.text(1, &locality.region);
    w.text(2, &locality.zone);
    w.text(3, &locality.sub_zone);
}

/// The fields of `LbEndpoint`.
fn write_member(w: &mut Writer, member: &Member<'_>) {
    match member.place {
        Target::Endpoint(endpoint, port) => write_endpoint(w, endpoint, port, member.mutual_tls),
        Target::Gateway(entry) => write_gateway(w, entry),
    }
    w.wrapped(4, u64::from(member.weight));
}

fn write_endpoint(w: &mut Writer, endpoint: &Endpoint, port: u16, mutual_tls: bool) {
    w.message(1, |w| {
        w.message(1, |w| write_address(w, &endpoint.address, port));
        if let Some(also) = endpoint.also {
            // The client uses the address that connects first (Happy Eyeballs).
            w.message(4, |w| w.message(1, |w| write_address(w, &EndpointAddress::Ip(also), port)));
        }
    });
    let health = match endpoint.health {
        Health::Healthy => HEALTHY,
        Health::Unhealthy => UNHEALTHY,
        Health::Draining => DRAINING,
    };
    w.uint(2, health);
    // Istio's statistics filter identifies the server by this if the server cannot identify itself.
    w.message(3, |w| {
        if mutual_tls {
            write_mutual_tls(w);
        }
        write_metadata(w, |w| write_workload(w, endpoint));
    });
}

/// A gateway into another network. The workloads behind it are unknown.
fn write_gateway(w: &mut Writer, entry: &NetworkEntry) {
    let address = EndpointAddress::Ip(entry.address);
    w.message(1, |w| w.message(1, |w| write_address(w, &address, entry.port)));
    w.uint(2, HEALTHY);
    w.message(3, |w| {
        // The gateway routes connections by their SNI, so it accepts only TLS.
        write_mutual_tls(w);
        write_metadata(w, |w| {
            w.raw(b";;;;");
            w.raw(entry.cluster.as_bytes());
        });
    });
}

/// Writes the metadata by which a cluster with [`TransportSocketMatch`]es selects the mesh's mutual TLS.
///
/// [`TransportSocketMatch`]: protos::envoy::config::cluster::v3::cluster::TransportSocketMatch
fn write_mutual_tls(w: &mut Writer) {
    w.entry(1, "envoy.transport_socket_match", |w| {
        w.entry(1, TLS_MODE, |w| w.text(3, MUTUAL_TLS));
    });
}

/// The fields of `Metadata`, with a description of the workload.
fn write_metadata(w: &mut Writer, workload: impl FnOnce(&mut Writer)) {
    w.entry(1, "istio", |w| w.entry(1, "workload", |w| w.message(3, workload)));
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

/// Writes `NAME;NAMESPACE;CANONICAL_NAME;CANONICAL_REVISION;CLUSTER`; unknown parts are empty.
fn write_workload(w: &mut Writer, endpoint: &Endpoint) {
    let labels = WellKnown::of(&endpoint.labels);
    let (name, namespace) = match &endpoint.workload {
        Some(id) => (owner_name(&id.name, labels.template_hash), &*id.namespace),
        None => ("", ""),
    };
    let canonical = labels.name.iter().flatten().next().copied().unwrap_or(name);
    let revision = labels.revision.iter().flatten().next().copied().filter(|revision| *revision != "latest");
    for part in [name, namespace, canonical, revision.unwrap_or_default()] {
        w.raw(part.as_bytes());
        w.raw(b";");
    }
    w.raw(endpoint.cluster.as_bytes());
}

/// The name of an endpoint's workload: that of the pod's owner, or else its own.
fn workload_name(endpoint: &Endpoint) -> &str {
    let template = WellKnown::of(&endpoint.labels).template_hash;
    endpoint.workload.as_ref().map_or("", |id| owner_name(&id.name, template))
}

/// Labels that name a workload. One pass over all labels is cheaper than a lookup for each.
#[derive(Default)]
struct WellKnown<'a> {
    /// The labels with the canonical name, by precedence.
    name: [Option<&'a str>; 3],
    /// The labels with the canonical revision, by precedence.
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

/// The name of the Deployment of a pod named `NAME-HASH-SUFFIX`, without the last two parts; other names are unchanged.
fn owner_name<'a>(name: &'a str, template_hash: Option<&str>) -> &'a str {
    let owner = template_hash.and_then(|hash| {
        let (rest, _) = name.rsplit_once('-')?;
        rest.strip_suffix(hash)?.strip_suffix('-')
    });
    owner.unwrap_or(name)
}

#[cfg(test)]
mod tests;
