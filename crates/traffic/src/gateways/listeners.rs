//! Listeners of gateways: one for each address and port.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::mesh::NetworkMembers;
use flow::Reads;
use gateway_api::pools::PickingGateways;
use gateway_api::route_filters::{self, RouteFilter};
use ipnet::IpNet;
use model::audience::{GatewayFacts, IpFamilies, ListenerAudience};
use model::listener::{Bind, ChainKind, Direction, HttpChain, ListenerSpec, RouteSource, TcpChain, Transport};
use model::service::ObjectId;
use model::tls::ServerContext;
use registry::inputs::Networks;

use super::merge::{MergedGateway, MergedGateways, MergedPort, PortKind};
use super::server::{Server, ServerTls};
use super::{auto_passthrough, connections, kube};
use crate::listeners::chain::{Chain, Taken};
use crate::listeners::l4::{L4Match, L4Rules, Router, Rules};
use crate::virtual_service::{Guard, Summary, for_gateway};
use crate::{sessions, terminate};

/// ALPN over QUIC.
const HTTP3: &[&str] = &["h3"];

flow::rule! {
    /// The listeners of gateways.
    pub GatewayListeners: Arc<ListenerAudience> => Vec<Arc<ListenerSpec>> = "gateway listeners", derive_gateway_listeners;
}

fn derive_gateway_listeners(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Vec<Arc<ListenerSpec>>> {
    let facts = audience.class.gateway()?;
    let merged = cx.get::<MergedGateways>(&facts.set)?;
    let build = Build { cx, audience, facts, router: Router { cx, scope: &audience.scope } };
    let listeners = merged.ports.iter().flat_map(|port| match port.kind {
        PortKind::Udp => [build.datagrams(port), None],
        // The listener of TLS has its filter chain.
        PortKind::Http if port.beside.is_some() => [None, None],
        _ if merged.has_udp(port.servers.first().map_or(0, |server| server.port)) => {
            [build.listener(port, plain(&merged, port)), None]
        }
        _ => [build.listener(port, plain(&merged, port)), build.quic(port)],
    });
    Some(listeners.flatten().map(Arc::new).collect())
}

/// The plain-text HTTP beside the TLS servers of a port.
fn plain<'a>(merged: &'a MergedGateway, port: &MergedPort) -> Option<&'a MergedPort> {
    port.beside.map(|at| &merged.ports[at])
}

flow::rule! {
    /// The CIDR blocks of the mesh's networks (`fromCidr` of MeshNetworks), ascending; no row without any.
    pub OwnAddresses: () => Arc<[IpNet]> = "addresses of networks", derive_own_addresses;
}

fn derive_own_addresses(cx: &Reads<'_>, (): &()) -> Option<Arc<[IpNet]>> {
    let networks = cx.get::<Networks>(&())?;
    let endpoints = networks.spec.networks.values().flat_map(|network| &network.endpoints);
    let cidrs = endpoints.filter_map(|endpoint| match &endpoint.members {
        Some(NetworkMembers::FromCidr(cidr)) => {
            let address = || cidr.parse::<IpAddr>().ok().map(IpNet::from);
            cidr.parse::<IpNet>().ok().or_else(address)
        }
        _ => None,
    });
    let addresses: BTreeSet<IpNet> = cidrs.map(|cidr| cidr.trunc()).collect();
    (!addresses.is_empty()).then(|| addresses.into_iter().collect())
}

struct Build<'a> {
    cx: &'a Reads<'a>,
    audience: &'a ListenerAudience,
    facts: &'a GatewayFacts,
    router: Router<'a>,
}

