//! Listeners of the Gateway API: their servers, and the virtual hosts of their HTTPRoutes and GRPCRoutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::istio::{ServerTlsMode, ServerTlsSettings};
use flow::Reads;
use gateway_api::attach::{HostsOfListener, PARTS, PartsOfListener, part_of};
use gateway_api::backends::{Backend, RouteBackends, Target};
use gateway_api::certificates::ListenerCertificates;
use gateway_api::frontend;
use gateway_api::hostnames;
use gateway_api::matches::{HostMatches, MatchOf, TableHost};
use gateway_api::plan::{ListenerPlan, ListenerProtocol, Passthrough};
use model::audience::{DestinationRef, HostList, HostPart, HostRun, Scope, VirtualHostContent, VirtualHostSpec};
use model::kube::{HttpRouteKey, ListenerId, MatchRef, RouteId};
use model::service::ObjectId;
use names::{Hostname, Protocol};

use super::server::{Server, ServerHost, ServerTls};
use crate::policy::policy_for;
use crate::{routes, scope};

/// The server of a listener. None if it needs a certificate and has none, or if its protocol is not served.
pub(super) fn server(cx: &Reads<'_>, gateway: &ObjectId, id: &ListenerId, listener: &ListenerPlan) -> Option<Server> {
    let (protocol, tls) = match listener.protocol {
        ListenerProtocol::Http => (Protocol::Http, ServerTls::None),
        ListenerProtocol::Https => (Protocol::Https, ServerTls::Terminated(Arc::new(tls(cx, id, listener)?))),
        ListenerProtocol::Tls => {
            let tls = match listener.passthrough {
                Some(Passthrough::Routes) => ServerTls::Passthrough,
                Some(Passthrough::Clusters) => ServerTls::AutoPassthrough,
                None => ServerTls::Terminated(Arc::new(tls(cx, id, listener)?)),
            };
            (Protocol::Tls, tls)
        }
        ListenerProtocol::Tcp => (Protocol::Tcp, ServerTls::None),
        ListenerProtocol::Udp => (Protocol::Udp, ServerTls::None),
        ListenerProtocol::Unknown => return None,
    };
    Some(Server {
        gateway: id.server(),
        index: 0,
        port: listener.port,
        // As in the `Gateway` that istiod generates.
        port_name: "default".into(),
        name: Arc::default(),
        bind: None,
        protocol,
        hosts: vec![ServerHost { namespace: None, host: listener.hostname.clone() }],
        tls,
        listener: Some(id.clone()),
        parent: Some(gateway.clone()),
    })
}

fn tls(cx: &Reads<'_>, id: &ListenerId, listener: &ListenerPlan) -> Option<ServerTlsSettings> {
    let termination = listener.termination.as_ref()?;
    let credential_names = match termination.is_of_mesh() {
        true => Vec::new(),
        false => cx.get::<ListenerCertificates>(id)?.to_vec(),
    };
    let served = termination.is_of_mesh() || !credential_names.is_empty();
    let mut settings = ServerTlsSettings {
        mode: termination.mode,
        credential_names,
        cipher_suites: termination.cipher_suites.clone(),
        ..ServerTlsSettings::default()
    };
    if let Some(verification) = frontend::of_listener(cx, &id.owner, listener) {
        settings.mode = if verification.insecure { ServerTlsMode::OptionalMutual } else { ServerTlsMode::Mutual };
        settings.ca_cert_credential_name = verification.authorities.clone()?;
        settings.insecure_skip_verify = verification.insecure.then_some(true);
    }
    served.then_some(settings)
}

/// Decides the matches of a virtual host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct HostKey {
    /// The services that the gateway sees.
    scope: Arc<Scope>,
    host: TableHost,
    /// The port of the listeners.
    port: u16,
    /// The listeners terminate TLS.
    secure: bool,
}

/// The number of hosts from which on a table is derived in parts.
const MANY: usize = 512;

/// The listeners of a route table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Listening {
    /// The services that the gateway sees.
    scope: Arc<Scope>,
    listeners: Arc<[ListenerId]>,
    /// Their port.
    port: u16,
    /// They terminate TLS.
    secure: bool,
}

/// Decides a part of the virtual hosts of a route table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PartKey {
    listening: Arc<Listening>,
    table: Arc<str>,
    /// As in [`PartsOfListener`].
    part: u8,
}

flow::rule! {
    /// The matches of a virtual host. A relation of its own, so that a change of one host does not derive others.
    pub(super) KubeHosts: HostKey => Arc<[MatchRef]> = "hosts of http routes", derive_kube_hosts;
    /// The virtual host of a host that only listeners have. A relation of its own, so that a table lists those that did not change.
    KubeVirtualHosts: HostKey => Arc<VirtualHostSpec> = "virtual hosts of http routes", derive_kube_virtual_host;
    /// The parts of the virtual hosts of a table that has very many.
    KubeHostParts: PartKey => Arc<HostPart> = "parts of virtual hosts of http routes", derive_kube_host_part;
}

