//! The ports of a proxy's own workload that take traffic: what services lead to, or what its `Sidecar` declares.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::MeshConfig;
use config::istio::{CaptureMode, IngressListener, Sidecar};
use flow::Reads;
use model::audience::{DefaultEndpoint, EVERYWHERE, InboundPort, IpFamilies};
use model::proxy::{InterceptionMode, Labels, Proxy};
use model::service::{Service, ServiceKey, TargetPort, Workload};
use names::{Hostname, Protocol};
use registry::inputs::{MeshSettings, ServiceObjectKey};
use registry::{InstancePorts, Services, ServicesByAddress, selectors};

/// A service with this label keeps gateways from translating its ports to target ports.
const NO_TRANSLATION_LABEL: &str = "experimental.istio.io/disable-gateway-port-translation";

/// The ports that a sidecar accepts connections for, ascending. A `Sidecar` with ingress listeners replaces what services
/// say. Without capture only such listeners exist: the application itself is bound to the ports of its services.
pub(super) fn ports(
    cx: &Reads<'_>,
    proxy: &Proxy,
    instance: &Instance<'_>,
    (ip, sidecar): (IpFamilies, Option<&Sidecar>),
) -> Arc<[InboundPort]> {
    let mesh = &instance.mesh.config;
    let mut ports: BTreeMap<u16, InboundPort> = BTreeMap::new();
    let mut add = |port: InboundPort| {
        ports.entry(port.port).or_insert(port);
    };
    match sidecar.map(|s| &s.ingress[..]) {
        Some(ingress @ [_, ..]) => ingress
            .iter()
            .filter_map(|l| declared(proxy, ip, mesh, l))
            .for_each(&mut add),
        _ if proxy.interception == InterceptionMode::None => {}
        _ => targets(cx, proxy, instance)
            .into_iter()
            .filter(|t| !is_reserved(t.workload_port, proxy, mesh))
            .filter_map(Target::into_port)
            .for_each(&mut add),
    }
    ports.into_values().collect()
}

