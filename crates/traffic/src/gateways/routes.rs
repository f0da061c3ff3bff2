//! Route tables of gateways, from the VirtualServices that are bound to a port's servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flow::Reads;
use model::audience::{RouteAudience, RouteTable, RoutesKey, VirtualHostContent, VirtualHostSpec};
use names::Hostname;

use super::merge::{MergedGateways, PortKind, Server, ServerTls};
use crate::routes;
use crate::scope::{self, Visible};
use crate::virtual_service::{Summary, for_gateway};

/// The route table of this name (`http.PORT`, `https.PORT.…`) of a gateway. Unknown names get an empty table: a
/// listener that is being removed may still request it.
pub fn gateway_table(cx: &Reads<'_>, audience: &Arc<RouteAudience>, name: &str) -> Option<RouteTable> {
    let facts = audience.class.gateway()?;
    let merged = cx.get::<MergedGateways>(&facts.set)?;
    let servers = merged.ports.iter().find_map(|port| match port.kind {
        PortKind::Http => (port.route_table() == name).then_some(&port.servers[..]),
        PortKind::Tls => {
            let own = port.servers.iter().find(|s| s.route_table().is_some_and(|own| own == name));
            own.map(std::slice::from_ref)
        }
        PortKind::Opaque => None,
    });
    let http3 = servers.and_then(|servers| servers.iter().find(|server| server.speaks_http3(&facts.udp_ports)));
    let virtual_hosts = match servers {
        Some(servers) => virtual_hosts(cx, audience, servers)?,
        None => Vec::new(),
    };
    let virtual_hosts = virtual_hosts.into_iter().collect();
    Some(RouteTable { virtual_hosts, ignore_port: true, http3_port: http3.map(|server| server.port) })
}

/// A virtual host under construction.
struct Host {
    /// The port of the first server with this host.
    port: u16,
    routes: Vec<Arc<RoutesKey>>,
    require_tls: bool,
}

fn virtual_hosts(cx: &Reads<'_>, audience: &RouteAudience, servers: &[Server]) -> Option<Vec<Arc<VirtualHostSpec>>> {
    let visible = scope::visible(cx, &audience.scope)?;
    let mut hosts: BTreeMap<Hostname, Host> = BTreeMap::new();
    for server in servers {
        let redirect = server.tls == ServerTls::Redirect;
        for summary in for_gateway(cx, &server.gateway, &audience.scope.namespace) {
            let Some(routes) = bound(cx, audience, &visible, server, &summary) else {
                continue;
            };
            for host in intersection(server, &summary) {
                let entry = hosts.entry(host).or_insert_with(|| Host::new(server));
                entry.require_tls |= redirect;
                if !entry.routes.contains(&routes) {
                    entry.routes.push(routes.clone());
                }
            }
        }
        // Hosts without routes are redirected, too.
        for host in server.hosts.iter().filter(|_| redirect) {
            hosts.entry(host.host.clone()).or_insert_with(|| Host::new(server)).require_tls = true;
        }
    }
    if hosts.is_empty() {
        let number = servers.first().map_or(0, |s| s.port);
        return Some(vec![Arc::new(VirtualHostSpec {
            name: format!("blackhole:{number}").into(),
            overrides: None,
            domains: vec!["*".into()],
            content: VirtualHostContent::NotFound,
            require_tls: false,
            session: None,
        })]);
    }
    Some(collapsed(hosts))
}

impl Host {
    fn new(server: &Server) -> Host {
        Host { port: server.port, routes: Vec::new(), require_tls: false }
    }

    fn content(&self) -> VirtualHostContent {
        match &self.routes[..] {
            [] => VirtualHostContent::NotFound,
            routes => VirtualHostContent::Routes(routes.to_vec()),
        }
    }
}

/// The routes of a VirtualService for a server; none if they can never match there.
fn bound(
    cx: &Reads<'_>,
    audience: &RouteAudience,
    visible: &Visible,
    server: &Server,
    summary: &Summary,
) -> Option<Arc<RoutesKey>> {
    if !summary.routes(server.port, Some(&server.gateway), &audience.source) {
        return None;
    }
    // All hosts of the VirtualService have the same routes, so the first host is part of the key and they are encoded
    // once.
    let host = summary.hosts.iter().min()?;
    let at = (host, server.port, Some(&server.gateway));
    Some(routes::bind(cx, &audience.scope, visible, summary, at, &audience.source))
}

/// The hosts that a server and a VirtualService share; of a host and a wildcard that covers it, the host.
fn intersection(server: &Server, summary: &Summary) -> Vec<Hostname> {
    let mut found: Vec<Hostname> = Vec::new();
    for mine in server.hosts_for(&summary.id.namespace) {
        for theirs in &summary.hosts {
            let narrower = match (mine.subset_of(theirs), theirs.subset_of(mine)) {
                (true, _) => mine,
                (false, true) => theirs,
                (false, false) => continue,
            };
            if !found.contains(narrower) {
                found.push(narrower.clone());
            }
        }
    }
    found
}

/// Joins hosts with the same routes into one virtual host, named by the most specific host, so that a VirtualService
/// with a hundred hosts is sent once.
fn collapsed(hosts: BTreeMap<Hostname, Host>) -> Vec<Arc<VirtualHostSpec>> {
    let mut specs: Vec<VirtualHostSpec> = Vec::new();
    let mut known: HashMap<(VirtualHostContent, bool), usize> = HashMap::new();
    let mut hosts: Vec<(Hostname, Host)> = hosts.into_iter().collect();
    hosts.sort_by(|(a, _), (b, _)| a.by_specificity(b));
    for (host, entry) in hosts {
        let content = entry.content();
        let at = *known.entry((content.clone(), entry.require_tls)).or_insert_with(|| {
            specs.push(VirtualHostSpec {
                name: format!("{host}:{}", entry.port).into(),
                overrides: None,
                domains: Vec::new(),
                content,
                require_tls: entry.require_tls,
                // The routes of VirtualServices contain it.
                session: None,
            });
            specs.len() - 1
        });
        specs[at].domains.push(host.as_arc().clone());
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs.into_iter().map(Arc::new).collect()
}
