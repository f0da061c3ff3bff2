//! Inbound listeners of a sidecar: the one that captured connections arrive at, with chains for each port of the workload,
//! and a listener for each port that a `Sidecar` has bound for real.
//!
//! Peers are not authenticated yet: all chains are those of plain text, but for those of a `Sidecar` with TLS of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::audience::{InboundPort, IpFamilies, ListenerAudience};
use model::listener::{
    Bind, ChainKind, ChainMatch, ChainSpec, Direction, HttpChain, ListenerSpec, RouteSource, TcpChain,
};
use model::proxy::InterceptionMode;
use model::tls::ServerContext;
use names::{ClusterName, Protocol};
use registry::inputs::{Mesh, Sidecars};
use resources::MeshConfig;

use super::chain::{BLACK_HOLE, INBOUND_PASSTHROUGH, RAW_BUFFER, all_to_cluster, plaintext_http, to_cluster};
use super::l4;
use crate::{stats, terminate};

/// Name of the listener of captured connections and of its chain for ports that nobody declared.
const VIRTUAL_INBOUND: &str = "virtualInbound";

/// The inbound listeners of sidecars.
pub struct InboundListeners;

impl Relation for InboundListeners {
    const NAME: &'static str = "inbound listeners";
    type Key = Arc<ListenerAudience>;
    type Row = Vec<Arc<ListenerSpec>>;
}

impl Rule for InboundListeners {
    fn derive(cx: &Reads<'_>, audience: &Arc<ListenerAudience>) -> Option<Vec<Arc<ListenerSpec>>> {
        let mesh = cx.get::<Mesh>(&())?;
        let inbound = Inbound {
            cx,
            audience,
            tls: terminated(cx, audience),
            detection_timeout_ms: l4::detection_timeout_ms(cx),
        };
        let bound = audience
            .inbound
            .iter()
            .filter(|p| !p.captured)
            .filter_map(|p| inbound.bound(p));
        Some(
            inbound
                .captured(&mesh.config)
                .into_iter()
                .chain(bound)
                .map(Arc::new)
                .collect(),
        )
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<InboundListeners>();
}

struct Inbound<'a> {
    cx: &'a Reads<'a>,
    audience: &'a ListenerAudience,
    /// The TLS of ports whose `Sidecar` has some; none where this proxy cannot have the certificate.
    tls: BTreeMap<u16, Option<Arc<ServerContext>>>,
    detection_timeout_ms: u64,
}

/// What the `Sidecar` says of TLS, by port.
fn terminated(cx: &Reads<'_>, audience: &ListenerAudience) -> BTreeMap<u16, Option<Arc<ServerContext>>> {
    let sidecar = match audience.inbound.iter().any(|port| port.tls) {
        true => audience.scope.sidecar.as_ref().and_then(|id| cx.get::<Sidecars>(id)),
        false => None,
    };
    let Some(sidecar) = sidecar else {
        return BTreeMap::new();
    };
    let settings = |port: u16| {
        let mut listeners = sidecar.spec.ingress.iter();
        let listener = listeners.find(|l| l.port.as_ref().is_some_and(|p| p.number == u32::from(port)));
        listener.and_then(|listener| listener.tls.as_ref())
    };
    let ports = audience.inbound.iter().filter(|port| port.tls);
    let context = |port: u16| Some(Arc::new(terminate::context(settings(port)?, audience.agent)?));
    ports.map(|port| (port.port, context(port.port))).collect()
}

/// What the chains of one port are made of.
struct Port<'a> {
    /// Names of the HTTP chain and of the TCP chain.
    names: [Arc<str>; 2],
    /// What connections are for; none for ports that nobody declared.
    destination: Option<u16>,
    protocol: Protocol,
    cluster: &'a str,
    stat_prefix: Arc<str>,
    /// The name of bytes that are not looked into in statistics; the cluster's where there is none.
    tcp_name: Option<Arc<str>>,
    /// TLS that is terminated.
    tls: Option<Arc<ServerContext>>,
    /// The service's port and host, for the names of its virtual host and of its traces.
    service_port: u16,
    host: Arc<str>,
}

