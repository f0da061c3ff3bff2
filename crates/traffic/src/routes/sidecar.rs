//! Route tables of sidecars.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow::Reads;
use model::audience::{HostList, RouteAudience, RouteTable, Scope, VirtualHostSpec};
use model::service::ObjectId;
use names::{Hostname, Protocol};
use registry::Services;

use super::host::Client;
use super::served::is_served;
use super::table_name::TableName;
use super::unique::sorted;
use super::{catch_all, overlay};
use crate::scope::{self, EgressListener, VisibleService};
use crate::virtual_service::MeshLookup;

/// The route table of this name; empty for unknown names.
pub(super) fn table(cx: &Reads<'_>, audience: &Arc<RouteAudience>, name: &str) -> RouteTable {
    let empty = RouteTable { virtual_hosts: HostList::default(), ignore_port: true, http3_port: None };
    let Some(named) = TableName::parse(name) else {
        return empty;
    };
    if let TableName::Port(port) = named
        && scope::is_open(cx, &audience.scope)
    {
        let hosts = overlay::seen_by(cx, audience, port);
        return RouteTable { virtual_hosts: closed(cx, &audience.scope, hosts), ..empty };
    }
    let Some(visible) = scope::visible(cx, &audience.scope) else {
        return empty;
    };
    let Some(listener) = visible.listener(named.port(), name) else {
        return empty;
    };
    let proxy = listener.port.as_ref().is_some_and(|p| p.protocol == Protocol::HttpProxy);
    let all_ports = proxy || named == TableName::Any;
    let lookup = MeshLookup::new(cx, &audience.scope.namespace);
    let aliases = registry::aliases::aliases(cx);
    let find = |host: &Hostname| visible.find(host).map(|s| s.key.clone());
    let client = Client {
        cx,
        scope: &audience.scope,
        source: &audience.source,
        egress: &listener.hosts,
        find: &find,
        lookup: &lookup,
        aliases: &aliases,
        all_ports,
    };
    match named {
        TableName::Service(host, port) => {
            RouteTable { virtual_hosts: only(&client, listener, host, port).into_iter().collect(), ..empty }
        }
        TableName::Port(port) if !all_ports => {
            let hosts = of_port(&client, port, &imported_with(cx, listener, port));
            RouteTable { virtual_hosts: closed(cx, &audience.scope, sorted(hosts).into_iter().collect()), ..empty }
        }
        TableName::Port(_) | TableName::Any => {
            let hosts = of_all_ports(&client, listener);
            RouteTable {
                virtual_hosts: closed(cx, &audience.scope, sorted(hosts).into_iter().collect()),
                ignore_port: false,
                http3_port: None,
            }
        }
    }
}

/// Adds the catch-all, unless a host has the domain `*`.
fn closed(cx: &Reads<'_>, scope: &Arc<Scope>, mut hosts: HostList) -> HostList {
    if !hosts.serves_any() {
        hosts.push(catch_all::virtual_host(cx, scope));
    }
    hosts
}

/// The virtual host of one service, for any domain.
fn only(client: &Client<'_>, listener: &EgressListener, host: &str, port: u16) -> Option<Arc<VirtualHostSpec>> {
    let service = Hostname::parse(host).ok().and_then(|host| listener.find(&host));
    let host = service.filter(|s| s.ports.include(port)).and_then(|s| client.service(&s.key, port));
    let anything = |host: Arc<VirtualHostSpec>| VirtualHostSpec { domains: vec!["*".into()], ..(*host).clone() };
    host.map(|(spec, _)| Arc::new(anything(spec)))
}

/// The virtual hosts of all ports.
fn of_all_ports(client: &Client<'_>, listener: &EgressListener) -> Vec<Arc<VirtualHostSpec>> {
    let mut by_port: BTreeMap<u16, Vec<&VisibleService>> = BTreeMap::from([(80, Vec::new())]);
    for service in listener.services.iter() {
        let Some(row) = client.cx.get::<Services>(&service.key) else {
            continue;
        };
        for port in row.ports.iter().filter(|p| service.ports.include(p.number)) {
            by_port.entry(port.number).or_default().push(service);
        }
    }
    by_port.iter().flat_map(|(port, services)| of_port(client, *port, services)).collect()
}

/// The virtual hosts of one port: hosts that only VirtualServices define, then services.
fn of_port(client: &Client<'_>, port: u16, services: &[&VisibleService]) -> Vec<Arc<VirtualHostSpec>> {
    let mut of_services = Vec::with_capacity(services.len() + 1);
    let mut in_use: BTreeSet<&ObjectId> = BTreeSet::new();
    for service in services {
        if let Some((spec, routes)) = client.service(&service.key, port) {
            of_services.push(spec);
            in_use.extend(routes);
        }
    }
    let is_served = |host: &Hostname| is_served(services, |service| &service.key, host);
    let mut out = client.other_hosts(port, &in_use, &is_served);
    out.append(&mut of_services);
    out
}

/// A listener's services with this port, of any protocol, ascending. A `Sidecar` imports few: each is read separately,
/// so that other services do not affect its clients.
fn imported_with<'l>(cx: &Reads<'_>, listener: &'l EgressListener, port: u16) -> Vec<&'l VisibleService> {
    let has_port = |key| cx.with::<Services, _>(key, |s| s.is_some_and(|s| s.port(port).is_some()));
    listener.services.iter().filter(|s| s.ports.include(port) && has_port(&s.key)).collect()
}
