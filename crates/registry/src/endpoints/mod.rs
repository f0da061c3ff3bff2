//! Endpoints of services, from all sources.

mod slices;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::core;
use config::istio::ServiceEntry;
use flow::Reads;
use model::proxy::{Labels, Locality};
use model::service::{
    Endpoint, EndpointAddress, Health, ObjectId, Registry, Resolution, Service, ServiceKey, ServicePort, SourceId,
    TargetPort, Workload,
};

use crate::inputs::{Mesh, ServiceObject, ServiceObjectKey, ServiceObjects, Sharing};
use crate::networks::place_of;
use crate::pools;
use crate::services::{DefinitionsByService, Services, definition};
use crate::workloads::{from_entry, parse_address, select};

pub use slices::{ExportsByService, SliceEndpoints, SlicesByService};

flow::rule! {
    /// The endpoints of each service, sorted; empty for a service without any. All definitions of the service contribute:
    /// those in several clusters, and ServiceEntries of the same host and namespace.
    pub ServiceEndpoints: ServiceKey => Arc<[Endpoint]> = "endpoints of a service", derive_service_endpoints;
}

fn derive_service_endpoints(cx: &Reads<'_>, key: &ServiceKey) -> Option<Arc<[Endpoint]>> {
    let objects = cx.get::<DefinitionsByService>(key)?;
    let mut endpoints = Vec::new();
    for object in objects.iter() {
        let of_object = defined_by(cx, object, key).unwrap_or_default();
        // Most services have one definition, whose list is shared.
        match endpoints.is_empty() {
            true => endpoints = of_object,
            false => endpoints.extend(of_object),
        }
    }
    endpoints.sort();
    endpoints.dedup_by(|a, b| is_same(a, b));
    if let Some(sharing) = sharing(cx, key) {
        let own = |endpoint: &mut Endpoint| endpoint.own_cluster = !sharing.contains(&endpoint.cluster);
        endpoints.iter_mut().for_each(own);
    }
    Some(endpoints.into())
}

/// Whether two endpoints are one, listed twice. Clients see a difference between localities and, by subsets, between
/// labels. Endpoints behind a gateway that have no address count by their number.
fn is_same(a: &Endpoint, b: &Endpoint) -> bool {
    !a.address.is_unknown()
        && a.address == b.address
        && a.ports == b.ports
        && a.cluster == b.cluster
        && a.locality == b.locality
        && a.labels == b.labels
}

flow::index! {
    /// Services that have an endpoint at an address: those that a proxy at this address serves.
    pub ServicesByAddress: IpAddr => members of ServiceEndpoints = "services by endpoint address", services_by_address_keys;
}

fn services_by_address_keys(_: &ServiceKey, row: &Arc<[Endpoint]>) -> Vec<IpAddr> {
    row.iter().flat_map(Endpoint::ips).collect()
}

flow::rule! {
    /// The ports that a service has at one address, as (service port, workload port), ascending. A relation of its own, so
    /// that other endpoints of the service do not affect a proxy's inbound configuration.
    ///
    /// Key: the address, the cluster id (empty while there is one cluster), and the service.
    pub InstancePorts: (IpAddr, Arc<str>, ServiceKey) => Vec<(u16, u16)> = "ports of an instance", derive_instance_ports;
}

fn derive_instance_ports(
    cx: &Reads<'_>,
    (ip, cluster, key): &(IpAddr, Arc<str>, ServiceKey),
) -> Option<Vec<(u16, u16)>> {
    let service = cx.get::<Services>(key)?;
    let endpoints = cx.get::<ServiceEndpoints>(key)?;
    let here = endpoints.iter().filter(|e| e.ips().any(|own| own == *ip));
    // Clusters may reuse addresses.
    let here = here.filter(|e| cluster.is_empty() || e.cluster == *cluster);
    let mut ports: Vec<(u16, u16)> =
        here.flat_map(|e| service.ports.iter().filter_map(|p| Some((p.number, *e.ports.get(&p.name)?)))).collect();
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    slices::register(b);
    b.world::<ServiceEndpoints, Services>();
    b.index::<ServicesByAddress>();
    b.view::<InstancePorts>();
}