impl Inbound<'_> {
    /// The listener that captured connections arrive at; none where nothing is captured.
    fn captured(&self, mesh: &MeshConfig) -> Option<ListenerSpec> {
        let interception = self.audience.interception;
        if interception == InterceptionMode::None {
            return None;
        }
        let port = u16::try_from(mesh.proxy_inbound_listen_port).ok().filter(|p| *p != 0)?;
        let ip = self.audience.ip;
        let additional = if ip == IpFamilies::Dual {
            vec![[0u16; 8].into()]
        } else {
            Vec::new()
        };
        let mut chains = vec![blackhole(port)];
        chains.extend(self.undeclared());
        chains.extend(
            self.audience
                .inbound
                .iter()
                .filter(|p| p.captured)
                .flat_map(|p| self.declared(p)),
        );
        let bind = Bind::Socket {
            address: ip.wildcard(),
            additional,
            port,
        };
        let spec = self.listener(VIRTUAL_INBOUND.into(), bind, chains);
        Some(ListenerSpec {
            original_dst_filter: true,
            transparent: interception == InterceptionMode::Tproxy,
            ..spec
        })
    }

    /// A listener for a port that is bound for real; none where it would take nothing, which Envoy refuses.
    fn bound(&self, port: &InboundPort) -> Option<ListenerSpec> {
        let address: IpAddr = port.bind.as_ref()?.parse().ok()?;
        let bind = Bind::Socket {
            address,
            additional: Vec::new(),
            port: port.port,
        };
        let chains = self.declared(port);
        (!chains.is_empty()).then(|| self.listener(self.name(port), bind, chains))
    }

    fn listener(&self, name: Arc<str>, bind: Bind, chains: Vec<ChainSpec>) -> ListenerSpec {
        let declared = declared_ports(&chains);
        ListenerSpec {
            name,
            bind,
            bind_to_port: true,
            quic: false,
            direction: Direction::Inbound,
            use_original_dst: false,
            transparent: false,
            original_dst_filter: false,
            tls_inspector: chains.iter().any(|chain| chain.tls.is_some()),
            http_inspector: declared.is_some(),
            server_first_ports: declared.unwrap_or_default(),
            inspection_timeout_ms: Some(self.detection_timeout_ms),
            chains,
            default_chain: None,
            idle_timeout_ms: self.audience.tuning.idle_timeout_ms,
            exact_balance: self.audience.tuning.exact_balance_in,
            internal: [].into(),
            capabilities: self.audience.capabilities,
            settings: Arc::default(),
        }
    }

    /// Chains for ports that no service and no `Sidecar` declares.
    fn undeclared(&self) -> Vec<ChainSpec> {
        self.chains(Port {
            names: ["virtualInbound-catchall-http".into(), VIRTUAL_INBOUND.into()],
            destination: None,
            protocol: Protocol::Unsupported,
            cluster: INBOUND_PASSTHROUGH,
            tls: None,
            stat_prefix: format!("{INBOUND_PASSTHROUGH};").into(),
            tcp_name: None,
            service_port: 0,
            host: "".into(),
        })
    }

    fn declared(&self, port: &InboundPort) -> Vec<ChainSpec> {
        let name = self.name(port);
        let tls = match self.tls.get(&port.port) {
            // Plain text would be taken where the Sidecar wants TLS.
            Some(None) => return Vec::new(),
            Some(Some(context)) => Some(context.clone()),
            None => None,
        };
        let (host, service_port) = match &port.service {
            Some((service, number)) => (service.hostname.as_arc().clone(), *number),
            // There is no service; something has to stand in traces all the same.
            None => (self.sidecar_host(), port.port),
        };
        self.chains(Port {
            names: [name.clone(), name.clone()],
            destination: Some(port.port),
            protocol: port.protocol,
            cluster: &ClusterName::inbound(port.port).to_string(),
            tls,
            stat_prefix: format!("inbound_{name};").into(),
            tcp_name: port
                .service
                .as_ref()
                .and_then(|(key, number)| stats::inbound(self.cx, key, *number, port.port)),
            service_port,
            host,
        })
    }

    /// The chains of a port: one for what is declared, or one for detected HTTP and one for the rest.
    fn chains(&self, port: Port<'_>) -> Vec<ChainSpec> {
        let detected = port.protocol.is_unsupported();
        let mut chains = Vec::new();
        if detected || port.protocol.is_http() {
            let kind = ChainKind::Http(HttpChain {
                stat_prefix: port.stat_prefix.clone(),
                protocol: port.protocol,
                routes: RouteSource::Inbound {
                    cluster: port.cluster.into(),
                    port: port.service_port,
                    operation: format!("{}:{}/*", port.host, port.service_port).into(),
                },
                accepts_http10: self.audience.accepts_http10,
                use_remote_address: false,
                alpn_filter: false,
                sessions: false,
                dns_caches: Vec::new(),
            });
            let application_protocols = match (detected, &port.tls) {
                (false, _) => Vec::new(),
                (true, None) => plaintext_http(self.audience.accepts_http10),
                (true, Some(context)) => context.alpn.to_vec(),
            };
            let matches = ChainMatch {
                application_protocols,
                ..port.matches()
            };
            chains.push(ChainSpec {
                name: port.names[0].clone(),
                matches,
                tls: port.tls.clone(),
                kind,
            });
        }
        if detected || !port.protocol.is_http() {
            let matches = port.matches();
            let all = all_to_cluster(port.cluster).speaking(port.protocol);
            let tcp = TcpChain {
                stat_prefix: port.tcp_name.clone().unwrap_or(all.stat_prefix),
                ..all
            };
            chains.push(ChainSpec {
                name: port.names[1].clone(),
                matches,
                tls: port.tls.clone(),
                kind: ChainKind::Tcp(tcp),
            });
        }
        chains
    }

    fn name(&self, port: &InboundPort) -> Arc<str> {
        match &port.bind {
            Some(bind) => format!("{bind}_{}", port.port).into(),
            None => format!("{}_{}", self.audience.ip.wildcard(), port.port).into(),
        }
    }

    fn sidecar_host(&self) -> Arc<str> {
        let scope = &self.audience.scope;
        // A Sidecar of the root namespace takes effect in the workload's own.
        scope
            .sidecar
            .as_ref()
            .map_or_else(|| "".into(), |s| format!("{}.{}", s.name, scope.namespace).into())
    }
}

