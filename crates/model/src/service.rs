//! Services, endpoints and workloads.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use names::{Hostname, Protocol};

use crate::proxy::{Labels, Locality};

/// Namespace and name of an object whose kind the context determines.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The object's namespace.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object and the cluster that it was read from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SourceId {
    /// The cluster; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Namespace and name.
    pub id: ObjectId,
}

/// Identifies a service: the same hostname may be defined once per namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The hostname.
    pub hostname: Hostname,
    /// The namespace of its definition.
    pub namespace: Arc<str>,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.hostname)
    }
}

/// The source of a service. The order is that of precedence between definitions of one hostname.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Registry {
    /// An `InferencePool`, whose service istiod writes as a core `Service`. Such a Service yields to the pool.
    Pool,
    /// A core `Service`.
    Kubernetes,
    /// A `ServiceImport`: a multi-cluster Kubernetes service.
    Import,
    /// A `ServiceEntry`.
    ServiceEntry,
}

/// How clients discover the endpoints of a service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Resolution {
    /// By EDS.
    Endpoints,
    /// By DNS, with all addresses (STRICT_DNS).
    Dns,
    /// By DNS, one address at a time (LOGICAL_DNS).
    DnsRoundRobin,
    /// By DNS, the address that accepts a connection first (`RACE_FIRST_TCP_CONNECT`).
    DnsRace,
    /// By DNS on demand, for the requested name: wildcard hosts (DYNAMIC_DNS).
    DynamicDns,
    /// Not at all: original destination (ORIGINAL_DST). Headless services, resolution NONE.
    Passthrough,
    /// It is an alias ([`Service::alias_of`]).
    Alias,
}

/// The namespaces that see an object (`exportTo`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ExportTo {
    /// All namespaces (`*`).
    All,
    /// These namespaces; none if empty (`~`). `.` is resolved to the object's namespace.
    Namespaces(BTreeSet<Arc<str>>),
}

impl ExportTo {
    /// Whether a client in this namespace sees the object.
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            ExportTo::All => true,
            ExportTo::Namespaces(set) => set.contains(namespace),
        }
    }
}

/// The target port of a service port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TargetPort {
    /// A port number.
    Number(u16),
    /// The name of a container port.
    Name(Arc<str>),
}

/// One port of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServicePort {
    /// The port number.
    pub number: u16,
    /// Its name, which endpoints refer to; generated if not set.
    pub name: Arc<str>,
    /// The protocol, by appProtocol, name or number; [`Protocol`]'s auto-detected form if undeclared.
    pub protocol: Protocol,
    /// The target port at the workload; absent for the same number.
    pub target: Option<TargetPort>,
}

/// The default preference of endpoints (`trafficDistribution`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Distribution {
    /// None.
    #[default]
    Any,
    /// Same zone, then region, then network (`PreferClose`, `PreferSameZone`).
    SameZone,
    /// Same node, then sub-zone, and so on (`PreferSameNode`).
    SameNode,
}

/// A service: one hostname of one namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its hostname and namespace.
    pub key: ServiceKey,
    /// Its source.
    pub registry: Registry,
    /// The `Service` or `ServiceEntry` that defines it; of several the one with precedence.
    pub object: ObjectId,
    /// The cluster of that object; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Its ports, ascending by number.
    pub ports: Vec<ServicePort>,
    /// Virtual addresses: ClusterIPs or `addresses`. Empty for headless services and services without addresses.
    pub addresses: Vec<IpNet>,
    /// Automatically assigned addresses. Only clients whose agent resolves names (DNS capture) can use them.
    pub assigned: Vec<IpNet>,
    /// Virtual addresses by the id of the client's cluster, if several clusters define the service.
    pub cluster_addresses: Arc<BTreeMap<Arc<str>, Vec<IpNet>>>,
    /// How clients discover its endpoints.
    pub resolution: Resolution,
    /// The target of an alias (ExternalName).
    pub alias_of: Option<Hostname>,
    /// A Kubernetes service without a ClusterIP.
    pub headless: bool,
    /// Outside the mesh (`MESH_EXTERNAL`, ExternalName).
    pub external: bool,
    /// The namespaces that see it.
    pub export_to: ExportTo,
    /// Subject alternative names of its endpoints.
    pub subject_alt_names: Vec<Arc<str>>,
    /// Labels of the source object.
    pub labels: Labels,
    /// Creation of the source object, seconds since the Unix epoch; absent if unknown.
    pub created: Option<i64>,
    /// Clients use endpoints of their node only (`internalTrafficPolicy: Local`).
    pub node_local: bool,
    /// Endpoints are used even if not ready (`publishNotReadyAddresses`).
    pub publish_not_ready: bool,
    /// Clients use endpoints of their cluster only (`serviceSettings` of the mesh, and services of Kubernetes itself).
    pub cluster_local: bool,
    /// The preferred endpoints.
    pub distribution: Distribution,
}

