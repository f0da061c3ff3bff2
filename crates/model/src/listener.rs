//! What a listener is to be, before it is encoded: plain values, complete, so that equal listeners of different
//! audiences are encoded once.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::audience::IpFamilies;
use crate::proxy::{Capabilities, STATIC_PORTS};
use crate::tls::ServerContext;

/// Which way traffic goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// From the application.
    Outbound,
    /// To the application.
    Inbound,
    /// Through a gateway.
    Gateway,
}

/// A listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerSpec {
    /// The resource name: `BIND_PORT`, `virtualOutbound`, `virtualInbound`.
    pub name: Arc<str>,
    /// Where it listens.
    pub bind: Bind,
    /// False for listeners that `virtualOutbound` hands connections to.
    pub bind_to_port: bool,
    /// It takes QUIC over UDP, in which HTTP/3 is spoken, and not TCP.
    pub quic: bool,
    /// Which way traffic goes.
    pub direction: Direction,
    /// Connections are handed to the listener of their original destination (`virtualOutbound`).
    pub use_original_dst: bool,
    /// Accepts connections to addresses that are not local (TPROXY).
    pub transparent: bool,
    /// Recovers the original destination address (listener filter `original_dst`).
    pub original_dst_filter: bool,
    /// Looks at TLS (SNI, ALPN) before it chooses a chain.
    pub tls_inspector: bool,
    /// Looks for HTTP before it chooses a chain, but not on [`ListenerSpec::server_first_ports`].
    pub http_inspector: bool,
    /// Destination ports, ascending, at which nobody may look for HTTP: those whose protocol is declared. At some of
    /// them the server speaks first, and the inspector would wait for ever.
    pub server_first_ports: Vec<u16>,
    /// How long inspectors wait for the first bytes before a chain is chosen without them, in milliseconds; 0 for
    /// ever. Absent for Envoy's own limit (15 s), after which the connection is closed: gateways.
    pub inspection_timeout_ms: Option<u64>,
    /// Filter chains; Envoy picks the most specific match.
    pub chains: Vec<ChainSpec>,
    /// The chain for what no other matches.
    pub default_chain: Option<ChainSpec>,
    /// How long a connection may be idle, in milliseconds, where nothing else is said; absent for Envoy's default (1 h).
    pub idle_timeout_ms: Option<u64>,
    /// Each worker gets as many connections as the others.
    pub exact_balance: bool,
    /// Addresses that count as the mesh's own: requests from there keep what they say of themselves. Empty for none.
    pub internal: Arc<[IpNet]>,
    /// Optional filters of the proxy.
    pub capabilities: Capabilities,
    /// The proxy's own settings that shape it, as in its audience.
    pub settings: Arc<str>,
    /// What traces say of the proxy, as in its audience.
    pub traced: Arc<Traced>,
}

/// What traces say of a proxy, as far as the configuration of its tracer tells them; nothing where it does not.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Traced {
    /// Tags of its spans, ascending by name.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
    /// The name of its service; empty where the tracer knows it by itself.
    pub service: Arc<str>,
}

/// What a proxy's metadata asks for in its listeners.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tuning {
    /// See [`ListenerSpec::idle_timeout_ms`] (`IDLE_TIMEOUT`).
    pub idle_timeout_ms: Option<u64>,
    /// See [`ListenerSpec::exact_balance`], on the way in (`INBOUND_LISTENER_EXACT_BALANCE`).
    pub exact_balance_in: bool,
    /// The same on the way out, and at gateways (`OUTBOUND_LISTENER_EXACT_BALANCE`).
    pub exact_balance_out: bool,
    /// The port of the HTTP proxy in the place of the mesh's (`HTTP_PROXY_PORT`); 0 for none.
    pub http_proxy_port: Option<u16>,
    /// Ports that Envoy itself answers at (`ENVOY_STATUS_PORT`, `ENVOY_PROMETHEUS_PORT`): no listener takes them.
    pub static_ports: [u16; 2],
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            idle_timeout_ms: None,
            exact_balance_in: false,
            exact_balance_out: false,
            http_proxy_port: None,
            static_ports: STATIC_PORTS,
        }
    }
}

/// Where a listener is bound.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Bind {
    /// An address and port, and further addresses at the same port (dual stack).
    Socket {
        /// The address.
        address: IpAddr,
        /// Further addresses.
        additional: Vec<IpAddr>,
        /// The port.
        port: u16,
    },
    /// A Unix domain socket's path.
    Unix(Arc<str>),
}

/// One filter chain.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ChainSpec {
    /// Its name, which Envoy and `istioctl` show; may be empty.
    pub name: Arc<str>,
    /// What connections it takes.
    pub matches: ChainMatch,
    /// TLS that it terminates; none: it sees the bytes as they come.
    pub tls: Option<Arc<ServerContext>>,
    /// What it does.
    pub kind: ChainKind,
}

