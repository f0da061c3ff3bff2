//! Visibility: the services of each egress listener of a client, one per hostname.
//!
//! If several services have one hostname, the client's own namespace wins, then Kubernetes, then the oldest. A scope
//! without a `Sidecar` is open: it sees all services that are exported to its namespace, and [`find`] resolves one host
//! without reading others.

mod attached;
mod egress;
pub(crate) mod particular;
mod visible;

use std::sync::Arc;

use config::istio::{CaptureMode, Destination, OutboundMode};
use flow::{Index, Members, Reads};
use model::audience::Scope;
use model::service::{ExportTo, Service, ServiceKey};
use names::{Hostname, Protocol};
use registry::inputs::{Mesh, Sidecars};
use registry::{AliasTable, Exported, Services};

use crate::hosts::EgressHosts;

flow::index! {
    /// Services by port number, of any protocol.
    pub ServicesByPort: u16 => members of Services = "services by port", services_by_port_keys;
}

fn services_by_port_keys(_: &ServiceKey, row: &Arc<Service>) -> Vec<u16> {
    row.ports.iter().map(|p| p.number).collect()
}

flow::index! {
    /// Services that are exported to all namespaces, by port number.
    pub PublicServicesByPort: u16 => members of Services = "public services by port", public_services_by_port_keys;
}

fn public_services_by_port_keys(key: &ServiceKey, row: &Arc<Service>) -> Vec<u16> {
    match row.export_to {
        ExportTo::All => ServicesByPort::keys(key, row),
        ExportTo::Namespaces(_) => Vec::new(),
    }
}

flow::index! {
    /// Services by their namespace and the namespaces they are exported to.
    pub ServicesByNamespace: (Arc<str>, Exported) => members of Services = "services by namespace", services_by_namespace_keys;
}

fn services_by_namespace_keys(key: &ServiceKey, row: &Arc<Service>) -> Vec<(Arc<str>, Exported)> {
    registry::ServicesByExport::keys(key, row).into_iter().map(|e| (key.namespace.clone(), e)).collect()
}

flow::rule! {
    /// The services that a client sees, by its visibility ([`Scope::visibility`]).
    pub ScopeServices: Arc<Scope> => Arc<Visible> = "scope services", derive_scope_services;
}

/// The services that a client sees.
#[derive(Clone, PartialEq, Debug)]
pub struct Visible {
    /// The egress listeners, in the order of the `Sidecar`. A listener without a port is the last.
    pub listeners: Vec<EgressListener>,
    /// The services of all listeners and destinations of their VirtualServices and routes, one per hostname, ascending.
    pub services: Arc<[VisibleService]>,
    /// Policy for traffic to unknown destinations.
    pub outbound: OutboundPolicy,
}

/// A visible service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VisibleService {
    /// The service.
    pub key: ServiceKey,
    /// Its visible ports.
    pub ports: Ports,
}

/// The visible ports of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ports {
    /// All.
    All,
    /// These, ascending.
    Only(Arc<[u16]>),
}

impl Ports {
    /// Whether this port is visible.
    pub fn include(&self, port: u16) -> bool {
        match self {
            Ports::All => true,
            Ports::Only(ports) => ports.contains(&port),
        }
    }

    /// The union of both.
    pub fn union(&self, other: &Ports) -> Ports {
        match (self, other) {
            (Ports::Only(a), Ports::Only(b)) => {
                Ports::Only(Members::new(a.iter().chain(b.iter()).copied().collect()).to_vec().into())
            }
            _ => Ports::All,
        }
    }
}

/// An egress listener.
#[derive(Clone, PartialEq, Debug)]
pub struct EgressListener {
    /// Its port; none for the listener of all other ports.
    pub port: Option<EgressPort>,
    /// The bind address or Unix socket, if the `Sidecar` sets it.
    pub bind: Option<Arc<str>>,
    /// The capture mode.
    pub capture: CaptureMode,
    /// The hosts that it imports.
    pub hosts: EgressHosts,
    /// The imported services, one per hostname, ascending.
    pub services: Arc<[VisibleService]>,
}

