//! Listeners before they are encoded: complete plain values, so that equal listeners of different audiences are encoded
//! once.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use config::mesh::ProxyConfigOverride;
use ipnet::IpNet;

use crate::audience::{IpFamilies, Policies};
use crate::chains::Chains;
use crate::proxy::{Capabilities, STATIC_PORTS};
use crate::service::ObjectId;
use crate::tls::ServerContext;

/// Direction of traffic, seen from the workload.
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
    /// The address.
    pub bind: Bind,
    /// False for listeners that only get connections from `virtualOutbound`.
    pub bind_to_port: bool,
    /// Its transport.
    pub transport: Transport,
    /// Direction of traffic.
    pub direction: Direction,
    /// Connections are passed to the listener of their original destination (`virtualOutbound`).
    pub use_original_dst: bool,
    /// Accepts connections to addresses that are not local (TPROXY).
    pub transparent: bool,
    /// Recovers the original destination address (listener filter `original_dst`).
    pub original_dst_filter: bool,
    /// Inspects TLS (SNI, ALPN) before it selects a filter chain.
    pub tls_inspector: bool,
    /// Detects HTTP before it selects a filter chain, except on [`ListenerSpec::server_first_ports`].
    pub http_inspector: bool,
    /// Destination ports, ascending, without HTTP detection: those whose protocol is declared. With a server-first protocol
    /// the inspector would wait for bytes that never come.
    pub server_first_ports: Vec<u16>,
    /// How long inspectors wait for the first bytes before a filter chain is selected without them, in milliseconds; 0 for
    /// no limit. Absent (gateways) for Envoy's default of 15 s, after which the connection is closed.
    pub inspection_timeout_ms: Option<u64>,
    /// Filter chains; Envoy selects the most specific match.
    pub chains: Chains,
    /// The filter chain for connections that match no other.
    pub default_chain: Option<Box<ChainSpec>>,
    /// Idle timeout of connections in milliseconds, unless the chain sets one; absent for Envoy's default (1 h).
    pub idle_timeout_ms: Option<u64>,
    /// Connections are balanced exactly among worker threads.
    pub exact_balance: bool,
    /// No other process may have the port: the socket has no `SO_REUSEPORT`. Only for TCP.
    pub exclusive: bool,
    /// Security policies that its connections and requests are subject to; none for outbound listeners.
    pub policies: Policies,
    /// Addresses that are internal to the mesh: request headers from there are trusted.
    pub internal: Arc<[IpNet]>,
    /// Optional filters of the proxy.
    pub capabilities: Capabilities,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
    /// Identity of the proxy in traces.
    pub trace_identity: Arc<TraceIdentity>,
}

/// Identity of a proxy in traces, as far as the configuration of its tracer contains it; empty if it does not.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TraceIdentity {
    /// Tags of its spans, ascending by name.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
    /// The service name; empty if the tracer determines it.
    pub service: Arc<str>,
}

impl ListenerSpec {
    /// Whether it accepts HTTP/3 over QUIC.
    pub fn is_quic(&self) -> bool {
        self.transport == Transport::Quic
    }
}

/// The transport of a listener.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// HTTP/3 over QUIC.
    Quic,
    /// UDP. The listener has no filter chains.
    Udp(UdpProxy),
}

/// A UDP proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct UdpProxy {
    /// Prefix of its statistics.
    pub stat_prefix: Arc<str>,
    /// Weighted clusters, at least one. The weight of a single one is ignored.
    pub clusters: Vec<(Arc<str>, u32)>,
    /// The idle timeout of a session, in milliseconds; absent for Envoy's default (1 min).
    pub idle_timeout_ms: Option<u64>,
    /// Load balancing hashes the client's address.
    pub hash_source_ip: bool,
}

/// Options of a proxy's listeners, from its metadata.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerOptions {
    /// See [`ListenerSpec::idle_timeout_ms`] (`IDLE_TIMEOUT`).
    pub idle_timeout_ms: Option<u64>,
    /// See [`ListenerSpec::exact_balance`]; of outbound and gateway listeners (`OUTBOUND_LISTENER_EXACT_BALANCE`).
    pub exact_balance: bool,
    /// Ports of Envoy's bootstrap (`ENVOY_STATUS_PORT`, `ENVOY_PROMETHEUS_PORT`), which no listener may use.
    pub static_ports: [u16; 2],
    /// The addresses that listeners of gateways bind; empty for all (`BIND_ADDRESSES`).
    pub addresses: Vec<IpAddr>,
    /// See [`ListenerSpec::exclusive`]; of gateway listeners (`EXCLUSIVE_PORTS`).
    pub exclusive: bool,
}

impl Default for ListenerOptions {
    fn default() -> ListenerOptions {
        ListenerOptions {
            idle_timeout_ms: None,
            exact_balance: false,
            static_ports: STATIC_PORTS,
            addresses: Vec::new(),
            exclusive: false,
        }
    }
}