impl Build<'_> {
    /// The listener of a port and of the plain-text HTTP beside it; none if the proxy cannot bind it or it has no filter chains.
    fn listener(&self, port: &MergedPort, plain: Option<&MergedPort>) -> Option<ListenerSpec> {
        let (address, additional) = self.place(port)?;
        let name: Arc<str> = format!("{address}_{}", port.number).into();
        let mut chains = match port.kind {
            PortKind::Http => vec![self.http(port, &name)?],
            PortKind::Udp => return None,
            PortKind::Opaque => {
                let proxies = port.servers.iter().flat_map(|server| self.proxies(server));
                proxies.map(|(_, tcp)| Chain::any(ChainKind::Tcp(tcp))).collect()
            }
            PortKind::Tls => {
                let mut chains: Vec<Chain> =
                    port.servers.iter().flat_map(|server| self.terminated(server, &name)).collect();
                chains.extend(self.sni_passthrough(&port.servers));
                chains.extend(kube::isolated(&port.servers).map(connections::refused));
                let mut chains = with_unique_names(chains);
                // Their server names and ALPN differ from those of all other chains.
                chains.extend(auto_passthrough::chains(self.cx, &self.audience.scope, &port.servers));
                chains
            }
        };
        let tls_inspector = plain.is_some() || chains.iter().any(|c: &Chain| !c.sni.is_empty() || c.tls.is_some());
        let plain = plain.and_then(|plain| self.http(plain, &name));
        chains.extend(plain.map(|chain| Chain { plain: true, ..chain }));
        let bind = Bind::Socket { address, additional, port: port.number };
        Some(ListenerSpec { tls_inspector, ..self.with_chains(name, bind, chains)? })
    }

    /// The listener of a UDP port; none without a route.
    fn datagrams(&self, port: &MergedPort) -> Option<ListenerSpec> {
        let listener = port.servers.iter().find_map(|server| server.listener.as_ref())?;
        let proxy = connections::udp(self.cx, &self.router, listener)?;
        let (address, additional) = self.place(port)?;
        let name = format!("udp_{address}_{}", port.number);
        let bind = Bind::Socket { address, additional, port: port.number };
        let transport = Transport::Udp(proxy);
        // The kernel distributes packets.
        Some(ListenerSpec { transport, exact_balance: false, exclusive: false, ..self.plain(name.into(), bind) })
    }

    /// The HTTP/3 listener of a port, with the servers that support it.
    fn quic(&self, port: &MergedPort) -> Option<ListenerSpec> {
        let served = port.servers.iter().filter(|s| s.speaks_http3(&self.facts.udp_ports));
        let (address, additional) = self.place(port)?;
        let name = format!("udp_{address}_{}", port.number);
        let chains = served.flat_map(|server| self.terminated(server, &name)).map(over_quic);
        let chains = with_unique_names(chains.collect());
        let bind = Bind::Socket { address, additional, port: port.number };
        Some(ListenerSpec {
            transport: Transport::Quic,
            // The kernel distributes packets.
            exact_balance: false,
            exclusive: false,
            ..self.with_chains(name.into(), bind, chains)?
        })
    }

    /// The addresses of a port; none if the proxy cannot bind it.
    fn place(&self, port: &MergedPort) -> Option<(IpAddr, Vec<IpAddr>)> {
        let ip = self.audience.ip;
        let privileged = self.audience.unprivileged && port.number < 1024;
        if privileged || port.bind.is_none() && self.audience.options.static_ports.contains(&port.number) {
            return None;
        }
        match (&port.bind, &self.audience.options.addresses[..]) {
            (Some(bind), _) => Some((bind.parse().ok()?, Vec::new())),
            (None, [first, others @ ..]) => Some((*first, others.to_vec())),
            (None, []) if ip == IpFamilies::Dual => Some((ip.wildcard(), vec![[0u16; 8].into()])),
            (None, []) => Some((ip.wildcard(), Vec::new())),
        }
    }

    /// A listener with these filter chains; none without any.
    fn with_chains(&self, name: Arc<str>, bind: Bind, chains: Vec<Chain>) -> Option<ListenerSpec> {
        let chains: Vec<_> = chains.into_iter().map(Chain::into_spec).collect();
        (!chains.is_empty()).then(|| ListenerSpec { chains: chains.into(), ..self.plain(name, bind) })
    }

    /// A listener without filter chains.
    fn plain(&self, name: Arc<str>, bind: Bind) -> ListenerSpec {
        ListenerSpec {
            name,
            bind,
            bind_to_port: true,
            transport: Transport::Tcp,
            direction: Direction::Gateway,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector: false,
            http_inspector: false,
            server_first_ports: Vec::new(),
            inspection_timeout_ms: None,
            chains: Vec::new().into(),
            default_chain: None,
            idle_timeout_ms: self.audience.options.idle_timeout_ms,
            exact_balance: self.audience.options.exact_balance,
            exclusive: self.audience.options.exclusive,
            policies: self.audience.policies.clone(),
            internal: own_addresses(self.cx),
            capabilities: self.audience.capabilities,
            overrides: None,
            trace_identity: Arc::default(),
        }
    }

    fn http(&self, port: &MergedPort, name: &str) -> Option<Chain> {
        let http = HttpChain {
            stat_prefix: format!("outbound_{name};").into(),
            protocol: port.servers.first()?.protocol,
            routes: RouteSource::Discovered(port.route_table().into()),
            accepts_http10: self.audience.accepts_http10,
            use_remote_address: true,
            sessions: sessions::any(self.cx) || self.needs(RouteFilter::Sessions, &port.servers),
            external_auth: self.needs(RouteFilter::ExternalAuth, &port.servers),
            pickers: self.asks_pickers(&port.servers),
            dns_caches: Vec::new(),
            alpn_filter: self.audience.capabilities.istio_alpn,
        };
        Some(Chain::any(ChainKind::Http(http)))
    }

    /// The filter chains of a server that terminates TLS: HTTP with its own route table, or its TCP proxies. None if the proxy
    /// cannot have the certificate, or if there is no route.
    fn terminated(&self, server: &Server, name: &str) -> Vec<Chain> {
        let ServerTls::Terminated(settings) = &server.tls else {
            return Vec::new();
        };
        let Some(context) = terminate::context(settings, self.audience.agent, &self.audience.own_files) else {
            return Vec::new();
        };
        let context = Arc::new(context);
        let chains = match server.route_table() {
            Some(table) => vec![(names_of(server), self.https(server, name, table))],
            None => self.proxies(server).into_iter().map(|(sni, tcp)| (sni, ChainKind::Tcp(tcp))).collect(),
        };
        chains.into_iter().map(|(sni, kind)| Chain { sni, tls: Some(context.clone()), ..Chain::any(kind) }).collect()
    }

    fn https(&self, server: &Server, name: &str, table: String) -> ChainKind {
        ChainKind::Http(HttpChain {
            stat_prefix: match &*server.name {
                "" => format!("outbound_{name};").into(),
                name => format!("{name};").into(),
            },
            protocol: server.protocol,
            routes: RouteSource::Discovered(table.into()),
            accepts_http10: self.audience.accepts_http10,
            use_remote_address: true,
            sessions: sessions::any(self.cx) || self.needs(RouteFilter::Sessions, std::slice::from_ref(server)),
            external_auth: self.needs(RouteFilter::ExternalAuth, std::slice::from_ref(server)),
            pickers: self.asks_pickers(std::slice::from_ref(server)),
            dns_caches: Vec::new(),
            alpn_filter: self.audience.capabilities.istio_alpn,
        })
    }

    /// Whether servers need a filter of routes.
    fn needs(&self, filter: RouteFilter, servers: &[Server]) -> bool {
        servers.iter().any(|server| server.listener.is_some()) && route_filters::in_use(self.cx, filter, false)
    }

    /// Whether a Gateway of these servers has routes to InferencePools.
    fn asks_pickers(&self, servers: &[Server]) -> bool {
        let mut gateways = servers.iter().filter_map(|server| server.parent.as_ref());
        gateways.any(|gateway| self.cx.contains::<PickingGateways>(gateway))
    }

    /// The TCP proxies of a server, each with the server names that it is for if the server is selected by SNI. For servers of
    /// Istio's API there is one: the first TCP route, from their VirtualServices in order of precedence.
    fn proxies(&self, server: &Server) -> Vec<(Vec<Arc<str>>, TcpChain)> {
        if let Some(listener) = &server.listener {
            let proxies = connections::tcp(self.cx, &self.router, listener);
            return proxies.into_iter().map(|(host, tcp)| (vec![host.as_arc().clone()], tcp)).collect();
        }
        let services = self.services(server);
        let first = services.iter().find_map(|(summary, rules)| {
            let holds = |m: &L4Match| admits(m, server);
            let rule = rules.tcp.iter().find(|r| r.matches.is_empty() || r.matches.iter().any(holds))?;
            Some((summary, rule))
        });
        let proxy = first.and_then(|(summary, rule)| self.router.to_targets(&summary.id, &rule.targets, server.port));
        proxy.map(|tcp| (names_of(server), tcp.speaking(server.protocol))).into_iter().collect()
    }

    /// Filter chains by SNI for servers that do not terminate TLS. The oldest route wins for each name.
    fn sni_passthrough(&self, servers: &[Server]) -> Vec<Chain> {
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut chains = Vec::new();
        for server in servers.iter().filter(|s| s.tls == ServerTls::Passthrough) {
            if server.listener.is_some() {
                let proxies = self.proxies(server).into_iter();
                chains.extend(proxies.map(|(sni, tcp)| Chain { sni, ..Chain::any(ChainKind::Tcp(tcp)) }));
            }
            for (summary, rules) in self.services(server) {
                for (condition, targets) in
                    rules.tls.iter().flat_map(|r| r.matches.iter().map(move |m| (m, &r.targets)))
                {
                    let taken = condition.sni.iter().any(|name| known.contains(name));
                    if taken || condition.sni.is_empty() || !admits(condition, server) {
                        continue;
                    }
                    let Some(tcp) = self.router.to_targets(&summary.id, targets, server.port) else {
                        continue;
                    };
                    known.extend(condition.sni.iter().cloned());
                    chains.push(Chain { sni: condition.sni.clone(), ..Chain::any(ChainKind::Tcp(tcp)) });
                }
            }
        }
        chains
    }

    /// VirtualServices with TCP or TLS routes that are bound to the server's gateway and overlap its hosts.
    fn services(&self, server: &Server) -> Vec<(Arc<Summary>, Arc<Rules>)> {
        if server.listener.is_some() {
            return Vec::new();
        }
        let gateway: &ObjectId = &server.gateway;
        let overlaps = |s: &Arc<Summary>| {
            server.hosts_for(&s.id.namespace).any(|mine| s.hosts.iter().any(|theirs| mine.matches(theirs)))
        };
        for_gateway(self.cx, gateway, &self.audience.scope.namespace)
            .into_iter()
            .filter(|s| (s.has_tcp || s.has_tls) && overlaps(s))
            .filter_map(|s| self.cx.get::<L4Rules>(&s.id).map(|rules| (s, (*rules).clone())))
            .collect()
    }
}

