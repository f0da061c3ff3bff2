//! Endpoints of services, whatever provides them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flow::{Index, Members, Reads, Relation, Rule};
use model::proxy::{Labels, Locality};
use model::service::{
    Endpoint, EndpointAddress, Health, ObjectId, Registry, Resolution, Service, ServiceKey, ServicePort, TargetPort,
    Workload,
};
use resources::core::EndpointSlice;
use resources::istio::ServiceEntry;
use resources::{Object, core};

use crate::inputs::{EndpointSlices, ServiceObject, ServiceObjectKey, ServiceObjects, WorkloadObjectKey};
use crate::services::Services;
use crate::workloads::{PodsByAddress, Workloads, from_entry, parse_address, select};

/// EndpointSlices of a Kubernetes service, by its namespace and name.
pub struct SlicesByService;

impl Relation for SlicesByService {
    const NAME: &'static str = "endpoint slices by service";
    type Key = ObjectId;
    type Row = Members<ObjectId>;
}

impl Index for SlicesByService {
    type Of = EndpointSlices;
    fn keys(key: &ObjectId, row: &Arc<Object<EndpointSlice>>) -> Vec<ObjectId> {
        let name = row.meta.labels.get(EndpointSlice::SERVICE_LABEL);
        name.map(|name| ObjectId {
            namespace: key.namespace.clone(),
            name: name.clone(),
        })
        .into_iter()
        .collect()
    }
}

/// The endpoints of one slice, joined with their pods.
pub struct SliceEndpoints;

impl Relation for SliceEndpoints {
    const NAME: &'static str = "endpoints of a slice";
    type Key = ObjectId;
    type Row = Arc<[Endpoint]>;
}

impl Rule for SliceEndpoints {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<[Endpoint]>> {
        let slice = cx.get::<EndpointSlices>(key)?;
        let ports: Arc<BTreeMap<Arc<str>, u16>> = Arc::new(
            slice
                .spec
                .ports
                .iter()
                .filter_map(|p| Some((p.name.clone(), p.port?)))
                .collect(),
        );
        let endpoints = slice.spec.endpoints.iter();
        Some(endpoints.flat_map(|e| from_slice(cx, key, e, &ports)).collect())
    }
}

/// The endpoints of each service, sorted; an empty list for a service without any.
pub struct ServiceEndpoints;

impl Relation for ServiceEndpoints {
    const NAME: &'static str = "endpoints of a service";
    type Key = ServiceKey;
    type Row = Arc<[Endpoint]>;
}

impl Rule for ServiceEndpoints {
    fn derive(cx: &Reads<'_>, key: &ServiceKey) -> Option<Arc<[Endpoint]>> {
        let service = cx.get::<Services>(key)?;
        let object = ServiceObjectKey {
            registry: service.registry,
            id: service.object.clone(),
        };
        let mut endpoints = match &*cx.get::<ServiceObjects>(&object)? {
            ServiceObject::Kubernetes(o) => of_kubernetes(cx, &service, &o.spec),
            ServiceObject::Entry(o) => of_entry(cx, &service, &o.spec),
        };
        endpoints.sort();
        endpoints.dedup_by(|a, b| a.address == b.address && a.ports == b.ports);
        Some(endpoints.into())
    }
}

/// Services that have an endpoint at an address: what a proxy of that address serves.
pub struct ServicesByAddress;

impl Relation for ServicesByAddress {
    const NAME: &'static str = "services by endpoint address";
    type Key = IpAddr;
    type Row = Members<ServiceKey>;
}

impl Index for ServicesByAddress {
    type Of = ServiceEndpoints;
    fn keys(_: &ServiceKey, row: &Arc<[Endpoint]>) -> Vec<IpAddr> {
        let ip = |e: &Endpoint| match e.address {
            EndpointAddress::Ip(ip) => Some(ip),
            _ => None,
        };
        row.iter().filter_map(ip).collect()
    }
}

/// The ports that a service has at one address, as (service port, workload port), ascending. Apart from
/// [`ServiceEndpoints`], so that the other endpoints of the service stay out of a proxy's inbound configuration.
pub struct InstancePorts;

impl Relation for InstancePorts {
    const NAME: &'static str = "ports of an instance";
    type Key = (IpAddr, ServiceKey);
    type Row = Vec<(u16, u16)>;
}

