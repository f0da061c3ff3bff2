//! Route tables of sidecars.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{
    PolicyKey, RouteAudience, RouteTable, RoutesKey, Scope, VirtualHostContent, VirtualHostSpec,
};
use model::service::{ObjectId, ServiceKey};
use names::{Hostname, Protocol};
use registry::Services;

use super::table_name::TableName;
use super::{ServiceHostKey, ServiceHosts, bind, catch_all, domains};
use crate::policy::policy_for;
use crate::scope::{EgressListener, ScopeServices, ServicesByPort, Visible, VisibleService};
use crate::virtual_service::{MeshEntry, MeshLookup, Summary, VirtualServiceSummaries};

/// The virtual host of a service whose routes are the default.
pub struct DefaultHosts;

impl Relation for DefaultHosts {
    const NAME: &'static str = "default hosts";
    type Key = DefaultHostKey;
    type Row = Arc<VirtualHostSpec>;
}

/// What decides the virtual host of a service whose routes are the default.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DefaultHostKey {
    /// The service and how it is called.
    pub host: ServiceHostKey,
    /// The traffic policy that applies to it.
    pub policy: Option<PolicyKey>,
}

impl Rule for DefaultHosts {
    fn derive(cx: &Reads<'_>, key: &DefaultHostKey) -> Option<Arc<VirtualHostSpec>> {
        let host = cx.get::<ServiceHosts>(&key.host)?;
        let routes = bind::default(&key.host.service, key.host.port, key.policy.clone());
        Some(Arc::new(VirtualHostSpec {
            name: host.name.clone(),
            domains: host.domains.clone(),
            content: VirtualHostContent::Routes(vec![routes]),
            require_tls: false,
        }))
    }
}

/// The route table of this name. A name that means nothing has an empty table.
pub(super) fn table(cx: &Reads<'_>, audience: &RouteAudience, name: &str) -> RouteTable {
    let empty = RouteTable { virtual_hosts: Vec::new(), ignore_port: true };
    let Some(named) = TableName::parse(name) else { return empty };
    let Some(visible) = cx.get::<ScopeServices>(&audience.scope) else { return empty };
    let Some(listener) = visible.listener(named.port(), name) else { return empty };
    let proxy = listener.port.as_ref().is_some_and(|p| p.protocol == Protocol::HttpProxy);
    let lookup = MeshLookup::new(cx, &audience.scope.namespace);
    let hosts = Hosts { cx, audience, visible: &visible, listener, lookup, all_ports: proxy || named == TableName::Any };
    match named {
        TableName::Service(host, port) => RouteTable { virtual_hosts: hosts.only(host, port), ..empty },
        TableName::Port(port) if !hosts.all_ports => {
            let all = hosts.of_port(port, &hosts.services_with(port));
            RouteTable { virtual_hosts: finished(cx, &audience.scope, &visible, all), ..empty }
        }
        TableName::Port(_) | TableName::Any => {
            let all = finished(cx, &audience.scope, &visible, hosts.of_all_ports());
            RouteTable { virtual_hosts: all, ignore_port: false }
        }
    }
}

/// The virtual hosts in their final form: no name and no domain twice, in order, the catch-all last.
fn finished(
    cx: &Reads<'_>,
    scope: &Scope,
    visible: &Visible,
    hosts: Vec<Arc<VirtualHostSpec>>,
) -> Vec<Arc<VirtualHostSpec>> {
    let mut out = super::unique(hosts);
    out.sort_by(|a, b| a.name.cmp(&b.name));
    if !out.iter().any(|host| host.domains.iter().any(|d| &**d == "*")) {
        out.push(catch_all::virtual_host(cx, scope, visible));
    }
    out
}

/// Makes the virtual hosts of one table.
struct Hosts<'a> {
    cx: &'a Reads<'a>,
    audience: &'a RouteAudience,
    visible: &'a Visible,
    listener: &'a EgressListener,
    lookup: MeshLookup,
    /// The table serves all ports.
    all_ports: bool,
}