/// The ids of the clusters whose endpoints of a service are used by clients of all clusters; none for all clusters.
fn sharing(cx: &Reads<'_>, key: &ServiceKey) -> Option<BTreeSet<Arc<str>>> {
    let service = cx.get::<Services>(key)?;
    if service.cluster_local || service.node_local {
        return Some(BTreeSet::new());
    }
    let mesh = cx.get::<Mesh>(&())?;
    match mesh.sharing {
        Sharing::Exported if service.registry == Registry::Kubernetes => {
            let exports = cx.get::<ExportsByService>(&service.object);
            let ids = exports.iter().flat_map(|exports| exports.iter());
            Some(ids.map(|export| mesh.cluster_id_of(&export.cluster).clone()).collect())
        }
        Sharing::Imported if service.registry == Registry::Kubernetes => Some(BTreeSet::new()),
        _ => None,
    }
}

/// The endpoints that one object contributes to a service.
fn defined_by(cx: &Reads<'_>, object: &ServiceObjectKey, key: &ServiceKey) -> Option<Vec<Endpoint>> {
    let service = definition(cx, object, key)?;
    Some(match &*cx.get::<ServiceObjects>(object)? {
        ServiceObject::Kubernetes(o) => of_kubernetes(cx, &service, &o.spec),
        ServiceObject::Import(_) => of_import(cx, &service),
        ServiceObject::Pool(o) => pools::endpoints(cx, &service, &o.spec),
        ServiceObject::Entry(o) => {
            let mut endpoints = of_entry(cx, &service, &o.spec);
            if let Some(whole) = cx.get::<Services>(key).filter(|whole| whole.ports != service.ports) {
                endpoints.iter_mut().for_each(|endpoint| rename_ports(endpoint, &service, &whole));
            }
            endpoints
        }
    })
}

/// Names an endpoint's ports as the whole service does. ServiceEntries of one host are joined by port numbers; those
/// that add endpoints to a Kubernetes service refer to its ports by name.
fn rename_ports(endpoint: &mut Endpoint, definition: &Service, whole: &Service) {
    if whole.registry != Registry::ServiceEntry {
        return;
    }
    let of = |port: &ServicePort| Some((whole.port(port.number)?.name.clone(), *endpoint.ports.get(&port.name)?));
    endpoint.ports = Arc::new(definition.ports.iter().filter_map(of).collect());
}

/// An endpoint of which only the address is known.
fn bare(cx: &Reads<'_>, cluster: &Arc<str>, address: EndpointAddress) -> Endpoint {
    let (cluster, network) = place_of(cx, cluster, &Labels::new(), &address);
    Endpoint {
        network,
        cluster,
        mutual_tls: false,
        own_cluster: false,
        address,
        also: None,
        ports: Arc::default(),
        labels: Arc::default(),
        locality: Locality::default(),
        weight: 1,
        service_account: "".into(),
        health: Health::Healthy,
        node: "".into(),
        workload: None,
    }
}

/// The endpoint of a workload, without the service's ports.
pub(crate) fn of_workload(workload: &Workload) -> Endpoint {
    Endpoint {
        cluster: workload.cluster_id.clone(),
        mutual_tls: workload.mutual_tls,
        own_cluster: false,
        address: workload.address.clone(),
        also: None,
        ports: Arc::default(),
        labels: workload.labels.clone(),
        locality: workload.locality.clone(),
        weight: workload.weight,
        network: workload.network.clone(),
        service_account: workload.service_account.clone(),
        health: workload.health,
        node: workload.node.clone(),
        workload: Some(workload.id.clone()),
    }
}