/// Address of a listener.
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
    /// Its name, for Envoy's and `istioctl`'s output; may be empty.
    pub name: Arc<str>,
    /// The connections that it accepts.
    pub matches: ChainMatch,
    /// TLS that it terminates; none if bytes are forwarded unchanged.
    pub tls: Option<Arc<ServerContext>>,
    /// Its network filter.
    pub kind: ChainKind,
}

/// Match conditions of a filter chain; empty fields match everything.
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
    /// ALPN, or the protocol that the HTTP inspector detected (`http/1.1`, `h2c`).
    pub application_protocols: &'static [&'static str],
}

/// The network filter of a filter chain.
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
    /// Prefix of its statistics, including the trailing `;`.
    pub stat_prefix: Arc<str>,
    /// Protocol of the port: gRPC-Web needs a filter, and inbound gRPC is never retried.
    pub protocol: names::Protocol,
    /// The source of its routes.
    pub routes: RouteSource,
    /// HTTP/1.0 is accepted.
    pub accepts_http10: bool,
    /// The client's address is that of the connection (gateways), not from a header.
    pub use_remote_address: bool,
    /// It contains the `istio.alpn` filter (outbound, if the proxy supports it).
    pub alpn_filter: bool,
    /// Routes may use session affinity.
    pub sessions: bool,
    /// Routes may ask external services whether requests are allowed.
    pub external_auth: bool,
    /// Routes may ask endpoint pickers of InferencePools.
    pub pickers: bool,
    /// Caches in which hostnames of requests are resolved, for dynamic forward proxy clusters.
    pub dns_caches: Vec<DnsCache>,
}

/// A DNS cache of the dynamic forward proxy. Envoy identifies a cache by its name, so all users must configure it equally.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DnsCache {
    /// The wildcard host of the ServiceEntry; none for unknown destinations (`ALLOW_ANY_DYNAMIC_DNS`).
    pub host: Option<Arc<str>>,
    /// Address families of the proxy.
    pub families: IpFamilies,
    /// The agent's resolver; none for the system's.
    pub resolver: Option<SocketAddr>,
}

impl DnsCache {
    /// Envoy's name of the cache.
    pub fn name(&self) -> String {
        match &self.host {
            Some(host) => format!("{host}_dfp_dns_cache"),
            None => "allow_any_dfp_dns_cache".to_owned(),
        }
    }
}

/// The source of an HTTP chain's routes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RouteSource {
    /// RDS: this route table.
    Discovered(Arc<str>),
    /// One route to this inbound cluster. The route table has the cluster's name, the virtual host the name
    /// `inbound|http|PORT`.
    Inbound {
        /// The cluster.
        cluster: Arc<str>,
        /// The service's port in the name of the virtual host; 0 for the passthrough chain.
        port: u16,
        /// The decorator's operation, `HOST:PORT/*`.
        operation: Arc<str>,
    },
    /// One route to the destination that the request names (`allow_any_dynamic_dns`).
    DynamicForwardProxy,
}

/// A TCP proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TcpChain {
    /// Prefix of its statistics.
    pub stat_prefix: Arc<str>,
    /// Weighted clusters, at least one. The weight of a single one is ignored.
    pub clusters: Vec<(Arc<str>, u32)>,
    /// Idle timeout in milliseconds; absent for Envoy's default (1 h).
    pub idle_timeout_ms: Option<u64>,
    /// Maximum connection duration in milliseconds; absent for no limit.
    pub max_connection_duration_ms: Option<u64>,
    /// Load balancing hashes the client's address.
    pub hash_source_ip: bool,
    /// The protocol is MongoDB, for which Envoy has statistics.
    pub mongo: bool,
    /// Connections are tunneled over HTTP.
    pub tunnel: Option<Tunnel>,
    /// The SNI is resolved in this cache, and connections go to this port.
    pub by_server_name: Option<Box<(DnsCache, u16)>>,
    /// A gateway passes connections from another network on without decrypting them (`AUTO_PASSTHROUGH`). It knows no client, so
    /// that policies are enforced by the server only.
    pub between_networks: bool,
    /// The VirtualService whose route it is, for the metadata of a sidecar's filter chain.
    pub origin: Option<ObjectId>,
}

impl TcpChain {
    /// The chain for a port with this protocol.
    pub fn speaking(self, protocol: names::Protocol) -> TcpChain {
        let mongo = protocol == names::Protocol::Mongo;
        TcpChain { mongo, ..self }
    }
}

/// TCP in an HTTP tunnel.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tunnel {
    /// Destination of the tunnel, `HOST:PORT`.
    pub target: Arc<str>,
    /// The method is POST instead of CONNECT.
    pub post: bool,
}
