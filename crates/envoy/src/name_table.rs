//! Name tables (NDS), with which agents answer the DNS queries of their workloads.
//!
//! A table is a protobuf map, encoded as repeated entries. The entries of a service are encoded once for all clients
//! that get the same addresses; a table concatenates those of the visible services. A change of one service re-encodes
//! only its own entries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use flow::Reads;
use model::audience::{IpFamilies, NameAudience, NameView};
use model::service::{Endpoint, EndpointAddress, Health, Registry, Resolution, Service, ServiceKey};
use model::xds::Resource;
use registry::inputs::{Mesh, MeshSettings, WorkloadObjectKey};
use registry::{PodNames, ServiceEndpoints, Services};

use crate::wire::Writer;

/// Istio's name for the registry of Kubernetes services. The agent adds short names to these services only.
const KUBERNETES: &str = "Kubernetes";
/// Istio's name for the registry of ServiceEntries.
const EXTERNAL: &str = "External";

flow::rule! {
    /// The encoded entries of one service.
    pub ServiceNames: (ServiceKey, Arc<NameView>) => Bytes = "names of a service", derive_service_names;
}

fn derive_service_names(cx: &Reads<'_>, (key, view): &(ServiceKey, Arc<NameView>)) -> Option<Bytes> {
    let service = cx.get::<Services>(key)?;
    let names = match service.addresses_in(&view.cluster, view.assigned).is_empty() {
        false => Names::virtual_addresses(&service, view),
        true => Names::of_instances(cx, &service, view)?,
    };
    names.encode(&service)
}

flow::rule! {
    /// The encoded name table of an agent.
    pub NameTables: Arc<NameAudience> => Resource = "name tables", derive_name_tables;
}

fn derive_name_tables(cx: &Reads<'_>, audience: &Arc<NameAudience>) -> Option<Resource> {
    let services = traffic::name_table::services(cx, &audience.scope).into_iter();
    let rows: Vec<Arc<Bytes>> =
        services.filter_map(|service| cx.get::<ServiceNames>(&(service, audience.view.clone()))).collect();
    let mut table = Writer::with_capacity(rows.iter().map(|row| row.len()).sum());
    rows.iter().for_each(|row| table.raw(row));
    Some(Resource::new("", table.finish()))
}

/// The names of a service and their addresses.
#[derive(Default)]
struct Names {
    /// The entries of the service.
    own: Vec<IpAddr>,
    /// The entries of its pods with hostnames, by the first label of the name.
    pods: BTreeMap<Arc<str>, Vec<IpAddr>>,
}

impl Names {
    /// The service's own addresses. Addresses that users configured are included for any IP family.
    fn virtual_addresses(service: &Service, view: &NameView) -> Names {
        let written = service.registry == Registry::ServiceEntry && !service.addresses.is_empty();
        let addresses = service.addresses_in(&view.cluster, view.assigned).iter();
        // A name cannot resolve to a range.
        let single = addresses.filter(|net| net.prefix_len() == net.max_prefix_len());
        let addresses = single.map(|net| net.addr()).filter(|ip| !ip.is_unspecified());
        Names { own: addresses.filter(|ip| written || has_family(view.ip, *ip)).collect(), ..Names::default() }
    }

    /// The addresses of ready instances, for a service whose clients connect to instances.
    fn of_instances(cx: &Reads<'_>, service: &Service, view: &NameView) -> Option<Names> {
        if service.resolution != Resolution::Passthrough || service.ports.is_empty() {
            return None;
        }
        let endpoints = cx.get::<ServiceEndpoints>(&service.key)?;
        let mesh = cx.get::<Mesh>(&())?;
        let mut names = Names::default();
        let mut remote: BTreeMap<Arc<str>, Vec<IpAddr>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for endpoint in endpoints.iter().filter(|e| e.health == Health::Healthy && reaches(view, e)) {
            let EndpointAddress::Ip(first) = endpoint.address else {
                continue;
            };
            let here = is_here(view, endpoint);
            // Clusters may have overlapping addresses.
            if endpoint.own_cluster && !here || !seen.insert(first) {
                continue;
            }
            names.own.extend(endpoint.ips());
            if let Some(pod) = pod_name(cx, &mesh, service, endpoint) {
                let of = if here { &mut names.pods } else { &mut remote };
                of.entry(pod).or_default().extend(endpoint.ips());
            }
        }
        // Pods of StatefulSets have the same names in all clusters; the client's own cluster takes precedence.
        for (pod, addresses) in remote {
            names.pods.entry(pod).or_insert(addresses);
        }
        Some(names)
    }

    fn encode(self, service: &Service) -> Option<Bytes> {
        if self.own.is_empty() {
            return None;
        }
        let host = service.key.hostname.as_str();
        let namespace = &*service.key.namespace;
        let (registry, short) = match service.registry {
            Registry::Kubernetes => (KUBERNETES, Some(&*service.object.name)),
            // Its short names are those of the Kubernetes Service.
            Registry::Import | Registry::Pool => (KUBERNETES, None),
            Registry::ServiceEntry => (EXTERNAL, None),
        };
        let mut out = Writer::default();
        entry(&mut out, host, &self.own, registry, short.map(|short| (short, namespace)));
        let label = host.split_once('.').map_or(host, |(label, _)| label);
        for (pod, addresses) in &self.pods {
            let short = format!("{pod}.{label}");
            entry(&mut out, &format!("{pod}.{host}"), addresses, registry, Some((&short, namespace)));
        }
        Some(out.finish())
    }
}

/// Writes one entry of the map.
fn entry(out: &mut Writer, host: &str, addresses: &[IpAddr], registry: &str, short: Option<(&str, &str)>) {
    out.entry(1, host, |info| {
        for address in addresses {
            match address {
                IpAddr::V4(ip) => info.ipv4(1, *ip),
                IpAddr::V6(ip) => info.display(1, ip),
            }
        }
        info.text(2, registry);
        if let Some((name, namespace)) = short {
            info.text(3, name);
            info.text(4, namespace);
        }
    });
}

/// The first label of a pod's hostname below the service, if its subdomain is the service.
fn pod_name(cx: &Reads<'_>, mesh: &MeshSettings, service: &Service, endpoint: &Endpoint) -> Option<Arc<str>> {
    let key =
        WorkloadObjectKey { pod: true, cluster: mesh.cluster_of_id(&endpoint.cluster), id: endpoint.workload.clone()? };
    let name = cx.get::<PodNames>(&key)?;
    let (label, _) = service.key.hostname.as_str().split_once('.')?;
    // A WorkloadEntry may have the same name as a pod.
    let is_pod = endpoint.ips().any(|ip| name.addresses.contains(&ip));
    (is_pod && *label == *name.subdomain).then(|| name.hostname.clone())
}

/// Whether a client can connect to an instance's own address.
fn reaches(view: &NameView, endpoint: &Endpoint) -> bool {
    view.network.is_empty() || endpoint.network.is_empty() || endpoint.network == view.network
}

/// Whether an instance is in the client's cluster.
fn is_here(view: &NameView, endpoint: &Endpoint) -> bool {
    view.cluster.is_empty() || endpoint.cluster.is_empty() || endpoint.cluster == view.cluster
}

fn has_family(families: IpFamilies, address: IpAddr) -> bool {
    match families {
        IpFamilies::V4 => address.is_ipv4(),
        IpFamilies::V6 => address.is_ipv6(),
        IpFamilies::Dual => true,
    }
}
