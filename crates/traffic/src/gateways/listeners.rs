//! Listeners of gateways: one for each address and port.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use config::mesh::NetworkMembers;
use flow::Reads;
use ipnet::IpNet;
use model::audience::{GatewayFacts, IpFamilies, ListenerAudience};
use model::listener::{Bind, ChainKind, Direction, HttpChain, ListenerSpec, RouteSource};
use model::service::ObjectId;
use model::tls::ServerContext;
use registry::inputs::Networks;

use super::auto_passthrough;
use super::merge::{MergedGateways, MergedPort, PortKind, Server, ServerTls};
use crate::listeners::chain::Chain;
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
    Some(
        merged.ports.iter().flat_map(|port| [build.listener(port), build.quic(port)]).flatten().map(Arc::new).collect(),
    )
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
    /// The listener of a port; none if the proxy cannot bind it or it has no filter chains.
    fn listener(&self, port: &MergedPort) -> Option<ListenerSpec> {
        let (address, additional) = self.place(port)?;
        let name: Arc<str> = format!("{address}_{}", port.number).into();
        let chains = match port.kind {
            PortKind::Http => vec![self.http(port, &name)?],
            PortKind::Opaque => port.servers.iter().filter_map(|s| self.opaque(s)).collect(),
            PortKind::Tls => {
                let mut chains: Vec<Chain> =
                    (port.servers.iter()).filter_map(|server| self.terminated(server, &name)).collect();
                chains.extend(self.sni_passthrough(&port.servers));
                let mut chains = with_unique_names(chains);
                // Their server names and ALPN differ from those of all other chains.
                chains.extend(auto_passthrough::chains(self.cx, &self.audience.scope, &port.servers));
                chains
            }
        };
        let tls_inspector = chains.iter().any(|c: &Chain| !c.sni.is_empty() || c.tls.is_some());
        let bind = Bind::Socket { address, additional, port: port.number };
        Some(ListenerSpec { tls_inspector, ..self.with_chains(name, bind, chains)? })
    }

    /// The HTTP/3 listener of a port, with the servers that support it.
    fn quic(&self, port: &MergedPort) -> Option<ListenerSpec> {
        let served = port.servers.iter().filter(|s| s.speaks_http3(&self.facts.udp_ports));
        let (address, additional) = self.place(port)?;
        let name = format!("udp_{address}_{}", port.number);
        let chains = served.filter_map(|server| self.terminated(server, &name)).map(over_quic);
        let chains = with_unique_names(chains.collect());
        let bind = Bind::Socket { address, additional, port: port.number };
        Some(ListenerSpec {
            quic: true,
            // The kernel distributes packets.
            exact_balance: false,
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
        match &port.bind {
            Some(bind) => Some((bind.parse().ok()?, Vec::new())),
            None if ip == IpFamilies::Dual => Some((ip.wildcard(), vec![[0u16; 8].into()])),
            None => Some((ip.wildcard(), Vec::new())),
        }
    }

    /// A listener with these filter chains; none without any.
    fn with_chains(&self, name: Arc<str>, bind: Bind, chains: Vec<Chain>) -> Option<ListenerSpec> {
        if chains.is_empty() {
            return None;
        }
        Some(ListenerSpec {
            name,
            bind,
            bind_to_port: true,
            quic: false,
            direction: Direction::Gateway,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector: false,
            http_inspector: false,
            server_first_ports: Vec::new(),
            inspection_timeout_ms: None,
            chains: chains.into_iter().map(Chain::into_spec).collect(),
            default_chain: None,
            idle_timeout_ms: self.audience.options.idle_timeout_ms,
            exact_balance: self.audience.options.exact_balance,
            policies: self.audience.policies.clone(),
            internal: own_addresses(self.cx),
            capabilities: self.audience.capabilities,
            overrides: None,
            trace_identity: Arc::default(),
        })
    }

    fn http(&self, port: &MergedPort, name: &str) -> Option<Chain> {
        let http = HttpChain {
            stat_prefix: format!("outbound_{name};").into(),
            protocol: port.servers.first()?.protocol,
            routes: RouteSource::Discovered(port.route_table().into()),
            accepts_http10: self.audience.accepts_http10,
            use_remote_address: true,
            sessions: sessions::any(self.cx),
            dns_caches: Vec::new(),
            alpn_filter: self.audience.capabilities.istio_alpn,
        };
        Some(Chain::any(ChainKind::Http(http)))
    }

    /// The filter chain of a server that terminates TLS: HTTP with its own route table, or the first TCP route. None if
    /// the proxy cannot have the certificate, or if there is no route.
    fn terminated(&self, server: &Server, name: &str) -> Option<Chain> {
        let ServerTls::Terminated(settings) = &server.tls else {
            return None;
        };
        let context = terminate::context(settings, self.audience.agent, &self.audience.own_files)?;
        let chain = match server.route_table() {
            Some(table) => Chain::any(ChainKind::Http(HttpChain {
                stat_prefix: match &*server.name {
                    "" => format!("outbound_{name};").into(),
                    name => format!("{name};").into(),
                },
                protocol: server.protocol,
                routes: RouteSource::Discovered(table.into()),
                accepts_http10: self.audience.accepts_http10,
                use_remote_address: true,
                sessions: sessions::any(self.cx),
                dns_caches: Vec::new(),
                alpn_filter: self.audience.capabilities.istio_alpn,
            })),
            None => self.opaque(server)?,
        };
        Some(Chain {
            sni: server.hosts.iter().map(|host| host.host.as_arc().clone()).collect(),
            tls: Some(Arc::new(context)),
            ..chain
        })
    }

    /// The first TCP route of a server, from its VirtualServices in order of precedence.
    fn opaque(&self, server: &Server) -> Option<Chain> {
        let services = self.services(server);
        let (summary, rule) = services.iter().find_map(|(summary, rules)| {
            let holds = |m: &L4Match| admits(m, server);
            let rule = rules.tcp.iter().find(|r| r.matches.is_empty() || r.matches.iter().any(holds))?;
            Some((summary, rule))
        })?;
        self.router
            .to_targets(&summary.id, &rule.targets, server.port)
            .map(|tcp| Chain::any(ChainKind::Tcp(tcp.speaking(server.protocol))))
    }

    /// Filter chains by SNI for servers that do not terminate TLS. The oldest route wins for each name.
    fn sni_passthrough(&self, servers: &[Server]) -> Vec<Chain> {
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut chains = Vec::new();
        for server in servers.iter().filter(|s| s.tls == ServerTls::Passthrough) {
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
    let mut kept: Vec<Chain> = Vec::new();
    for chain in chains {
        let left = kept.iter().try_fold(chain, Chain::beside);
        kept.extend(left);
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
