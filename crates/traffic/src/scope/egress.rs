//! Services that a `Sidecar`'s egress listeners import.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow::Reads;
use model::audience::Scope;
use model::service::{Registry, ServiceKey};
use names::Hostname;
use registry::{Services, ServicesByHost};

use super::{EgressListener, EgressPort, Ports, ServicesByPort, VisibleService, attached, visible};
use crate::hosts::EgressHosts;
use crate::virtual_service::{MeshLookup, VirtualServiceSummaries};

/// An egress listener with the services that its hosts import.
pub(super) fn listener(cx: &Reads<'_>, scope: &Scope, written: &config::istio::EgressListener) -> EgressListener {
    let hosts = EgressHosts::parse(&written.hosts, &scope.namespace);
    let port = written.port.as_ref().map(|port| EgressPort {
        number: u16::try_from(port.number).unwrap_or(0),
        protocol: port.kind(),
        name: port.name.clone(),
    });
    let bind = (!written.bind.is_empty()).then(|| written.bind.clone());
    let mut out = EgressListener { port, bind, capture: written.capture_mode, hosts, services: Arc::from([]) };
    let mut keys = candidates(cx, scope, &out.hosts);
    keys.retain(|key| out.hosts.admits_service(&key.namespace, &key.hostname));
    let only = out.service_port();
    if let Some(port) = only {
        retain_with_port(cx, &out.hosts, port, &mut keys);
    }
    out.services = visible::one_per_host(cx, &scope.namespace, keys);
    if let Some(port) = only {
        let one: Arc<[u16]> = Arc::from([port]);
        let cut = |s: &VisibleService| VisibleService { key: s.key.clone(), ports: Ports::Only(one.clone()) };
        out.services = out.services.iter().map(cut).collect();
    }
    out
}

/// Keeps the services with a port. If there are few, each is read separately, so that other services do not affect this
/// scope.
fn retain_with_port(cx: &Reads<'_>, hosts: &EgressHosts, port: u16, keys: &mut Vec<ServiceKey>) {
    if hosts.all_namespaces().wildcards.is_empty() {
        keys.retain(|key| cx.with::<Services, _>(key, |s| s.is_some_and(|s| s.port(port).is_some())));
        return;
    }
    let with_port = cx.get::<ServicesByPort>(&port).map(|m| (*m).clone()).unwrap_or_default();
    keys.retain(|key| with_port.contains(key));
}

/// Visible services that the hosts may import. Exact hosts and single namespaces are looked up, so that changes
/// elsewhere do not affect this scope.
fn candidates(cx: &Reads<'_>, scope: &Scope, hosts: &EgressHosts) -> Vec<ServiceKey> {
    let client = &scope.namespace;
    if !hosts.all_namespaces().wildcards.is_empty() {
        return visible::all_exported_to(cx, client);
    }
    let mut out = Vec::new();
    for host in &hosts.all_namespaces().exact {
        out.extend(by_host(cx, client, host));
    }
    for (namespace, set) in hosts.namespaces() {
        if !set.wildcards.is_empty() {
            out.extend(visible::of_namespace(cx, client, namespace));
            continue;
        }
        for host in &set.exact {
            out.extend(by_host(cx, client, host).into_iter().filter(|key| key.namespace == *namespace));
        }
    }
    out
}

fn by_host(cx: &Reads<'_>, client: &str, host: &Hostname) -> Vec<ServiceKey> {
    cx.get::<ServicesByHost>(host).map(|keys| visible::visible_of(cx, client, &keys)).unwrap_or_default()
}

/// The services of all listeners, and further destinations of their VirtualServices and routes, one per hostname, ascending.
pub(super) fn union(cx: &Reads<'_>, scope: &Scope, listeners: &[EgressListener]) -> Arc<[VisibleService]> {
    let mut out: BTreeMap<Hostname, VisibleService> = BTreeMap::new();
    let lookup = MeshLookup::new(cx, &scope.namespace);
    for listener in listeners {
        for service in listener.services.iter() {
            add(cx, &mut out, service.clone());
        }
        for (host, ports) in destinations(cx, scope, &lookup, listener) {
            let wanted: Option<Vec<u16>> = match listener.service_port() {
                Some(port) => Some(vec![port]),
                None => ports.into_iter().collect(),
            };
            let inferred = inferred(cx, scope, &host, wanted.as_deref());
            inferred.into_iter().for_each(|service| add(cx, &mut out, service));
        }
        for (host, ports) in attached::backends(cx, scope, listener) {
            let ports: Vec<u16> = ports.into_iter().collect();
            inferred(cx, scope, &host, Some(&ports)).into_iter().for_each(|service| add(cx, &mut out, service));
        }
    }
    out.into_values().collect()
}

/// The first service of a hostname wins, but Kubernetes services win over others. Ports of one service are joined.
fn add(cx: &Reads<'_>, out: &mut BTreeMap<Hostname, VisibleService>, service: VisibleService) {
    let Some(existing) = out.get_mut(&service.key.hostname) else {
        out.insert(service.key.hostname.clone(), service);
        return;
    };
    if existing.key == service.key {
        existing.ports = existing.ports.union(&service.ports);
        return;
    }
    let registry = |key: &ServiceKey| cx.with::<Services, _>(key, |s| s.map(|s| s.registry));
    let is_kubernetes = |key| registry(key) == Some(Registry::Kubernetes);
    if is_kubernetes(&service.key) && !is_kubernetes(&existing.key) {
        *existing = service;
    }
}

/// Destinations of a listener's VirtualServices for clients of the scope: ports by host; none means all ports.
fn destinations(
    cx: &Reads<'_>,
    scope: &Scope,
    lookup: &MeshLookup,
    listener: &EgressListener,
) -> BTreeMap<Hostname, Vec<Option<u16>>> {
    let mut out: BTreeMap<Hostname, Vec<Option<u16>>> = BTreeMap::new();
    for entry in lookup.all(&listener.hosts) {
        let Some(summary) = cx.get::<VirtualServiceSummaries>(&entry.id) else {
            continue;
        };
        for used in &summary.destinations {
            if used.namespaces.is_empty() || used.namespaces.contains(&scope.namespace) {
                out.entry(used.host.clone()).or_default().push(used.port);
            }
        }
    }
    out
}

/// The service of a destination that the scope does not import itself, restricted to the used ports.
fn inferred(cx: &Reads<'_>, scope: &Scope, host: &Hostname, wanted: Option<&[u16]>) -> Option<VisibleService> {
    let key = visible::preferred(cx, &scope.namespace, by_host(cx, &scope.namespace, host))?;
    let service = cx.get::<Services>(&key)?;
    let Some(wanted) = wanted else { return Some(VisibleService { key, ports: Ports::All }) };
    let has: Vec<u16> = service.ports.iter().map(|p| p.number).filter(|p| wanted.contains(p)).collect();
    let ports = if has.len() == service.ports.len() { Ports::All } else { Ports::Only(has.into()) };
    let none = matches!(&ports, Ports::Only(list) if list.is_empty());
    (!none).then_some(VisibleService { key, ports })
}