/// What connections a chain takes; empty fields ask nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ChainMatch {
    /// Original destination port.
    pub destination_port: Option<u16>,
    /// Original destination addresses.
    pub prefix_ranges: Vec<IpNet>,
    /// SNI.
    pub server_names: Vec<Arc<str>>,
    /// `raw_buffer` or `tls`.
    pub transport_protocol: Option<&'static str>,
    /// ALPN, or what the HTTP inspector found (`http/1.1`, `h2c`).
    pub application_protocols: Vec<&'static str>,
}

/// What a filter chain does.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ChainKind {
    /// HTTP connection manager.
    Http(HttpChain),
    /// TCP proxy.
    Tcp(TcpChain),
}

/// An HTTP connection manager.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HttpChain {
    /// Prefix of its statistics, complete (with its trailing `;`).
    pub stat_prefix: Arc<str>,
    /// What the port speaks: gRPC-Web needs a filter to be understood, and gRPC is never retried on the way in.
    pub protocol: names::Protocol,
    /// Where its routes come from.
    pub routes: RouteSource,
    /// HTTP/1.0 is accepted.
    pub accepts_http10: bool,
    /// The client's address is that of the connection (gateways), not of a header.
    pub use_remote_address: bool,
    /// The `istio.alpn` filter is wanted (outbound, where the proxy has it).
    pub alpn_filter: bool,
    /// Routes may keep clients with one endpoint.
    pub sessions: bool,
    /// Names of requests are looked up in these caches, for clusters that go by them.
    pub dns_caches: Vec<DnsCache>,
}

/// A cache of names that the proxy looks up while it serves requests. Envoy knows them by their names: all that use one
/// must describe it alike.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DnsCache {
    /// The wildcard host whose requests it is for; none: of the whole outside (`ALLOW_ANY_DYNAMIC_DNS`).
    pub host: Option<Arc<str>>,
    /// Address families of the proxy.
    pub families: IpFamilies,
    /// Who is asked, where that is not the system's resolver: the agent's own one.
    pub resolver: Option<SocketAddr>,
}

impl DnsCache {
    /// The name by which Envoy knows it.
    pub fn name(&self) -> String {
        match &self.host {
            Some(host) => format!("{host}_dfp_dns_cache"),
            None => "allow_any_dfp_dns_cache".to_owned(),
        }
    }
}

/// Where an HTTP chain's routes come from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RouteSource {
    /// Route discovery: this route table.
    Discovered(Arc<str>),
    /// One route: everything to this inbound cluster. The table is named as the cluster, the virtual host
    /// `inbound|http|PORT`.
    Inbound {
        /// The cluster.
        cluster: Arc<str>,
        /// The service's port, which the virtual host is named by; 0 for the pass-through chain.
        port: u16,
        /// The decorator's operation, `HOST:PORT/*`.
        operation: Arc<str>,
    },
    /// One route: everything to where its name leads (`allow_any_dynamic_dns`).
    DynamicForwardProxy,
}

/// A TCP proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TcpChain {
    /// Prefix of its statistics.
    pub stat_prefix: Arc<str>,
    /// Clusters with weights; one or more. A single one's weight has no meaning.
    pub clusters: Vec<(Arc<str>, u32)>,
    /// Idle time-out in milliseconds; absent for Envoy's default (1 h).
    pub idle_timeout_ms: Option<u64>,
    /// Longest life of a connection in milliseconds; absent for no limit.
    pub max_connection_duration_ms: Option<u64>,
    /// Connections are spread by the hash of the client's address.
    pub hash_source_ip: bool,
    /// The port speaks MongoDB's protocol, of which Envoy makes statistics.
    pub mongo: bool,
    /// Connections go through an HTTP tunnel that the cluster's endpoints open.
    pub tunnel: Option<Tunnel>,
    /// The server name of TLS is looked up in this cache, to connect to this port.
    pub by_server_name: Option<(DnsCache, u16)>,
}

impl TcpChain {
    /// The same for a port that speaks this protocol.
    pub fn speaking(self, protocol: names::Protocol) -> TcpChain {
        let mongo = protocol == names::Protocol::Mongo;
        TcpChain { mongo, ..self }
    }
}

/// TCP in an HTTP tunnel.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tunnel {
    /// Where the tunnel leads, `HOST:PORT`.
    pub target: Arc<str>,
    /// It is asked for by POST instead of CONNECT.
    pub post: bool,
}

impl IpFamilies {
    /// The address that means "all addresses of this proxy": `0.0.0.0`, or `::` where there is no IPv4.
    pub fn wildcard(self) -> IpAddr {
        match self {
            IpFamilies::V6 => IpAddr::from([0u16; 8]),
            IpFamilies::V4 | IpFamilies::Dual => IpAddr::from([0u8; 4]),
        }
    }

    /// The loopback address.
    pub fn loopback(self) -> IpAddr {
        match self {
            IpFamilies::V6 => IpAddr::from(std::net::Ipv6Addr::LOCALHOST.segments()),
            IpFamilies::V4 | IpFamilies::Dual => IpAddr::from([127, 0, 0, 1]),
        }
    }
}