fn of_kubernetes(cx: &Reads<'_>, service: &Service, spec: &core::Service) -> Vec<Endpoint> {
    if service.external {
        // ExternalName: the target has the endpoints, if it is in the mesh.
        return Vec::new();
    }
    let of_service = SourceId { cluster: service.cluster.clone(), id: service.object.clone() };
    let slices = cx.get::<SlicesByService>(&of_service);
    let slices = slices.iter().flat_map(|members| members.iter());
    let mut endpoints: Vec<Endpoint> =
        slices.filter_map(|id| cx.get::<SliceEndpoints>(id)).flat_map(|row| row.to_vec()).collect();
    join_families(&mut endpoints);
    if service.publish_not_ready {
        endpoints.iter_mut().for_each(|e| e.health = Health::Healthy);
    }
    if !spec.selector.is_empty() && service.cluster.is_empty() {
        // Pods are found through EndpointSlices; WorkloadEntries have none. They are in the configuration cluster.
        let entries = select(cx, &service.key.namespace, &spec.selector).into_iter().filter(|w| !w.pod);
        endpoints.extend(entries.map(|w| at_service(&w, service)));
    }
    endpoints
}

/// The endpoints of all clusters that export the service.
fn of_import(cx: &Reads<'_>, service: &Service) -> Vec<Endpoint> {
    let exports = cx.get::<ExportsByService>(&service.object);
    let exports = exports.iter().flat_map(|exports| exports.iter());
    let slices = exports.filter_map(|of| cx.get::<SlicesByService>(of));
    let slices: Vec<SourceId> = slices.flat_map(|members| members.to_vec()).collect();
    let rows = slices.iter().filter_map(|id| cx.get::<SliceEndpoints>(id));
    let mut endpoints: Vec<Endpoint> = rows.flat_map(|row| row.to_vec()).collect();
    join_families(&mut endpoints);
    endpoints
}

/// Merges the two endpoints of a dual-stack workload, one in each slice, into one. Separate endpoints would get twice
/// the load, and clients with one address family would fail on half of their connections.
fn join_families(endpoints: &mut Vec<Endpoint>) {
    let is_v6 = |e: &Endpoint| matches!(e.address, EndpointAddress::Ip(IpAddr::V6(_)));
    let sixes = endpoints.iter().filter(|e| is_v6(e)).count();
    if sixes == 0 || sixes == endpoints.len() {
        return;
    }
    let (mut others, mut kept): (Vec<Endpoint>, Vec<Endpoint>) =
        std::mem::take(endpoints).into_iter().partition(|e| is_v6(e) && e.workload.is_some());
    let order = |a: &Endpoint, b: &Endpoint| {
        (&a.workload, &a.cluster, &a.ports, a.health).cmp(&(&b.workload, &b.cluster, &b.ports, b.health))
    };
    kept.sort_by(order);
    others.sort_by(order);
    let mut others = others.into_iter().peekable();
    let mut alone = Vec::new();
    for e in kept.iter_mut().filter(|e| e.workload.is_some()) {
        alone.extend(std::iter::from_fn(|| others.next_if(|other| order(other, e).is_lt())));
        let other = others.next_if(|other| order(other, e).is_eq());
        e.also = other.and_then(|other| other.ips().next());
    }
    kept.extend(alone);
    kept.extend(others);
    *endpoints = kept;
}

fn of_entry(cx: &Reads<'_>, service: &Service, spec: &ServiceEntry) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    if let Some(selector) = &spec.workload_selector {
        let selected = select(cx, &service.key.namespace, &selector.labels);
        endpoints.extend(selected.iter().map(|w| at_service(w, service)));
    }
    for (number, inline) in spec.endpoints.iter().enumerate() {
        let ObjectId { namespace, name } = service.object.clone();
        let id = ObjectId { namespace, name: format!("{name}-{number}").into() };
        let workload = from_entry(cx, &service.cluster, &id, inline, &Labels::new());
        endpoints.push(at_service(&workload, service));
    }
    let by_dns = matches!(service.resolution, Resolution::Dns | Resolution::DnsRace | Resolution::DnsRoundRobin);
    if endpoints.is_empty() && by_dns && !service.key.hostname.is_wildcard() {
        endpoints.push(named(cx, service));
    }
    // Without the name's addresses, a DNS name cannot be a static endpoint; validation reports it.
    // A workload without an address is only reachable through the gateway of its network.
    endpoints.retain(|e| match &e.address {
        EndpointAddress::Hostname(_) if e.address.is_unknown() => !by_dns && !e.network.is_empty(),
        EndpointAddress::Hostname(_) => by_dns,
        _ => true,
    });
    endpoints
}

