//! A connected proxy, as its node message described it: facts, parsed and bounded, nothing derived.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

/// What a proxy is, from the first part of its node id (`TYPE~IP~ID~DOMAIN`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ProxyKind {
    /// Beside an application (`sidecar`).
    Sidecar,
    /// A gateway (`router`).
    Router,
    /// No proxy: an application whose gRPC library asks by itself (`GENERATOR` is `grpc`).
    Grpc,
}

/// How traffic reaches the proxy (`INTERCEPTION_MODE` of the node metadata).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum InterceptionMode {
    /// iptables REDIRECT; the original destination is recovered from the socket.
    #[default]
    Redirect,
    /// iptables TPROXY; the source address is kept, too.
    Tproxy,
    /// Nothing is captured: listeners are bound to their ports and applications are told to use them.
    None,
}

/// Optional parts of a proxy build: what the stock build lacks is never sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Capabilities {
    /// The `istio.alpn` HTTP filter.
    pub istio_alpn: bool,
    /// The `istio.stats` filters.
    pub istio_stats: bool,
    /// The HTTP and TCP metadata exchange filters.
    pub metadata_exchange: bool,
    /// The provider `cryptomb` for private keys.
    pub cryptomb: bool,
    /// The provider `qat` for private keys.
    pub qat: bool,
}

impl Capabilities {
    /// The capabilities without providers for private keys, which only secrets depend on.
    pub fn without_key_providers(self) -> Capabilities {
        Capabilities {
            cryptomb: false,
            qat: false,
            ..self
        }
    }
}

/// Where a proxy or an endpoint is; empty strings where unknown.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Locality {
    /// The region, such as `eu-west-1`.
    pub region: Arc<str>,
    /// The zone within the region.
    pub zone: Arc<str>,
    /// The sub-zone within the zone.
    pub sub_zone: Arc<str>,
}

impl Locality {
    /// Parses `region/zone/subzone`; the last two may be absent.
    pub fn parse(text: &str) -> Locality {
        let mut parts = text.splitn(3, '/').map(Arc::from);
        let mut next = || parts.next().unwrap_or_else(|| Arc::from(""));
        Locality {
            region: next(),
            zone: next(),
            sub_zone: next(),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.sub_zone.is_empty()
    }
}

/// Labels of a workload, ordered.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Whether something with these labels has all that a selector asks for; an empty selector asks for nothing.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The ports that Envoy itself answers at in Istio's bootstrap, unless it was made with others: readiness and metrics.
pub const STATIC_PORTS: [u16; 2] = [15021, 15090];

/// The facts about one proxy that derivation may depend on. Two proxies with equal facts are the same to it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Proxy {
    /// Sidecar or gateway.
    pub kind: ProxyKind,
    /// The third part of the node id, `POD.NAMESPACE`; shown in `syncz` and by `istioctl`.
    pub id: Arc<str>,
    /// The namespace whose configuration it gets (`NAMESPACE` of the metadata, else the first label of the DNS domain).
    pub namespace: Arc<str>,
    /// The DNS domain of short names, `NAMESPACE.svc.cluster.local`.
    pub dns_domain: Arc<str>,
    /// Its addresses, the primary one first: the node id's IP and `INSTANCE_IPS`.
    pub addresses: Vec<IpAddr>,
    /// `LABELS` of the metadata.
    pub labels: Labels,
    /// `node.locality`.
    pub locality: Locality,
    /// `NETWORK`.
    pub network: Arc<str>,
    /// `REQUESTED_NETWORK_VIEW`: the only networks whose endpoints it wants, sorted; empty for all.
    pub network_view: Vec<Arc<str>>,
    /// `NODE_NAME`.
    pub node: Arc<str>,
    /// `CLUSTER_ID`.
    pub cluster_id: Arc<str>,
    /// `SERVICE_ACCOUNT`.
    pub service_account: Arc<str>,
    /// `INTERCEPTION_MODE`.
    pub interception: InterceptionMode,
    /// From the node's list of extensions.
    pub capabilities: Capabilities,
    /// `HTTP10` is "1".
    pub accepts_http10: bool,
    /// Ports that Envoy itself answers at, for readiness and metrics (`ENVOY_STATUS_PORT`, `ENVOY_PROMETHEUS_PORT`).
    pub static_ports: [u16; 2],
    /// `UNPRIVILEGED_POD` is "true": ports below 1024 cannot be bound.
    pub unprivileged: bool,
    /// Ports of the workload's containers by their names (`POD_PORTS`).
    pub ports: BTreeMap<Arc<str>, u16>,
    /// It takes virtual hosts singly (VHDS), and not with their route table.
    pub vhds: bool,
    /// It takes the endpoints of clusters that have so many, or more, singly (LEDS); none: always with the assignment.
    pub leds: Option<NonZeroU32>,
    /// It may have secrets: not what it says, but what is known of the connection that it came by.
    pub trusted: bool,
    /// The agent's DNS server, where it answers the workload (`DNS_CAPTURE`, `DNS_PROXY_ADDR`).
    pub resolver: Option<SocketAddr>,
    /// Name of its workload (`WORKLOAD_NAME`), if it wants to know the other instances of it (`ENABLE_SELF_DISCOVERY`).
    pub own_workload: Option<Arc<str>>,
    /// `PROXY_CONFIG`: those of its settings that shape what it is served, as JSON. None: it says nothing of them, and has
    /// those of the mesh.
    pub settings: Option<Arc<str>>,
    /// `ISTIO_VERSION`; empty where the metadata has none.
    pub version: Arc<str>,
    /// What it calls itself in traces.
    pub span_names: SpanNames,
    /// All entries of the metadata that are texts, for EnvoyFilters, which may ask for any of them.
    pub metadata: Arc<Metadata>,
}

/// What a proxy calls itself in traces.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SpanNames {
    /// `node.cluster`: what it was started with (`--service-cluster`); empty where it says nothing.
    pub cluster: Arc<str>,
    /// The annotation `resource.opentelemetry.io/service.name` of its pod (`ANNOTATIONS`); empty where there is none.
    pub annotated: Arc<str>,
}

impl Proxy {
    /// Whether an agent runs beside it, which has the workload's certificates (the static cluster `sds-grpc`): only
    /// agents tell a version.
    pub fn has_agent(&self) -> bool {
        !self.version.is_empty()
    }
}

/// Entries of a node's metadata that are texts.
pub type Metadata = BTreeMap<Arc<str>, Arc<str>>;