/// The port of an egress listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressPort {
    /// The number; 0 for Unix sockets.
    pub number: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Its name.
    pub name: Arc<str>,
}

impl EgressListener {
    /// The listener of a client without a `Sidecar`.
    pub(crate) fn of_all_ports(services: Arc<[VisibleService]>) -> EgressListener {
        let (capture, hosts) = (CaptureMode::Default, EgressHosts::everything());
        EgressListener { port: None, bind: None, capture, hosts, services }
    }

    /// The only port of services that it serves: its own. None for HTTP proxies and Unix sockets.
    pub fn service_port(&self) -> Option<u16> {
        let port = self.port.as_ref()?;
        (port.number != 0 && port.protocol != Protocol::HttpProxy).then_some(port.number)
    }

    /// The service of this hostname.
    pub fn find(&self, host: &Hostname) -> Option<&VisibleService> {
        find_in(&self.services, host)
    }
}

flow::rule! {
    /// The service of a hostname for a client whose `Sidecar` limits what it sees, by its visibility. Other services do not change it.
    pub ScopeServicesByHost: (Arc<Scope>, Hostname) => VisibleService = "scope services by host", derive_scope_services_by_host;
}

fn derive_scope_services_by_host(cx: &Reads<'_>, (scope, host): &(Arc<Scope>, Hostname)) -> Option<VisibleService> {
    cx.with::<ScopeServices, _>(scope, |visible| visible?.find(host).cloned())
}

/// Policy for traffic to unknown destinations.
#[derive(Clone, PartialEq, Debug)]
pub enum OutboundPolicy {
    /// Forward to the original destination, or through the egress proxy.
    AllowAny {
        /// The service that traffic is sent through.
        egress_proxy: Option<Destination>,
    },
    /// Forward HTTP to the host that the request names, other traffic to the original destination.
    ByName,
    /// Reject.
    RegistryOnly,
}

impl Visible {
    /// The service of this hostname.
    pub fn find(&self, host: &Hostname) -> Option<&VisibleService> {
        find_in(&self.services, host)
    }

    /// Whether a listener imports this port of the service of this hostname.
    fn lets_call(&self, host: &Hostname, port: u16) -> bool {
        let has = |listener: &EgressListener| listener.find(host).is_some_and(|s| s.ports.include(port));
        self.listeners.iter().any(has)
    }

    /// The listener of a route table with this port (0 for HTTP proxies and Unix sockets) and name.
    pub fn listener(&self, port: u16, name: &str) -> Option<&EgressListener> {
        self.listeners.iter().find(|listener| match &listener.port {
            None => true,
            Some(own) if own.number != port => false,
            Some(_) => port != 0 || listener.bind.as_deref() == Some(name),
        })
    }
}

fn derive_scope_services(cx: &Reads<'_>, scope: &Arc<Scope>) -> Option<Arc<Visible>> {
    let sidecar = scope.sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id));
    let outbound = outbound_policy(cx, scope);
    let written = sidecar.as_ref().map_or(&[][..], |s| &s.spec.egress);
    if written.is_empty() {
        let services = visible::exported_to(cx, &scope.namespace);
        let listener = EgressListener::of_all_ports(services.clone());
        return Some(Arc::new(Visible { listeners: vec![listener], services, outbound }));
    }
    let listeners: Vec<EgressListener> = written.iter().map(|l| egress::listener(cx, scope, l)).collect();
    let services = egress::union(cx, scope, &listeners);
    Some(Arc::new(Visible { listeners, services, outbound }))
}

fn outbound(mode: OutboundMode, egress_proxy: Option<&Destination>) -> OutboundPolicy {
    match mode {
        OutboundMode::RegistryOnly => OutboundPolicy::RegistryOnly,
        OutboundMode::AllowAnyDynamicDns => OutboundPolicy::ByName,
        OutboundMode::AllowAny => OutboundPolicy::AllowAny { egress_proxy: egress_proxy.cloned() },
    }
}