/// The hosts of a server as server names.
fn names_of(server: &Server) -> Vec<Arc<str>> {
    server.hosts.iter().map(|host| host.host.as_arc().clone()).collect()
}

/// The CIDR blocks of the mesh's networks.
fn own_addresses(cx: &Reads<'_>) -> Arc<[IpNet]> {
    cx.get::<OwnAddresses>(&()).map(|row| (*row).clone()).unwrap_or_default()
}

/// A filter chain that terminates TLS, over QUIC: only ALPN differs.
fn over_quic(chain: Chain) -> Chain {
    let tls = chain.tls.map(|context| Arc::new(ServerContext { alpn: HTTP3, ..(*context).clone() }));
    Chain { tls, ..chain }
}

/// Removes duplicate server names, which Envoy rejects; the earlier chain wins.
fn with_unique_names(chains: Vec<Chain>) -> Vec<Chain> {
    let (mut kept, mut taken) = (Vec::new(), Taken::default());
    for chain in chains {
        taken.add(&mut kept, chain);
    }
    kept
}

/// Whether a condition can match at a server. Label conditions never match at gateways, whose clients are outside the
/// mesh.
fn admits(condition: &L4Match, server: &Server) -> bool {
    let Guard { port, gateways, .. } = &condition.guard;
    port.is_none_or(|p| p == server.port)
        && (gateways.is_empty() || gateways.iter().any(|g| g.is(Some(&server.gateway))))
}
