//! Audiences and keys of clusters.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use config::mesh::ProxyConfigOverride;
use names::Hostname;

use super::{ClientLocation, ClientView, Filters, IpFamilies, ProxyClass, Scope};
use crate::listener::DnsCache;
use crate::service::{ObjectId, ServiceKey};
use crate::tls::ClientFacts;

/// Decides the clusters of an Envoy proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClusterAudience {
    /// Which services and rules the client sees ([`Scope::without_addresses`]).
    pub scope: Arc<Scope>,
    /// The class of the proxy, with the facts that matter to this class only.
    pub class: ProxyClass<SidecarClusterFacts, GatewayClusterFacts>,
    /// An agent provides the workload's certificates.
    pub agent: bool,
    /// Address families of the proxy.
    pub ip: IpFamilies,
    /// The client's location; empty while no service is resolved by DNS, because only such clusters contain endpoints.
    pub location: Arc<ClientLocation>,
    /// Patches of clusters, in the order in which they are applied.
    pub filters: Filters,
    /// Settings of the proxy that override the mesh's.
    pub overrides: Option<Arc<ProxyConfigOverride>>,
}

/// Facts that decide clusters of sidecars only.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SidecarClusterFacts {
    /// Ports of the workload that services (or its `Sidecar`) lead to, ascending: one inbound cluster each.
    pub inbound: Arc<[InboundPort]>,
    /// DNS resolver instead of the system's; only if the mesh resolves names of unknown destinations.
    pub resolver: Option<SocketAddr>,
}

/// Facts that decide clusters of gateways only.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GatewayClusterFacts {
    /// It connects networks: it also needs clusters for SNI passthrough.
    pub sni_passthrough: bool,
    /// The resource name of the certificate that its Gateways present to backends with a BackendTLSPolicy.
    pub client_certificate: Option<Arc<str>>,
}

impl ClusterAudience {
    /// The audience without patches.
    pub fn plain(self: &Arc<Self>) -> Arc<ClusterAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(ClusterAudience { filters: Filters::default(), ..(**self).clone() }),
        }
    }

    /// The audience of the clusters that do not depend on the ports of the workload
    /// ([`Section::Shared`](super::Section::Shared)), with these patches. `None` if there is none: only sidecars share
    /// clusters.
    pub fn shared(&self, filters: &Filters) -> Option<ClusterAudience> {
        let facts = self.class.sidecar()?;
        let class = ProxyClass::Sidecar(SidecarClusterFacts { inbound: Arc::default(), ..facts.clone() });
        Some(ClusterAudience { class, filters: filters.clone(), ..self.clone() })
    }

    /// The inbound ports of a sidecar; none for other classes.
    pub fn inbound(&self) -> &[InboundPort] {
        self.class.sidecar().map_or(&[], |facts| &facts.inbound)
    }
}

/// Instead of a bind address: all addresses of the workload, in each of its address families.
pub const ALL_ADDRESSES: &str = "*";

/// A port of a workload that accepts traffic.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InboundPort {
    /// The port of the workload, which the inbound listener's filter chain matches.
    pub port: u16,
    /// The protocol, from the service port that leads here.
    pub protocol: names::Protocol,
    /// Address of the application if not `port` of the pod's address (`Sidecar` ingress `defaultEndpoint`).
    pub endpoint: Option<DefaultEndpoint>,
    /// The service that leads here and its port, for metadata, limits and names in statistics. The first of several by
    /// precedence; none for ports that only a `Sidecar` declares.
    pub service: Option<(ServiceKey, u16)>,
    /// A `Sidecar` declares the port: its listener is named by the `Sidecar` and not by the service.
    pub by_sidecar: bool,
    /// Bind address of a `Sidecar` ingress listener, or [`ALL_ADDRESSES`]. Always set if the port is not captured.
    pub bind: Option<Arc<str>>,
    /// Connections arrive through the virtual inbound listener; else the port has a listener of its own.
    pub captured: bool,
    /// The `Sidecar` terminates TLS.
    pub tls: bool,
}

/// Address of an application (`Sidecar` ingress `defaultEndpoint`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DefaultEndpoint {
    /// A port of the loopback address.
    Loopback {
        /// The port.
        port: u16,
        /// In a dual-stack workload, `::1`.
        v6: bool,
    },
    /// A port of the address that the client connected to (`0.0.0.0:PORT`).
    Instance(u16),
    /// A Unix domain socket.
    Unix(Arc<str>),
}