/// The ports that services lead to, ascending: what a workload without a proxy may serve.
pub(super) fn served(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Arc<[u16]> {
    let is_tcp = |target: &Target| {
        let port = target.service.port(target.service_port);
        port.is_some_and(|port| port.protocol != Protocol::Udp)
    };
    let targets = targets(cx, proxy, instance);
    let ports: BTreeSet<u16> = targets.iter().filter(|t| is_tcp(t)).map(|t| t.workload_port).collect();
    ports.into_iter().collect()
}

/// For a gateway: the port of its workload that each port of its services leads to, where it is another one. Of several
/// services with one port the oldest decides.
pub(super) fn translated(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Arc<[(u16, u16)]> {
    let mut ports: BTreeMap<u16, u16> = BTreeMap::new();
    for target in targets(cx, proxy, instance) {
        if !target.service.labels.contains_key(NO_TRANSLATION_LABEL) {
            ports.entry(target.service_port).or_insert(target.workload_port);
        }
    }
    ports.into_iter().filter(|(from, to)| from != to).collect()
}

/// For a gateway: the ports of its services that take UDP, ascending.
pub(super) fn udp(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Arc<[u16]> {
    let targets = targets(cx, proxy, instance);
    let ports = targets.iter().flat_map(|target| &target.service.ports);
    let udp = ports.filter(|port| port.protocol == Protocol::Udp);
    let numbers: BTreeSet<u16> = udp.map(|port| port.number).collect();
    numbers.into_iter().collect()
}

/// The service that leads to a proxy's workload first, and its port.
pub(super) fn first_service(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Option<(ServiceKey, u16)> {
    let targets = targets(cx, proxy, instance);
    targets.first().map(|t| (t.service.key.clone(), t.service_port))
}

/// What is known of the workload that a proxy serves.
pub(super) struct Instance<'a> {
    /// Its cluster, as in `Scope`.
    pub(super) cluster: &'a Arc<str>,
    /// Its pod.
    pub(super) pod: Option<&'a Workload>,
    /// Its labels.
    pub(super) labels: &'a Labels,
    pub(super) mesh: &'a MeshSettings,
}

/// A service port that leads to a port of the proxy's workload.
struct Target {
    service: Arc<Service>,
    service_port: u16,
    workload_port: u16,
}

impl Target {
    fn into_port(self) -> Option<InboundPort> {
        let protocol = self.service.port(self.service_port)?.protocol;
        if protocol == Protocol::Udp {
            return None;
        }
        Some(InboundPort {
            port: self.workload_port,
            protocol,
            endpoint: None,
            service: Some((self.service.key.clone(), self.service_port)),
            bind: None,
            captured: true,
            tls: false,
        })
    }
}

/// What services of the proxy's own namespace have at its addresses, the oldest service first. Services of other
/// namespaces have no say in what a workload accepts.
fn targets(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Vec<Target> {
    let mut found: Vec<(Arc<Service>, IpAddr)> = Vec::new();
    for ip in &proxy.addresses {
        let keys = cx.get::<ServicesByAddress>(ip);
        let own = keys
            .iter()
            .flat_map(|members| members.iter())
            .filter(|k| k.namespace == proxy.namespace);
        found.extend(own.filter_map(|k: &ServiceKey| Some(((*cx.get::<Services>(k)?).clone(), *ip))));
    }
    if found.is_empty() {
        return selected(cx, proxy, instance);
    }
    found.sort_by(|(a, _), (b, _)| (a.created, &a.key).cmp(&(b.created, &b.key)));
    let ports = |(service, ip): (Arc<Service>, IpAddr)| {
        let ports = cx.get::<InstancePorts>(&(ip, instance.cluster.clone(), service.key.clone()));
        let ports = ports.map(|p| p.to_vec()).unwrap_or_default().into_iter();
        ports.map(move |(service_port, workload_port)| Target {
            service: service.clone(),
            service_port,
            workload_port,
        })
    };
    found.into_iter().flat_map(ports).collect()
}

/// What services have by which the workload is selected, the oldest first: where no endpoint has its address. A pod that
/// was just deleted is an endpoint of nothing, and has requests to answer nonetheless; one that has just begun is none yet.
fn selected(cx: &Reads<'_>, proxy: &Proxy, instance: &Instance<'_>) -> Vec<Target> {
    let mesh = instance.mesh;
    let cluster = mesh.cluster_of_id(&proxy.cluster_id);
    let keys = selectors::selecting(cx, &cluster, &proxy.namespace, instance.labels);
    let service = |key: &ServiceObjectKey| {
        let hostname = Hostname::of_service(&key.id.name, &key.id.namespace, &mesh.domain).ok()?;
        let namespace = key.id.namespace.clone();
        cx.get::<Services>(&ServiceKey { hostname, namespace })
    };
    let mut services: Vec<Arc<Service>> = keys.iter().filter_map(service).map(|row| (*row).clone()).collect();
    services.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
    let named = |name: &Arc<str>| match instance.pod {
        Some(pod) => pod.ports.get(name).copied(),
        None => proxy.ports.get(name).copied(),
    };
    let mut found = Vec::new();
    for service in services {
        for port in &service.ports {
            let workload_port = match &port.target {
                Some(TargetPort::Number(number)) => Some(*number),
                Some(TargetPort::Name(name)) => named(name),
                None => Some(port.number),
            };
            found.extend(workload_port.map(|workload_port| Target {
                service: service.clone(),
                service_port: port.number,
                workload_port,
            }));
        }
    }
    found
}

/// Ports of the proxy itself cannot be ports of its application.
fn is_reserved(port: u16, proxy: &Proxy, mesh: &MeshConfig) -> bool {
    let own = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
    proxy.static_ports.contains(&port) || own.contains(&i32::from(port))
}

/// An ingress listener of a `Sidecar`, unless the proxy cannot have it.
fn declared(proxy: &Proxy, ip: IpFamilies, mesh: &MeshConfig, listener: &IngressListener) -> Option<InboundPort> {
    let declared = listener.port.as_ref()?;
    let port = u16::try_from(declared.number).ok().filter(|p| *p != 0)?;
    let captured = match listener.capture_mode {
        CaptureMode::Default => proxy.interception != InterceptionMode::None,
        CaptureMode::Iptables => true,
        CaptureMode::None => false,
    };
    // Connections to the port that captured ones arrive at would come again for ever: they are closed.
    if captured && i32::from(port) == mesh.proxy_inbound_listen_port {
        return None;
    }
    if !captured && proxy.unprivileged && port < 1024 {
        return None;
    }
    let protocol = match listener.tls {
        Some(_) => declared.kind().after_tls_termination(),
        None => declared.kind(),
    };
    let wildcard = match &*listener.bind {
        "" => protocol.is_http(),
        bind => bind == ip.wildcard().to_string(),
    };
    if wildcard && proxy.static_ports.contains(&port) {
        return None;
    }
    let bind = match &*listener.bind {
        // A chain of the virtual listener is not bound to anything. Istio names it by the workload's address all the
        // same; that would set apart the listeners of workloads that differ in nothing else.
        "" if captured => None,
        "" => match own_address(proxy) {
            Some(address) => Some(address.to_string().into()),
            None => Some(EVERYWHERE.into()),
        },
        _ => Some(listener.bind.clone()),
    };
    let endpoint = default_endpoint(&listener.default_endpoint);
    Some(InboundPort {
        port,
        protocol,
        endpoint,
        service: None,
        bind,
        captured,
        tls: listener.tls.is_some(),
    })
}

/// Where a listener of the workload is bound if nobody says: the first address that others can reach, so that the
/// application can have the same port at the loopback address; none where there is no such address, and it is all of them.
fn own_address(proxy: &Proxy) -> Option<IpAddr> {
    let reachable = |a: &&IpAddr| {
        let link_local = match a {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        !(a.is_loopback() || a.is_unspecified() || a.is_multicast() || link_local)
    };
    proxy.addresses.iter().find(reachable).copied()
}

/// Parses `defaultEndpoint`: `127.0.0.1:PORT`, `0.0.0.0:PORT` (and their IPv6 forms), `unix:///PATH`. Absent where empty or
/// not understood, which parsing has reported.
fn default_endpoint(text: &str) -> Option<DefaultEndpoint> {
    if let Some(path) = text.strip_prefix("unix://") {
        return Some(DefaultEndpoint::Unix(path.into()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|p| *p != 0)?;
    let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    match address {
        _ if address.is_loopback() => Some(DefaultEndpoint::Loopback(port)),
        _ if address.is_unspecified() => Some(DefaultEndpoint::Instance(port)),
        _ => None,
    }
}