fn derive_kube_virtual_host(cx: &Reads<'_>, key: &HostKey) -> Option<Arc<VirtualHostSpec>> {
    let matches = cx.get::<KubeHosts>(key).map(|matches| (*matches).clone()).unwrap_or_default();
    Some(Arc::new(virtual_host(&key.host.host, key.port, matches)))
}

fn derive_kube_hosts(cx: &Reads<'_>, key: &HostKey) -> Option<Arc<[MatchRef]>> {
    let matches = cx.get::<HostMatches>(&key.host)?;
    let mut keys: BTreeMap<&RouteId, Arc<HttpRouteKey>> = BTreeMap::new();
    let mut found = Vec::new();
    for MatchOf { route, index } in matches.iter() {
        let key = keys.entry(route).or_insert_with(|| Arc::new(bind(cx, key, route)));
        found.push(MatchRef { key: key.clone(), index: *index });
    }
    Some(found.into())
}

/// The key of a route at a host. The host is no part of it, so that all hosts share the encoded routes.
fn bind(cx: &Reads<'_>, key: &HostKey, route: &RouteId) -> HttpRouteKey {
    let backends = cx.get::<RouteBackends>(route);
    HttpRouteKey {
        route: route.clone(),
        port: key.port,
        secure: key.secure,
        mesh: false,
        destinations: Arc::new(destinations(cx, &key.scope, backends.iter().flat_map(|all| all.iter()))),
        overrides: None,
    }
}

/// The service and policy of each backend's host, as the clients of a scope resolve them.
pub(crate) fn destinations<'a>(
    cx: &Reads<'_>,
    scope: &Arc<Scope>,
    backends: impl Iterator<Item = &'a Backend>,
) -> BTreeMap<Hostname, DestinationRef> {
    let targets = backends.filter_map(|backend| backend.target.as_ref().ok());
    let destination = |target: &Target| {
        let service = scope::meant(cx, scope, &target.service);
        let policy = policy_for(cx, scope, &service);
        (target.service.hostname.clone(), DestinationRef { service: Some(service), policy })
    };
    targets.map(destination).collect()
}

/// The hosts of the servers of a route table that are listeners, with their matches. A host without matches gets 404.
pub(super) fn hosts(cx: &Reads<'_>, scope: &Arc<Scope>, servers: &[Server]) -> BTreeMap<Hostname, Arc<[MatchRef]>> {
    let keys = Listening::of(scope, servers).map(|listening| listening.keys(cx, None)).unwrap_or_default().into_iter();
    let matches = |key: &HostKey| cx.get::<KubeHosts>(key).map(|matches| (*matches).clone()).unwrap_or_default();
    let mut found: BTreeMap<Hostname, _> = keys.map(|key| (key.host.host.clone(), matches(&key))).collect();
    for host in isolated(servers) {
        found.entry(host.clone()).or_default();
    }
    found
}

/// The virtual hosts of a route table whose servers are listeners.
pub(super) fn virtual_hosts(cx: &Reads<'_>, scope: &Arc<Scope>, table: &Arc<str>, servers: &[Server]) -> HostList {
    let Some(listening) = Listening::of(scope, servers) else { return HostList::default() };
    match listening.count(cx) > MANY {
        true => in_parts(cx, listening, table, servers),
        false => in_order(cx, &listening, servers),
    }
}

/// All virtual hosts, by name.
fn in_order(cx: &Reads<'_>, listening: &Listening, servers: &[Server]) -> HostList {
    let keys = listening.keys(cx, None);
    let rows = keys.iter().filter_map(|key| cx.get::<KubeVirtualHosts>(key));
    let mut found: Vec<Arc<VirtualHostSpec>> = rows.map(|row| (*row).clone()).collect();
    let known: BTreeSet<&Hostname> = keys.iter().map(|key| &key.host.host).collect();
    let without_routes: BTreeSet<&Hostname> = isolated(servers).filter(|host| !known.contains(host)).collect();
    found.extend(without_routes.into_iter().map(|host| listening.without_routes(host)));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.into_iter().collect()
}

/// The virtual hosts in parts, and behind them those without routes.
fn in_parts(cx: &Reads<'_>, listening: Listening, table: &Arc<str>, servers: &[Server]) -> HostList {
    let listening = Arc::new(listening);
    let key = |part| PartKey { listening: listening.clone(), table: table.clone(), part };
    let parts: Vec<Option<Arc<HostPart>>> =
        (0..PARTS).map(|part| cx.get::<KubeHostParts>(&key(part)).map(|row| (*row).clone())).collect();
    let name = |host: &Hostname| virtual_host_name(host, listening.port);
    let is_known =
        |host: &Hostname| parts[usize::from(part_of(host))].as_ref().is_some_and(|part| part.has(&name(host)));
    let others: BTreeSet<&Hostname> = isolated(servers).filter(|host| !is_known(host)).collect();
    let others = others.into_iter().map(|host| HostRun::Own(listening.without_routes(host)));
    parts.iter().flatten().cloned().map(HostRun::Part).chain(others).collect()
}

