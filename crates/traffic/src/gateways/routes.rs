//! Route tables of gateways, from the VirtualServices that are bound to a port's servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use flow::Reads;
use gateway_api::hostnames;
use model::audience::{
    GatewaySet, HostList, RouteAudience, RouteTable, RoutesKey, VirtualHostContent, VirtualHostSpec,
};
use model::kube::MatchRef;
use names::Hostname;

use super::kube;
use super::merge::{MergedGateways, PortKind};
use super::misdirected::{self, Answer};
use super::server::{Server, ServerTls};
use crate::routes;
use crate::scope::{self, Visible};
use crate::virtual_service::{Summary, for_gateway};

/// The servers of a route table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableServers {
    servers: Vec<Server>,
    /// The hosts without routes that have a fixed answer.
    answers: BTreeMap<Hostname, Answer>,
    /// The ports of the servers that cannot be used for HTTP/3, because a listener needs them for UDP.
    udp: BTreeSet<u16>,
}

flow::rule! {
    /// The servers of each route table of a gateway. A relation of its own, so that changes of other servers, of which there may be
    /// thousands, stop here.
    pub ServersOfTable: (GatewaySet, Arc<str>) => Arc<TableServers> = "servers of route tables", derive_servers_of_table;
}

fn derive_servers_of_table(cx: &Reads<'_>, (set, name): &(GatewaySet, Arc<str>)) -> Option<Arc<TableServers>> {
    let merged = cx.get::<MergedGateways>(set)?;
    let (port, servers) = merged.table(name)?;
    let answers = match (port.kind, servers) {
        (PortKind::Tls, [own]) => misdirected::hosts(own, &port.servers),
        _ => BTreeMap::new(),
    };
    let udp = servers.iter().map(|server| server.port).filter(|port| merged.has_udp(*port)).collect();
    Some(Arc::new(TableServers { servers: servers.to_vec(), answers, udp }))
}

/// The route table of this name (`http.PORT`, `https.PORT.…`) of a gateway. Unknown names get an empty table: a
/// listener that is being removed may still request it.
pub fn gateway_table(cx: &Reads<'_>, audience: &Arc<RouteAudience>, name: &Arc<str>) -> Option<RouteTable> {
    let facts = audience.class.gateway()?;
    let found = cx.get::<ServersOfTable>(&(facts.set.clone(), name.clone()));
    let Some(found) = found else {
        return Some(RouteTable { virtual_hosts: HostList::default(), ignore_port: true, http3_port: None });
    };
    let http3 = |server: &&Server| server.speaks_http3(&facts.udp_ports) && !found.udp.contains(&server.port);
    let http3_port = found.servers.iter().find(http3).map(|server| server.port);
    let virtual_hosts = virtual_hosts(cx, audience, name, &found)?;
    Some(RouteTable { virtual_hosts, ignore_port: true, http3_port })
}

/// A virtual host under construction.
struct Host {
    /// The port of the first server with this host.
    port: u16,
    /// Routes of VirtualServices. They precede HTTPRoutes.
    routes: Vec<Arc<RoutesKey>>,
    /// The matches of HTTPRoutes, if a listener of the Gateway API has the host.
    matches: Option<Arc<[MatchRef]>>,
    require_tls: bool,
    /// The host is that of another HTTPS listener.
    misdirected: bool,
}

/// The virtual hosts of a table with these servers.
fn virtual_hosts(
    cx: &Reads<'_>,
    audience: &RouteAudience,
    table: &Arc<str>,
    TableServers { servers, answers, .. }: &TableServers,
) -> Option<HostList> {
    if servers.iter().all(|server| server.listener.is_some()) && answers.is_empty() {
        let hosts = kube::virtual_hosts(cx, &audience.scope, table, servers);
        return Some(if hosts.is_empty() { [black_hole(servers)].into_iter().collect() } else { hosts });
    }
    let visible = scope::visible(cx, &audience.scope)?;
    let mut hosts: BTreeMap<Hostname, Host> = BTreeMap::new();
    for server in servers.iter().filter(|server| server.listener.is_none()) {
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
    for (host, matches) in kube::hosts(cx, &audience.scope, servers) {
        let first = servers.iter().find(|server| server.listener.is_some()).or(servers.first())?;
        hosts.entry(host).or_insert_with(|| Host::new(first)).matches = Some(matches);
    }
    for (host, answer) in answers {
        let first = servers.first()?;
        hosts.entry(host.clone()).or_insert_with(|| {
            let misdirected = *answer == Answer::Misdirected;
            Host { misdirected, ..Host::new(first) }
        });
    }
    if hosts.is_empty() {
        return Some([black_hole(servers)].into_iter().collect());
    }
    Some(collapsed(hosts).into_iter().collect())
}

/// The only virtual host of a table without any.
fn black_hole(servers: &[Server]) -> Arc<VirtualHostSpec> {
    let number = servers.first().map_or(0, |server| server.port);
    Arc::new(VirtualHostSpec {
        name: format!("blackhole:{number}").into(),
        overrides: None,
        domains: vec!["*".into()],
        content: VirtualHostContent::NotFound,
        require_tls: false,
        session: None,
    })
}

impl Host {
    fn new(server: &Server) -> Host {
        Host { port: server.port, routes: Vec::new(), matches: None, require_tls: false, misdirected: false }
    }

    fn content(&self) -> VirtualHostContent {
        if self.misdirected {
            return VirtualHostContent::Misdirected;
        }
        match (&self.routes[..], &self.matches) {
            ([], Some(matches)) if !matches.is_empty() => VirtualHostContent::Matches(matches.clone()),
            ([], _) => VirtualHostContent::NotFound,
            (routes, Some(matches)) if !matches.is_empty() => {
                VirtualHostContent::Joined(routes.to_vec(), matches.clone())
            }
            (routes, _) => VirtualHostContent::Routes(routes.to_vec()),
        }
    }

    /// Whether the virtual host may have further hosts with the same content. Hosts of HTTPRoutes are not joined: another
    /// route may attach to one of them any time.
    fn is_shared(&self) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.is_empty() && !self.routes.is_empty())
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
        for host in hostnames::intersection(mine, &summary.hosts) {
            if !found.contains(&host) {
                found.push(host);
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
        let joined = entry.is_shared().then(|| (content.clone(), entry.require_tls));
        if let Some(at) = joined.as_ref().and_then(|joined| known.get(joined)) {
            specs[*at].domains.push(host.as_arc().clone());
            continue;
        }
        known.extend(joined.map(|joined| (joined, specs.len())));
        specs.push(VirtualHostSpec {
            name: format!("{host}:{}", entry.port).into(),
            overrides: None,
            domains: vec![host.as_arc().clone()],
            content,
            require_tls: entry.require_tls,
            // The routes of VirtualServices contain it.
            session: None,
        });
    }
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs.into_iter().map(Arc::new).collect()
}

/// Adds the rules of this module.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<ServersOfTable>();
}