impl Rule for InstancePorts {
    fn derive(cx: &Reads<'_>, (ip, key): &(IpAddr, ServiceKey)) -> Option<Vec<(u16, u16)>> {
        let service = cx.get::<Services>(key)?;
        let endpoints = cx.get::<ServiceEndpoints>(key)?;
        let here = endpoints.iter().filter(|e| e.address == EndpointAddress::Ip(*ip));
        let mut ports: Vec<(u16, u16)> = here
            .flat_map(|e| {
                service
                    .ports
                    .iter()
                    .filter_map(|p| Some((p.number, *e.ports.get(&p.name)?)))
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        Some(ports)
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<SlicesByService>();
    b.world::<SliceEndpoints, EndpointSlices>();
    b.world::<ServiceEndpoints, Services>();
    b.index::<ServicesByAddress>();
    b.view::<InstancePorts>();
}

fn from_slice(
    cx: &Reads<'_>,
    slice: &ObjectId,
    endpoint: &core::Endpoint,
    ports: &Arc<BTreeMap<Arc<str>, u16>>,
) -> Vec<Endpoint> {
    let conditions = &endpoint.conditions;
    let health = match (
        conditions.is_ready(),
        conditions.is_terminating(),
        conditions.is_serving(),
    ) {
        (true, ..) => Health::Healthy,
        (false, true, true) => Health::Draining,
        // It has stopped already.
        (false, true, false) => return Vec::new(),
        (false, false, _) => Health::Unhealthy,
    };
    let addresses = endpoint.addresses.iter().map(|a| parse_address(a));
    addresses
        .map(|address| {
            let known = match pod_of(cx, slice, endpoint, &address) {
                Some(workload) => of_workload(&workload),
                None => Endpoint {
                    node: endpoint.node_name.clone(),
                    ..bare(address.clone())
                },
            };
            Endpoint {
                address,
                ports: ports.clone(),
                health,
                ..known
            }
        })
        .collect()
}

fn pod_of(cx: &Reads<'_>, slice: &ObjectId, endpoint: &core::Endpoint, at: &EndpointAddress) -> Option<Arc<Workload>> {
    if let Some(pod) = endpoint.target_ref.as_ref().filter(|r| &*r.kind == "Pod") {
        let id = ObjectId {
            namespace: slice.namespace.clone(),
            name: pod.name.clone(),
        };
        return cx
            .get::<Workloads>(&WorkloadObjectKey { pod: true, id })
            .map(|w| (*w).clone());
    }
    let EndpointAddress::Ip(ip) = at else { return None };
    let pods = cx.get::<PodsByAddress>(ip)?;
    cx.get::<Workloads>(pods.first()?).map(|w| (*w).clone())
}

/// An endpoint of which only the address is known.
fn bare(address: EndpointAddress) -> Endpoint {
    Endpoint {
        address,
        ports: Arc::default(),
        labels: Arc::default(),
        locality: Locality::default(),
        weight: 1,
        network: "".into(),
        service_account: "".into(),
        health: Health::Healthy,
        node: "".into(),
        workload: None,
    }
}

/// The endpoint that a workload is, before it is known which ports the service has there.
fn of_workload(workload: &Workload) -> Endpoint {
    Endpoint {
        address: workload.address.clone(),
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
        // ExternalName: the name is resolved by the client's proxy.
        return vec![named(&spec.external_name, service)];
    }
    let slices = cx.get::<SlicesByService>(&service.object);
    let slices = slices.iter().flat_map(|members| members.iter());
    let mut endpoints: Vec<Endpoint> = slices
        .filter_map(|id| cx.get::<SliceEndpoints>(id))
        .flat_map(|row| row.to_vec())
        .collect();
    if service.publish_not_ready {
        endpoints.iter_mut().for_each(|e| e.health = Health::Healthy);
    }
    if !spec.selector.is_empty() {
        // Pods come through their slices; WorkloadEntries have none.
        let entries = select(cx, &service.key.namespace, &spec.selector)
            .into_iter()
            .filter(|w| !w.pod);
        endpoints.extend(entries.map(|w| at_service(&w, service)));
    }
    endpoints
}

fn of_entry(cx: &Reads<'_>, service: &Service, spec: &ServiceEntry) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    if let Some(selector) = &spec.workload_selector {
        let selected = select(cx, &service.key.namespace, &selector.labels);
        endpoints.extend(selected.iter().map(|w| at_service(w, service)));
    }
    for (number, inline) in spec.endpoints.iter().enumerate() {
        let ObjectId { namespace, name } = service.object.clone();
        let id = ObjectId {
            namespace,
            name: format!("{name}-{number}").into(),
        };
        endpoints.push(at_service(&from_entry(&id, inline, &Labels::new()), service));
    }
    let by_dns = matches!(service.resolution, Resolution::Dns | Resolution::DnsRoundRobin);
    if endpoints.is_empty() && by_dns && !service.key.hostname.is_wildcard() {
        endpoints.push(named(service.key.hostname.as_str(), service));
    }
    // A proxy without the name's addresses cannot use a DNS name as a static endpoint; parsing says so.
    endpoints.retain(|e| by_dns || !matches!(e.address, EndpointAddress::Hostname(_)));
    endpoints
}

/// A workload as an endpoint of a service.
fn at_service(workload: &Workload, service: &Service) -> Endpoint {
    let ports = service
        .ports
        .iter()
        .filter_map(|p| Some((p.name.clone(), port_at(workload, service, p)?)));
    Endpoint {
        ports: Arc::new(ports.collect()),
        ..of_workload(workload)
    }
}

/// The workload's port for a service port: by the port's name in the workload's own list (WorkloadEntry `ports`), else
/// the target port, else the same number.
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

fn named(hostname: &str, service: &Service) -> Endpoint {
    let target = |p: &ServicePort| match p.target {
        Some(TargetPort::Number(number)) => number,
        _ => p.number,
    };
    let ports = service.ports.iter().map(|p| (p.name.clone(), target(p)));
    let workload = Some(service.object.clone());
    Endpoint {
        ports: Arc::new(ports.collect()),
        workload,
        ..bare(parse_address(hostname))
    }
}