fn derive_kube_host_part(cx: &Reads<'_>, key: &PartKey) -> Option<Arc<HostPart>> {
    let keys = key.listening.keys(cx, Some(key.part));
    let rows = keys.iter().filter_map(|key| cx.get::<KubeVirtualHosts>(key));
    let mut hosts: Vec<Arc<VirtualHostSpec>> = rows.map(|row| (*row).clone()).collect();
    hosts.sort_by(|a, b| a.name.cmp(&b.name));
    let resource_names = hosts.iter().map(|host| routes::virtual_host_name(&key.table, &host.name)).collect();
    let serves_any = hosts.iter().any(|host| host.serves_any());
    (!hosts.is_empty()).then(|| Arc::new(HostPart { hosts, resource_names, serves_any }))
}

impl Listening {
    /// The listeners among the servers of a table; `None` without any.
    fn of(scope: &Arc<Scope>, servers: &[Server]) -> Option<Listening> {
        let first = servers.iter().find(|server| server.listener.is_some())?;
        let secure = matches!(first.tls, ServerTls::Terminated(_));
        let listeners = servers.iter().filter_map(|server| server.listener.clone()).collect();
        Some(Listening { scope: scope.clone(), listeners, port: first.port, secure })
    }

    /// The number of their hosts. A host counts for each listener that has it.
    fn count(&self, cx: &Reads<'_>) -> usize {
        self.listeners.iter().filter_map(|listener| cx.get::<HostsOfListener>(listener)).map(|hosts| hosts.len()).sum()
    }

    /// The hosts with routes, or a part of them, each once.
    fn keys(&self, cx: &Reads<'_>, part: Option<u8>) -> Vec<HostKey> {
        let key = |host: &Hostname, listeners: Arc<[ListenerId]>| {
            let host = TableHost { listeners, host: host.clone() };
            HostKey { scope: self.scope.clone(), host, port: self.port, secure: self.secure }
        };
        let hosts_of = |listener: &ListenerId| match part {
            None => cx.get::<HostsOfListener>(listener),
            Some(part) => cx.get::<PartsOfListener>(&(listener.clone(), part)),
        };
        let listeners = self.listeners.iter().filter_map(|listener| Some((listener, hosts_of(listener)?)));
        let listeners: Vec<_> = listeners.collect();
        if let [(listener, hosts)] = &listeners[..] {
            // There may be thousands of hosts.
            let shared: Arc<[ListenerId]> = [(*listener).clone()].into();
            return hosts.iter().map(|(_, host)| key(host, shared.clone())).collect();
        }
        let mut by_host: BTreeMap<&Hostname, Vec<ListenerId>> = BTreeMap::new();
        for (listener, hosts) in &listeners {
            hosts.iter().for_each(|(_, host)| by_host.entry(host).or_default().push((*listener).clone()));
        }
        // Only the listeners that have the host, so that those of other hosts do not matter.
        by_host.into_iter().map(|(host, listeners)| key(host, listeners.into())).collect()
    }

    fn without_routes(&self, host: &Hostname) -> Arc<VirtualHostSpec> {
        Arc::new(virtual_host(host, self.port, Arc::default()))
    }
}

fn virtual_host_name(host: &Hostname, port: u16) -> Arc<str> {
    format!("{host}:{port}").into()
}

fn virtual_host(host: &Hostname, port: u16, matches: Arc<[MatchRef]>) -> VirtualHostSpec {
    VirtualHostSpec {
        name: virtual_host_name(host, port),
        overrides: None,
        domains: vec![host.as_arc().clone()],
        content: if matches.is_empty() { VirtualHostContent::NotFound } else { VirtualHostContent::Matches(matches) },
        require_tls: false,
        session: None,
    }
}

/// The hostnames of listeners whose Gateway has a listener with a wildcard that covers them. Their requests must not be
/// served by the routes of that one, even if they have no routes.
pub(super) fn isolated(servers: &[Server]) -> impl Iterator<Item = &Hostname> {
    let listeners = || {
        servers.iter().filter_map(|server| {
            let gateway = server.parent.as_ref()?;
            server.hosts.first().map(|host| (gateway, &host.host))
        })
    };
    let all: BTreeSet<(&ObjectId, &Hostname)> = listeners().collect();
    let is_covered = move |gateway, host: &Hostname| {
        std::iter::successors(hostnames::wider(host), hostnames::wider).any(|wider| all.contains(&(gateway, &wider)))
    };
    listeners().filter(move |(gateway, host)| is_covered(*gateway, host)).map(|(_, host)| host)
}

/// Adds the rules of this module.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<KubeHosts>();
    b.view::<KubeVirtualHosts>();
    b.view::<KubeHostParts>();
}