impl Hosts<'_> {
    /// The virtual host of one service, whatever it is called.
    fn only(&self, host: &str, port: u16) -> Vec<Arc<VirtualHostSpec>> {
        let service = Hostname::parse(host).ok().and_then(|host| self.listener.find(&host));
        let Some(service) = service.filter(|s| s.ports.include(port)) else { return Vec::new() };
        let routes = self.virtual_services(&service.key.hostname, port);
        let host = self.of_service(&service.key, port, routes.first().map(|(_, summary)| summary));
        let anything = |host: Arc<VirtualHostSpec>| VirtualHostSpec { domains: vec!["*".into()], ..(*host).clone() };
        host.map(anything).map(Arc::new).into_iter().collect()
    }

    /// The virtual hosts of all ports.
    fn of_all_ports(&self) -> Vec<Arc<VirtualHostSpec>> {
        let mut by_port: BTreeMap<u16, Vec<&VisibleService>> = BTreeMap::from([(80, Vec::new())]);
        for service in self.listener.services.iter() {
            let Some(row) = self.cx.get::<Services>(&service.key) else { continue };
            for port in row.ports.iter().filter(|p| service.ports.include(p.number)) {
                by_port.entry(port.number).or_default().push(service);
            }
        }
        by_port.iter().flat_map(|(port, services)| self.of_port(*port, services)).collect()
    }

    /// The virtual hosts of one port: hosts that only VirtualServices know, then services.
    fn of_port(&self, port: u16, services: &[&VisibleService]) -> Vec<Arc<VirtualHostSpec>> {
        let mut out = Vec::with_capacity(services.len() + 1);
        let mut in_use: BTreeSet<&ObjectId> = BTreeSet::new();
        for service in services {
            let routes = self.virtual_services(&service.key.hostname, port);
            let Some(host) = self.of_service(&service.key, port, routes.first().map(|(_, summary)| summary)) else {
                continue;
            };
            out.push(host);
            in_use.extend(routes.iter().map(|(entry, _)| &entry.id));
        }
        let mut others = self.of_other_hosts(port, services, &in_use);
        others.append(&mut out);
        others
    }

    /// The VirtualServices for a host that have routes for this client and port, in order of precedence.
    fn virtual_services(&self, host: &Hostname, port: u16) -> Vec<(&MeshEntry, Arc<Summary>)> {
        let chosen = self.lookup.chosen(&self.listener.hosts, host);
        chosen.into_iter().filter_map(|entry| Some((entry, self.summary(entry, port)?))).collect()
    }

    fn summary(&self, entry: &MeshEntry, port: u16) -> Option<Arc<Summary>> {
        let summary = self.cx.get::<VirtualServiceSummaries>(&entry.id)?;
        summary.routes(port, None, &self.audience.source).then(|| (*summary).clone())
    }

    /// The virtual host of a service; `None` if the port does not speak HTTP.
    fn of_service(&self, key: &ServiceKey, port: u16, routes: Option<&Arc<Summary>>) -> Option<Arc<VirtualHostSpec>> {
        let host = ServiceHostKey {
            service: key.clone(),
            port,
            local: domains::is_local(key.hostname.as_str(), &self.audience.scope.namespace),
            with_port: self.all_ports,
        };
        let Some(summary) = routes else {
            let policy = policy_for(self.cx, &self.audience.scope, key);
            return self.cx.get::<DefaultHosts>(&DefaultHostKey { host, policy }).map(|spec| (*spec).clone());
        };
        let names = self.cx.get::<ServiceHosts>(&host)?;
        let routes = self.bound(summary, &key.hostname, port);
        Some(spec(names.name.clone(), names.domains.clone(), routes))
    }

    /// Virtual hosts of hosts that no service at this port has. At port 80 those of all VirtualServices are there; at
    /// others only those of VirtualServices that a service at the port uses.
    fn of_other_hosts(
        &self,
        port: u16,
        services: &[&VisibleService],
        in_use: &BTreeSet<&ObjectId>,
    ) -> Vec<Arc<VirtualHostSpec>> {
        if port != 80 && (in_use.is_empty() || self.all_ports) {
            return Vec::new();
        }
        let mut out: BTreeMap<&Hostname, Arc<VirtualHostSpec>> = BTreeMap::new();
        let entries = self.lookup.all(&self.listener.hosts).filter(|e| port == 80 || in_use.contains(&e.id));
        for entry in entries {
            let unknown: Vec<&Hostname> =
                entry.hosts.iter().filter(|h| !out.contains_key(h) && !is_served(services, h)).collect();
            if unknown.is_empty() {
                continue;
            }
            let Some(summary) = self.summary(entry, port) else { continue };
            for host in unknown {
                let names = vec![domains::bracketed(host.as_str())];
                let domains = domains::with_port(names, self.all_ports.then_some(port));
                let routes = self.bound(&summary, host, port);
                out.insert(host, spec(format!("{host}:{port}").into(), domains, routes));
            }
        }
        out.into_values().collect()
    }

    fn bound(&self, summary: &Summary, host: &Hostname, port: u16) -> Arc<RoutesKey> {
        let at = (host, port, None);
        bind(self.cx, &self.audience.scope, self.visible, summary, at, &self.audience.source)
    }

    /// The listener's services that have this port, whatever it speaks, by hostname.
    fn services_with(&self, port: u16) -> Vec<&VisibleService> {
        let Some(with_port) = self.cx.get::<ServicesByPort>(&port) else { return Vec::new() };
        let services = &self.listener.services;
        if with_port.len() * 8 < services.len() {
            let seen = with_port.iter().filter_map(|key| self.listener.find(&key.hostname).filter(|s| s.key == *key));
            return seen.filter(|s| s.ports.include(port)).collect();
        }
        // Both are in order of hostname and namespace.
        let mut rest = with_port.iter().peekable();
        let mut has_port = |s: &&VisibleService| {
            while rest.next_if(|key| **key < s.key).is_some() {}
            rest.peek().is_some_and(|key| **key == s.key)
        };
        services.iter().filter(|s| has_port(s) && s.ports.include(port)).collect()
    }
}

/// Whether a service has this host, or, for a wildcard, one that it overlaps.
fn is_served(services: &[&VisibleService], host: &Hostname) -> bool {
    if host.is_wildcard() {
        return services.iter().any(|s| s.key.hostname.matches(host));
    }
    services.binary_search_by(|s| s.key.hostname.cmp(host)).is_ok()
}

fn spec(name: Arc<str>, domains: Vec<Arc<str>>, routes: Arc<RoutesKey>) -> Arc<VirtualHostSpec> {
    let content = VirtualHostContent::Routes(vec![routes]);
    Arc::new(VirtualHostSpec { name, domains, content, require_tls: false })
}
