//! A connected proxy as its node message describes it: parsed and bounded facts, nothing derived.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The kind of a proxy, from the first part of its node id (`TYPE~IP~ID~DOMAIN`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ProxyKind {
    /// Envoy beside a workload (`sidecar`).
    Sidecar,
    /// A gateway (`router`).
    Router,
    /// A gRPC library that is an xDS client itself (`GENERATOR` is `grpc`).
    Grpc,
}

/// How traffic is captured (`INTERCEPTION_MODE` of the node metadata).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum InterceptionMode {
    /// By iptables REDIRECT; the original destination is recovered from the socket.
    #[default]
    Redirect,
    /// By iptables TPROXY, which keeps the source address, too.
    Tproxy,
    /// Not at all: listeners bind their ports and applications are configured to use them.
    None,
}

/// Optional extensions of a proxy's build. Extensions that it lacks are never configured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Capabilities {
    /// The `istio.alpn` HTTP filter.
    pub istio_alpn: bool,
    /// The `istio.stats` filters.
    pub istio_stats: bool,
    /// The provider `cryptomb` for private keys.
    pub cryptomb: bool,
    /// The provider `qat` for private keys.
    pub qat: bool,
}

impl Capabilities {
    /// The capabilities without providers for private keys, which only secrets depend on.
    pub fn without_key_providers(self) -> Capabilities {
        Capabilities { cryptomb: false, qat: false, ..self }
    }
}

/// The location of a proxy or an endpoint; empty strings if unknown.
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
        Locality { region: next(), zone: next(), sub_zone: next() }
    }

    /// Whether all parts are unknown.
    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.sub_zone.is_empty()
    }
}

/// Labels of a workload, ordered.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Whether labels match a selector; an empty selector matches all.
pub fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
}

/// The default ports of Envoy's bootstrap in Istio: readiness and metrics.
pub const STATIC_PORTS: [u16; 2] = [15021, 15090];

/// The facts about a proxy that derivation may depend on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Proxy {
    /// Its kind.
    pub kind: ProxyKind,
    /// The third part of the node id, `POD.NAMESPACE`; shown by `syncz` and `istioctl`.
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
    /// `REQUESTED_NETWORK_VIEW`: the only networks whose endpoints it requests, sorted; empty for all.
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
    /// Ports of Envoy's bootstrap for readiness and metrics (`ENVOY_STATUS_PORT`, `ENVOY_PROMETHEUS_PORT`).
    pub static_ports: [u16; 2],
    /// `UNPRIVILEGED_POD` is "true": ports below 1024 cannot be bound.
    pub unprivileged: bool,
    /// Ports of the workload's containers by name (`POD_PORTS`).
    pub ports: BTreeMap<Arc<str>, u16>,
    /// It supports VHDS.
    pub vhds: bool,
    /// The secrets that it may receive. Decided by its connection, not by its metadata.
    pub secrets: SecretRight,
    /// The agent's DNS server, if it resolves names for the workload (`DNS_CAPTURE`, `DNS_PROXY_ADDR`).
    pub resolver: Option<SocketAddr>,
    /// Name of its workload (`WORKLOAD_NAME`), if it requests `local_cluster` (`ENABLE_SELF_DISCOVERY`).
    pub own_workload: Option<Arc<str>>,
    /// `PROXY_CONFIG`: those of its settings that decide served resources, as JSON. None if it reports none and has the
    /// mesh's.
    pub settings: Option<Arc<str>>,
    /// `ISTIO_VERSION`; empty without.
    pub version: Arc<str>,
    /// Names of it for traces.
    pub span_names: SpanNames,
    /// All string entries of the metadata, which EnvoyFilters can match.
    pub metadata: Arc<Metadata>,
}

/// The right of a proxy to receive secrets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum SecretRight {
    /// It receives none.
    #[default]
    None,
    /// It receives those of its namespace, which is proven.
    Namespace,
    /// Its service account is proven, and must be allowed to list Secrets in its namespace.
    Account,
}

/// Names of a proxy for traces.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SpanNames {
    /// `node.cluster` (`--service-cluster`); may be empty.
    pub cluster: Arc<str>,
    /// The annotation `resource.opentelemetry.io/service.name` of its pod (`ANNOTATIONS`); may be empty.
    pub annotated: Arc<str>,
}

impl Proxy {
    /// The largest program of a regular expression that it accepts. Others make it reject the resource. Agents raise
    /// Envoy's default; other proxies report the limit of their runtime in the metadata.
    pub fn regex_limit(&self) -> u32 {
        let reported = self.metadata.get(Proxy::REGEX_LIMIT).and_then(|limit| limit.parse().ok());
        let raised = self.has_agent() || self.kind == ProxyKind::Grpc;
        reported.unwrap_or(if raised { config::MAX_PROGRAM_SIZE } else { config::DEFAULT_PROGRAM_SIZE })
    }

    /// Key of the metadata that reports the value of `re2.max_program_size.error_level` in the proxy's runtime.
    pub const REGEX_LIMIT: &str = "RE2_MAX_PROGRAM_SIZE";

    /// Whether an agent provides the workload's certificates (the static cluster `sds-grpc`): only agents report a
    /// version.
    pub fn has_agent(&self) -> bool {
        !self.version.is_empty()
    }
}

/// String entries of a node's metadata.
pub type Metadata = BTreeMap<Arc<str>, Arc<str>>;
