//! Ports of a proxy's workload that accept traffic: target ports of services, or those that its `Sidecar` declares.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::MeshConfig;
use config::istio::{CaptureMode, IngressListener};
use model::audience::{ALL_ADDRESSES, DefaultEndpoint, InboundPort, IpFamilies};
use model::proxy::{InterceptionMode, Proxy};
use model::service::{Registry, Service, ServiceKey, TargetPort};
use names::{Hostname, Protocol};
use registry::inputs::ServiceObjectKey;
use registry::{InstancePorts, Services, ServicesByAddress, selectors};

use super::facts::Facts;

/// Services with this label are excluded from the translation of gateway ports to target ports.
const NO_TRANSLATION_LABEL: &str = "experimental.istio.io/disable-gateway-port-translation";

/// The ports that a sidecar accepts connections for, ascending. Ingress listeners of a `Sidecar` replace the ports of
/// services. Without traffic capture only such listeners exist, because the application itself listens on the service ports.
pub(super) fn ports(facts: &Facts<'_>) -> Arc<[InboundPort]> {
    let (proxy, mesh) = (facts.proxy, &facts.mesh.config);
    let mut ports: BTreeMap<u16, InboundPort> = BTreeMap::new();
    let mut add = |port: InboundPort| {
        ports.entry(port.port).or_insert(port);
    };
    match facts.sidecar.as_ref().map(|sidecar| &sidecar.spec.ingress[..]) {
        Some(ingress @ [_, ..]) => {
            let targets = targets(facts);
            for mut port in ingress.iter().filter_map(|l| declared(proxy, facts.ip, mesh, l)) {
                let target = targets.iter().find(|target| target.workload_port == port.port);
                port.service = target.map(|target| (target.service.key.clone(), target.service_port));
                add(port);
            }
        }
        _ if proxy.interception == InterceptionMode::None => {}
        _ => targets(facts)
            .into_iter()
            .filter(|t| !is_reserved(t.workload_port, proxy, mesh))
            .filter_map(Target::into_port)
            .for_each(&mut add),
    }
    ports.into_values().collect()
}

/// The target ports of services, ascending: the ports that a proxyless workload may serve.
pub(super) fn served(facts: &Facts<'_>) -> Arc<[u16]> {
    let is_tcp = |target: &Target| {
        let port = target.service.port(target.service_port);
        port.is_some_and(|port| port.protocol != Protocol::Udp)
    };
    let targets = targets(facts);
    let ports: BTreeSet<u16> = targets.iter().filter(|t| is_tcp(t)).map(|t| t.workload_port).collect();
    ports.into_iter().collect()
}

/// Target ports of a gateway's services by service port, only where they differ. The oldest of several services with one
/// port wins.
pub(super) fn translated(facts: &Facts<'_>) -> Arc<[(u16, u16)]> {
    let mut ports: BTreeMap<u16, u16> = BTreeMap::new();
    for target in targets(facts) {
        if !target.service.labels.contains_key(NO_TRANSLATION_LABEL) {
            ports.entry(target.service_port).or_insert(target.workload_port);
        }
    }
    ports.into_iter().filter(|(from, to)| from != to).collect()
}

/// The UDP ports of a gateway's services, ascending.
pub(super) fn udp(facts: &Facts<'_>) -> Arc<[u16]> {
    let targets = targets(facts);
    let ports = targets.iter().flat_map(|target| &target.service.ports);
    let udp = ports.filter(|port| port.protocol == Protocol::Udp);
    let numbers: BTreeSet<u16> = udp.map(|port| port.number).collect();
    numbers.into_iter().collect()
}

/// The services of the proxy's own namespace that lead to its workload.
pub(super) fn services(facts: &Facts<'_>) -> BTreeSet<ServiceKey> {
    targets(facts).into_iter().map(|target| target.service.key.clone()).collect()
}

/// The oldest service that selects a proxy's workload, and its port.
pub(super) fn first_service(facts: &Facts<'_>) -> Option<(ServiceKey, u16)> {
    let targets = targets(facts);
    targets.first().map(|t| (t.service.key.clone(), t.service_port))
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
            by_sidecar: false,
            bind: None,
            captured: true,
            tls: false,
        })
    }
}