/// A workload as an endpoint of a service.
fn at_service(workload: &Workload, service: &Service) -> Endpoint {
    let ports = service.ports.iter().filter_map(|p| Some((p.name.clone(), port_at(workload, service, p)?)));
    Endpoint { ports: Arc::new(ports.collect()), ..of_workload(workload) }
}

/// The workload's port for a service port: by name in the workload's ports (WorkloadEntry `ports`), else the target
/// port, else the same number.
fn port_at(workload: &Workload, service: &Service, port: &ServicePort) -> Option<u16> {
    let listed = (!workload.pod).then(|| workload.ports.get(&port.name)).flatten();
    if let Some(listed) = listed {
        return Some(*listed);
    }
    match &port.target {
        Some(TargetPort::Number(number)) => Some(*number),
        Some(TargetPort::Name(name)) if service.registry == Registry::Kubernetes => workload.ports.get(name).copied(),
        _ => Some(port.number),
    }
}

/// The endpoint of a service that is resolved by its own hostname.
fn named(cx: &Reads<'_>, service: &Service) -> Endpoint {
    let target = |p: &ServicePort| match p.target {
        Some(TargetPort::Number(number)) => number,
        _ => p.number,
    };
    let ports = service.ports.iter().map(|p| (p.name.clone(), target(p)));
    let workload = Some(service.object.clone());
    Endpoint {
        ports: Arc::new(ports.collect()),
        workload,
        ..bare(cx, &service.cluster, parse_address(service.key.hostname.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn endpoint(address: IpAddr, workload: u32, cluster: &str, health: Health) -> Endpoint {
        Endpoint {
            address: EndpointAddress::Ip(address),
            also: None,
            ports: Arc::default(),
            cluster: cluster.into(),
            labels: Arc::default(),
            locality: Locality::default(),
            weight: 1,
            network: Arc::default(),
            service_account: Arc::default(),
            health,
            node: Arc::default(),
            workload: Some(ObjectId { namespace: "shop".into(), name: format!("pod-{workload}").into() }),
            mutual_tls: false,
            own_cluster: false,
        }
    }

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn v6(number: u32) -> IpAddr {
        Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(number)).into()
    }

    #[test]
    fn ten_thousand_dual_stack_workloads_have_one_endpoint_each() {
        const WORKLOADS: u32 = 10_000;
        let healthy = |address, workload| endpoint(address, workload, "a", Health::Healthy);
        let mut endpoints: Vec<Endpoint> = (0..WORKLOADS).map(|n| healthy(v4(n), n)).collect();
        // In another order than the others.
        endpoints.extend((0..WORKLOADS).map(|n| (n * 7 + 3) % WORKLOADS).map(|n| healthy(v6(n), n)));
        join_families(&mut endpoints);
        assert_eq!(endpoints.len(), WORKLOADS as usize);
        for joined in &endpoints {
            let EndpointAddress::Ip(IpAddr::V4(address)) = joined.address else {
                panic!("{:?} is the first address", joined.address);
            };
            assert_eq!(joined.also, Some(v6(address.to_bits() - 0x0a00_0000)));
        }
    }

    #[test]
    fn only_equal_endpoints_of_one_workload_are_joined() {
        let (up, down) = (Health::Healthy, Health::Unhealthy);
        let no_workload = |address| Endpoint { workload: None, ..endpoint(address, 0, "a", up) };
        let mut endpoints = vec![
            endpoint(v4(1), 1, "a", up),
            endpoint(v6(1), 1, "a", up),
            // In another cluster.
            endpoint(v4(2), 2, "a", up),
            endpoint(v6(2), 2, "b", up),
            // With another health.
            endpoint(v4(3), 3, "a", up),
            endpoint(v6(3), 3, "a", down),
            // With one family.
            endpoint(v4(4), 4, "a", up),
            endpoint(v6(5), 5, "a", up),
            no_workload(v4(6)),
            no_workload(v6(6)),
        ];
        let sorted = |mut endpoints: Vec<Endpoint>| {
            endpoints.sort();
            endpoints
        };
        let mut want = endpoints.clone();
        want.remove(1);
        want[0].also = Some(v6(1));
        join_families(&mut endpoints);
        assert_eq!(sorted(endpoints), sorted(want));
    }
}