impl Service {
    /// The port of this number.
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|p| p.number == number)
    }

    /// Precedence between definitions of one hostname: Kubernetes, then the configuration cluster, then the older (no
    /// time counts as oldest), then by name, then by cluster.
    pub fn precedence(&self, other: &Service) -> Ordering {
        let order = |s: &Service| (s.registry, !s.cluster.is_empty(), s.created);
        let names = |s: &Service| (s.object.clone(), s.cluster.clone());
        order(self).cmp(&order(other)).then_with(|| names(self).cmp(&names(other)))
    }

    /// The virtual addresses for clients of this cluster (by its id; may be empty). Automatically assigned ones only
    /// for clients that use them.
    pub fn addresses_in(&self, cluster: &str, assigned: bool) -> &[IpNet] {
        let own = self.cluster_addresses.get(cluster).filter(|own| !own.is_empty());
        match own {
            Some(own) => own,
            None if self.addresses.is_empty() && assigned => &self.assigned,
            None => &self.addresses,
        }
    }
}

/// The address of an endpoint.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EndpointAddress {
    /// An IP address, with the endpoint's port.
    Ip(IpAddr),
    /// A DNS name, for services that are resolved by DNS. Empty if the address is unknown: the endpoint can only be
    /// reached through a gateway of its network.
    Hostname(Arc<str>),
    /// The path of a Unix domain socket, without port.
    Unix(Arc<str>),
}

impl EndpointAddress {
    /// The IP address, if it is one.
    fn ip(&self) -> Option<IpAddr> {
        match self {
            EndpointAddress::Ip(ip) => Some(*ip),
            _ => None,
        }
    }

    /// Whether there is no address.
    pub fn is_unknown(&self) -> bool {
        matches!(self, EndpointAddress::Hostname(name) if name.is_empty())
    }
}

/// Health of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Health {
    /// It accepts requests.
    #[default]
    Healthy,
    /// It does not accept requests.
    Unhealthy,
    /// It finishes its requests and accepts no new ones.
    Draining,
}

/// One endpoint of one service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: EndpointAddress,
    /// Its address of the other family (dual stack).
    pub also: Option<IpAddr>,
    /// Port numbers by service port name; it is no endpoint of other ports.
    pub ports: Arc<BTreeMap<Arc<str>, u16>>,
    /// Id of its cluster.
    pub cluster: Arc<str>,
    /// The workload's labels, which subsets select by.
    pub labels: Arc<Labels>,
    /// Its locality.
    pub locality: Locality,
    /// Relative weight among endpoints of a locality; at least 1.
    pub weight: u32,
    /// Its network; empty for the default.
    pub network: Arc<str>,
    /// The workload's service account; empty if unknown.
    pub service_account: Arc<str>,
    /// Its health.
    pub health: Health,
    /// Its node; empty if unknown.
    pub node: Arc<str>,
    /// Namespace and name of the workload (pod or WorkloadEntry).
    pub workload: Option<ObjectId>,
    /// It supports the mesh's mutual TLS, by its sidecar or the label `security.istio.io/tlsMode`.
    pub mutual_tls: bool,
    /// Only clients of its own cluster use it.
    pub own_cluster: bool,
}

impl Endpoint {
    /// Its IP addresses.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.address.ip().into_iter().chain(self.also)
    }

    /// The value of a label. Known topology (region, zone, network, cluster, node) overrides the workload's labels.
    pub fn label(&self, key: &str) -> Option<&str> {
        let own = || self.labels.get(key).map(|value| &**value);
        let known = match key {
            "topology.kubernetes.io/region" => &self.locality.region,
            "topology.kubernetes.io/zone" => &self.locality.zone,
            "topology.istio.io/subzone" => &self.locality.sub_zone,
            "topology.istio.io/network" => &self.network,
            "topology.istio.io/cluster" => &self.cluster,
            "kubernetes.io/hostname" => &self.node,
            _ => return own(),
        };
        if known.is_empty() { own() } else { Some(known) }
    }
}

/// A pod or WorkloadEntry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Namespace and name.
    pub id: ObjectId,
    /// The cluster that it was read from; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// That cluster's id.
    pub cluster_id: Arc<str>,
    /// Its primary address.
    pub address: EndpointAddress,
    /// Its addresses of other families.
    pub also: Vec<IpAddr>,
    /// Labels.
    pub labels: Arc<Labels>,
    /// Port numbers by name (container ports, or `ports` of the WorkloadEntry).
    pub ports: Arc<BTreeMap<Arc<str>, u16>>,
    /// Its locality.
    pub locality: Locality,
    /// Relative weight; at least 1.
    pub weight: u32,
    /// Its network.
    pub network: Arc<str>,
    /// Service account; empty if unknown.
    pub service_account: Arc<str>,
    /// Its health.
    pub health: Health,
    /// Its node; empty if unknown.
    pub node: Arc<str>,
    /// Whether it is a pod (else a WorkloadEntry).
    pub pod: bool,
    /// It supports the mesh's mutual TLS.
    pub mutual_tls: bool,
}

impl Workload {
    /// All its IP addresses, the primary one first.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.address.ip().into_iter().chain(self.also.iter().copied())
    }
}