/// The service ports that lead to the proxy's addresses, the oldest service first, and those of pools last. Only services of the proxy's own
/// namespace count.
fn targets(facts: &Facts<'_>) -> Vec<Target> {
    let (cx, proxy) = (facts.cx, facts.proxy);
    let mut found: Vec<(Arc<Service>, IpAddr)> = Vec::new();
    for ip in &proxy.addresses {
        let keys = cx.get::<ServicesByAddress>(ip);
        let own = keys.iter().flat_map(|members| members.iter()).filter(|k| k.namespace == proxy.namespace);
        found.extend(own.filter_map(|k: &ServiceKey| Some(((*cx.get::<Services>(k)?).clone(), *ip))));
    }
    found.sort_by(|(a, _), (b, _)| (a.created, &a.key).cmp(&(b.created, &b.key)));
    let ports = |(service, ip): (Arc<Service>, IpAddr)| {
        let ports = cx.get::<InstancePorts>(&(ip, facts.scope.cluster.clone(), service.key.clone()));
        let ports = ports.map(|p| p.to_vec()).unwrap_or_default().into_iter();
        ports.map(move |(service_port, workload_port)| Target { service: service.clone(), service_port, workload_port })
    };
    // Services come before pools, which have pods that are no endpoints of services, too.
    let (pools, services): (Vec<_>, Vec<_>) = found.into_iter().partition(|(one, _)| one.registry == Registry::Pool);
    let mut targets: Vec<Target> = match services.is_empty() {
        true => selected(facts),
        false => services.into_iter().flat_map(ports).collect(),
    };
    targets.extend(pools.into_iter().flat_map(ports));
    targets
}

/// The ports of services that select the workload by labels, the oldest first. Used if no endpoint has its address: a pod
/// that is terminating is no endpoint anymore but still answers requests, and one that just started is not one yet.
fn selected(facts: &Facts<'_>) -> Vec<Target> {
    let (cx, proxy, mesh) = (facts.cx, facts.proxy, facts.mesh);
    let cluster = mesh.cluster_of_id(&proxy.cluster_id);
    let keys = selectors::selecting(cx, &cluster, &proxy.namespace, facts.labels);
    let service = |key: &ServiceObjectKey| {
        let hostname = Hostname::of_service(&key.id.name, &key.id.namespace, &mesh.domain).ok()?;
        let namespace = key.id.namespace.clone();
        cx.get::<Services>(&ServiceKey { hostname, namespace })
    };
    let mut services: Vec<Arc<Service>> = keys.iter().filter_map(service).map(|row| (*row).clone()).collect();
    services.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
    let named = |name: &Arc<str>| match facts.pod {
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

/// Whether a port belongs to the proxy, so that the application cannot use it.
fn is_reserved(port: u16, proxy: &Proxy, mesh: &MeshConfig) -> bool {
    let own = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
    proxy.static_ports.contains(&port) || own.contains(&i32::from(port))
}

/// The port of a `Sidecar`'s ingress listener; none if the proxy cannot listen there.
fn declared(proxy: &Proxy, ip: IpFamilies, mesh: &MeshConfig, listener: &IngressListener) -> Option<InboundPort> {
    let declared = listener.port.as_ref()?;
    let port = u16::try_from(declared.number).ok().filter(|p| *p != 0)?;
    let captured = match listener.capture_mode {
        CaptureMode::Default => proxy.interception != InterceptionMode::None,
        CaptureMode::Iptables => true,
        CaptureMode::None => false,
    };
    // Connections to the port of the virtual inbound listener would loop, so they are closed.
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
        // A filter chain of the virtual listener is not bound. Istio includes the workload's address in its name, but then
        // workloads that differ in nothing else could not share listeners.
        "" if captured => None,
        "" => match own_address(proxy) {
            Some(address) => Some(address.to_string().into()),
            None => Some(ALL_ADDRESSES.into()),
        },
        _ => Some(listener.bind.clone()),
    };
    let endpoint = default_endpoint(&listener.default_endpoint);
    let tls = listener.tls.is_some();
    Some(InboundPort { port, protocol, endpoint, service: None, by_sidecar: true, bind, captured, tls })
}

/// The default bind address of an ingress listener: the first address that others can reach, so that the application can use
/// the same port on the loopback address. None if there is no such address: the listener binds all addresses.
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

/// Parses `defaultEndpoint`: `127.0.0.1:PORT`, `0.0.0.0:PORT` (and their IPv6 forms), `unix:///PATH`. None if empty or
/// invalid; validation reports the latter.
fn default_endpoint(text: &str) -> Option<DefaultEndpoint> {
    if let Some(path) = text.strip_prefix("unix://") {
        return Some(DefaultEndpoint::Unix(path.into()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|p| *p != 0)?;
    let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    match address {
        _ if address.is_loopback() => Some(DefaultEndpoint::Loopback { port, v6: address.is_ipv6() }),
        _ if address.is_unspecified() => Some(DefaultEndpoint::Instance(port)),
        _ => None,
    }
}