/// Whether a scope is open: it sees all services that are exported to its namespace through one listener, so that its
/// visibility depends on the namespace only.
pub fn is_open(cx: &Reads<'_>, scope: &Scope) -> bool {
    let Some(id) = &scope.sidecar else { return true };
    cx.with::<Sidecars, _>(id, |sidecar| match sidecar.map(|s| &s.spec.egress[..]) {
        None | Some([]) => true,
        Some([only]) => only.port.is_none() && EgressHosts::parse(&only.hosts, &scope.namespace).is_everything(),
        Some(_) => false,
    })
}

/// The services that a client sees.
pub fn visible(cx: &Reads<'_>, scope: &Arc<Scope>) -> Option<Arc<Visible>> {
    Some((*cx.get::<ScopeServices>(&scope.visibility())?).clone())
}

/// All services that an open scope sees, by hostname.
pub(crate) fn all_seen(cx: &Reads<'_>, scope: &Scope) -> Arc<[VisibleService]> {
    visible::exported_to(cx, &scope.namespace)
}

/// The policy of a scope for traffic to unknown destinations.
pub fn outbound_policy(cx: &Reads<'_>, scope: &Scope) -> OutboundPolicy {
    let sidecar = scope.sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id));
    if let Some(policy) = sidecar.as_ref().and_then(|s| s.spec.outbound_traffic_policy.as_ref()) {
        return outbound(policy.mode, policy.egress_proxy.as_ref());
    }
    let mesh = cx.get::<Mesh>(&());
    outbound(mesh.map_or(OutboundMode::AllowAny, |mesh| mesh.config.outbound_traffic_policy.mode), None)
}

/// The service of a hostname that a scope sees, as [`Visible::find`], but with narrow reads, for rules that resolve few
/// hosts.
pub fn find(cx: &Reads<'_>, scope: &Arc<Scope>, host: &Hostname) -> Option<VisibleService> {
    if !is_open(cx, scope) {
        return cx.get::<ScopeServicesByHost>(&(scope.visibility(), host.clone())).as_deref().cloned();
    }
    let candidates = cx.get::<registry::ServicesByHost>(host)?;
    let key = visible::preferred(cx, &scope.namespace, visible::visible_of(cx, &scope.namespace, &candidates))?;
    Some(VisibleService { key, ports: Ports::All })
}

/// The service that clients of a scope may call by a hostname, if it has this port. Services that only VirtualServices
/// lead to are visible, but clients cannot call them.
pub fn served(cx: &Reads<'_>, scope: &Arc<Scope>, host: &Hostname, port: u16) -> Option<VisibleService> {
    let visible = find(cx, scope, host)?;
    if !is_open(cx, scope) && !self::visible(cx, scope)?.lets_call(host, port) {
        return None;
    }
    let has_port = |service: Option<&Arc<Service>>| {
        let port = service.and_then(|service| service.port(port));
        port.is_some_and(|port| port.protocol != Protocol::Udp)
    };
    cx.with::<Services, _>(&visible.key, has_port).then_some(visible)
}

/// The target of a host if it is a visible alias, else the host.
pub(crate) fn behind<'h>(
    aliases: &'h AliasTable,
    find: &dyn Fn(&Hostname) -> Option<ServiceKey>,
    host: &'h Hostname,
) -> &'h Hostname {
    match aliases.target(host) {
        Some(target) if find(host).is_some() => target,
        _ => host,
    }
}

/// The service that calls to a service reach: the target of an alias, if the scope sees it, else the service itself.
pub(crate) fn meant(cx: &Reads<'_>, scope: &Arc<Scope>, service: &ServiceKey) -> ServiceKey {
    let aliases = registry::aliases::aliases(cx);
    let target = aliases.target(&service.hostname).and_then(|host| find(cx, scope, host));
    target.map_or_else(|| service.clone(), |seen| seen.key)
}

fn find_in<'a>(services: &'a [VisibleService], host: &Hostname) -> Option<&'a VisibleService> {
    let at = services.binary_search_by(|s| s.key.hostname.cmp(host)).ok()?;
    Some(&services[at])
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<ServicesByPort>();
    b.index::<PublicServicesByPort>();
    b.index::<ServicesByNamespace>();
    b.view::<ScopeServices>();
    b.view::<ScopeServicesByHost>();
    particular::register(b);
}