impl Port<'_> {
    /// Connections to the port, in plain text or in TLS.
    fn matches(&self) -> ChainMatch {
        let protocol = if self.tls.is_some() { "tls" } else { RAW_BUFFER };
        ChainMatch {
            destination_port: self.destination,
            transport_protocol: Some(protocol),
            ..ChainMatch::default()
        }
    }
}

/// Connections to the listener's own port were not captured; passed on they would come here again.
fn blackhole(port: u16) -> ChainSpec {
    ChainSpec {
        name: format!("{VIRTUAL_INBOUND}-blackhole").into(),
        matches: ChainMatch {
            destination_port: Some(port),
            ..ChainMatch::default()
        },
        tls: None,
        kind: to_cluster(BLACK_HOLE),
    }
}

/// The ports at which nothing has to be detected, or none if that is so at all of them.
fn declared_ports(chains: &[ChainSpec]) -> Option<Vec<u16>> {
    let mut detected: BTreeMap<Option<u16>, bool> = BTreeMap::new();
    for chain in chains {
        *detected.entry(chain.matches.destination_port).or_default() |=
            chain.tls.is_none() && !chain.matches.application_protocols.is_empty();
    }
    let declared = detected
        .iter()
        .filter(|(_, detected)| !**detected)
        .filter_map(|(port, _)| *port)
        .collect();
    detected.values().any(|detected| *detected).then_some(declared)
}