/// Names a merged DestinationRule: all rules of one namespace for one host (pattern).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyKey {
    /// The namespace of the rules.
    pub namespace: Arc<str>,
    /// Their `host`, resolved; may be a wildcard.
    pub host: Hostname,
    /// The single rule whose `workloadSelector` selects the client, which replaces all rules without a selector.
    pub selected: Option<Arc<str>>,
}

impl fmt::Debug for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.host)?;
        match &self.selected {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

/// Decides one cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ClusterKey {
    /// `outbound|PORT|SUBSET|HOST`.
    Outbound(OutboundKey),
    /// `inbound|PORT||`.
    Inbound {
        /// The port of the workload.
        port: u16,
        /// The protocol of the application; auto-detected protocols follow the client.
        protocol: names::Protocol,
        /// Address of the application, if a `Sidecar` sets it.
        endpoint: Option<DefaultEndpoint>,
        /// Address families of the proxy.
        ip: IpFamilies,
        /// The `Sidecar` whose `inboundConnectionPool` or ingress `connectionPool` applies.
        sidecar: Option<ObjectId>,
        /// The service that leads here and its port; none for ports that only a `Sidecar` declares.
        service: Option<(ServiceKey, u16)>,
        /// The policy of the service and its port, if that limits connections: the workload must accept what its clients
        /// may open.
        policy: Option<(PolicyKey, u16)>,
    },
    /// `PassthroughCluster`: the original destination.
    Passthrough,
    /// `BlackHoleCluster`: no destination.
    BlackHole,
    /// `AllowAnyDynamicDNSCluster`: the destination that the request names.
    DynamicForwardProxy(DnsCache),
    /// `InboundPassthroughCluster`: the application, at the port that the client connected to.
    InboundPassthrough(IpFamilies),
    /// A cluster of a proxy with settings that override the mesh's.
    ProxyConfigOverride(Arc<OverriddenCluster>),
}

/// A cluster of a proxy with settings that override the mesh's.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OverriddenCluster {
    /// The cluster without the overrides.
    pub cluster: ClusterKey,
    /// The overrides.
    pub overrides: Arc<ProxyConfigOverride>,
}

impl ClusterKey {
    /// The cluster of proxies without overrides.
    pub fn without_override(&self) -> &ClusterKey {
        match self {
            ClusterKey::ProxyConfigOverride(overridden) => overridden.cluster.without_override(),
            key => key,
        }
    }
}

/// Decides an outbound cluster and its endpoints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OutboundKey {
    /// The service.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// Name of the subset; empty for the whole service.
    pub subset: Arc<str>,
    /// The traffic policy that applies.
    pub policy: Option<PolicyKey>,
    /// A passthrough service uses EDS, because gateways have no original destination.
    pub from_endpoints: bool,
    /// The client is a gateway. Set only if the port's protocol is not declared: the protocol of a gateway's clients does
    /// not tell the protocol of the service.
    pub from_gateway: bool,
    /// Address families of the client; only for services that the proxy resolves by DNS.
    pub lookup: Option<IpFamilies>,
    /// Client facts by which endpoints are prioritized; only if the cluster contains its endpoints and its policy
    /// prioritizes them.
    pub view: Option<Arc<ClientView>>,
    /// A cluster of a gateway between networks: named by the SNI of clients of other networks, with only those endpoints
    /// that accept the mesh's mutual TLS, which is not terminated.
    pub sni_passthrough: bool,
    /// Client facts that TLS depends on; default in keys of endpoints, which do not depend on them.
    pub client: ClientFacts,
    /// The resource name of the certificate of a Gateway for the endpoints; only if a BackendTLSPolicy decides their TLS.
    pub client_certificate: Option<Arc<str>>,
}

impl OutboundKey {
    /// The cluster's name, `outbound|PORT|SUBSET|HOST`, or with `_.` between its parts.
    pub fn cluster_name(&self) -> String {
        if self.sni_passthrough {
            return format!("outbound_.{}_.{}_.{}", self.port, self.subset, self.service.hostname);
        }
        format!("outbound|{}|{}|{}", self.port, self.subset, self.service.hostname)
    }
}
