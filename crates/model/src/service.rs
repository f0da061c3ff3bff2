//! Services and their endpoints, as derived from what users and platforms said.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use names::{Hostname, Protocol};

use crate::proxy::{Labels, Locality};

/// Namespace and name of a configuration object whose kind the context fixes.
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

/// Names an object, and the cluster that it was read from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SourceId {
    /// The cluster; empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// Namespace and name.
    pub id: ObjectId,
}

/// Identifies a service: the same hostname may be defined once per namespace.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The name that clients call.
    pub hostname: Hostname,
    /// The namespace that defines it.
    pub namespace: Arc<str>,
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.hostname)
    }
}

/// Which registry a service comes from. The order is that of precedence: for one hostname Kubernetes wins. Imports are
/// Kubernetes services in all but what defines them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Registry {
    /// A core `Service`.
    Kubernetes,
    /// A `ServiceImport`: a Kubernetes service of the whole set of clusters.
    Import,
    /// A `ServiceEntry`.
    ServiceEntry,
}

/// How a client finds the endpoints of a service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Resolution {
    /// From the control plane (EDS).
    Endpoints,
    /// By DNS, all addresses used (STRICT_DNS).
    Dns,
    /// By DNS, one address at a time (LOGICAL_DNS).
    DnsRoundRobin,
    /// By DNS, whichever address of both families answers first (`RACE_FIRST_TCP_CONNECT`).
    DnsRace,
    /// The proxy asks DNS for whatever name a request is for: hosts with a wildcard (DYNAMIC_DNS).
    DynamicDns,
    /// Not at all: to the address that the application dialled (ORIGINAL_DST). Headless services, resolution NONE.
    Passthrough,
    /// It is another name of a service, which is called instead ([`Service::alias_of`]).
    Alias,
}

/// Which namespaces may see an object (`exportTo`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ExportTo {
    /// Every namespace (`*`).
    All,
    /// These namespaces only; none at all where empty (`~`). `.` is resolved to the object's own namespace.
    Namespaces(BTreeSet<Arc<str>>),
}

impl ExportTo {
    /// Whether a client in this namespace may see the object.
    pub fn includes(&self, namespace: &str) -> bool {
        match self {
            ExportTo::All => true,
            ExportTo::Namespaces(set) => set.contains(namespace),
        }
    }
}

/// The port of a workload that a service port leads to.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TargetPort {
    /// This number.
    Number(u16),
    /// The container port of this name.
    Name(Arc<str>),
}

/// One port of a service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServicePort {
    /// The number that clients call.
    pub number: u16,
    /// Its name; endpoints refer to it by this name. Generated where the source has none.
    pub name: Arc<str>,
    /// The protocol, by appProtocol, name or number; [`Protocol`]'s auto-detected form where none says.
    pub protocol: Protocol,
    /// Where it leads to on the workload; absent means the same number.
    pub target: Option<TargetPort>,
}

/// Which endpoints clients prefer where nothing else says (`trafficDistribution`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Distribution {
    /// Any.
    #[default]
    Any,
    /// Those of their zone, then of their region, then of their network (`PreferClose`, `PreferSameZone`).
    SameZone,
    /// Those of their node, then of their sub-zone, and so on (`PreferSameNode`).
    SameNode,
}

/// A service: one hostname, whatever defines it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its hostname and namespace.
    pub key: ServiceKey,
    /// Where it comes from.
    pub registry: Registry,
    /// The `Service` or `ServiceEntry` that defines it, the one that counts most of several.
    pub object: ObjectId,
    /// The cluster of that object; empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// Its ports, ascending by number.
    pub ports: Vec<ServicePort>,
    /// Virtual addresses: ClusterIPs or `addresses`. Empty for headless services and services without addresses.
    pub addresses: Vec<IpNet>,
    /// Addresses that a controller gave it because it has none: only clients whose names are resolved by their agent (DNS
    /// capture) ever learn of them.
    pub assigned: Vec<IpNet>,
    /// Virtual addresses by the id of the client's cluster, where several clusters define the service.
    pub cluster_addresses: Arc<BTreeMap<Arc<str>, Vec<IpNet>>>,
    /// How clients find endpoints.
    pub resolution: Resolution,
    /// The hostname that it is another name of (ExternalName).
    pub alias_of: Option<Hostname>,
    /// A Kubernetes service without a ClusterIP.
    pub headless: bool,
    /// Outside the mesh (`MESH_EXTERNAL`, ExternalName).
    pub external: bool,
    /// Who may see it.
    pub export_to: ExportTo,
    /// Names that endpoints may have in their certificates.
    pub subject_alt_names: Vec<Arc<str>>,
    /// Labels of the source object.
    pub labels: Labels,
    /// Creation of the source object, seconds since the Unix epoch; absent for files that do not say.
    pub created: Option<i64>,
    /// Traffic stays on the client's node (`internalTrafficPolicy: Local`).
    pub node_local: bool,
    /// Endpoints that are not ready are used, too (`publishNotReadyAddresses`).
    pub publish_not_ready: bool,
    /// Clients use endpoints of their own cluster only (`serviceSettings` of the mesh, and Kubernetes' own services).
    pub cluster_local: bool,
    /// Which endpoints clients prefer.
    pub distribution: Distribution,
}

impl Service {
    /// The port of this number.
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.ports.iter().find(|p| p.number == number)
    }

    /// Which of two definitions of the same hostname wins: Kubernetes first, then that of the home cluster, then the
    /// older (no time counts as oldest), then by name, then by cluster.
    pub fn precedence(&self, other: &Service) -> Ordering {
        let order = |s: &Service| (s.registry, !s.cluster.is_empty(), s.created);
        let names = |s: &Service| (s.object.clone(), s.cluster.clone());
        order(self)
            .cmp(&order(other))
            .then_with(|| names(self).cmp(&names(other)))
    }

    /// The virtual addresses that a client of this cluster (by its id; empty where it does not matter) has for it; those
    /// that it was assigned only for clients who dial them.
    pub fn addresses_in(&self, cluster: &str, assigned: bool) -> &[IpNet] {
        let own = self.cluster_addresses.get(cluster).filter(|own| !own.is_empty());
        match own {
            Some(own) => own,
            None if self.addresses.is_empty() && assigned => &self.assigned,
            None => &self.addresses,
        }
    }
}

/// Where an endpoint listens.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EndpointAddress {
    /// An IP address, with the endpoint's port.
    Ip(IpAddr),
    /// A DNS name, for services that are resolved by DNS.
    Hostname(Arc<str>),
    /// The path of a Unix domain socket; the port has no meaning.
    Unix(Arc<str>),
}

/// Whether an endpoint takes traffic.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Health {
    /// Yes.
    #[default]
    Healthy,
    /// No.
    Unhealthy,
    /// Finishing what it has; nothing new.
    Draining,
}

/// One endpoint of one service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// Where it listens.
    pub address: EndpointAddress,
    /// Where it listens, too, in the other address family.
    pub also: Option<IpAddr>,
    /// Port number per service port name; a service port that is absent here has no such endpoint.
    pub ports: Arc<BTreeMap<Arc<str>, u16>>,
    /// Id of the cluster that it is in.
    pub cluster: Arc<str>,
    /// The workload's labels, which subsets select by.
    pub labels: Arc<Labels>,
    /// Where the workload runs.
    pub locality: Locality,
    /// Relative weight among endpoints of a locality; at least 1.
    pub weight: u32,
    /// The network it is reachable in; empty for the default one.
    pub network: Arc<str>,
    /// The workload's service account; empty where unknown.
    pub service_account: Arc<str>,
    /// Whether it takes traffic.
    pub health: Health,
    /// The node it runs on; empty where unknown.
    pub node: Arc<str>,
    /// Namespace and name of the workload (pod or WorkloadEntry).
    pub workload: Option<ObjectId>,
    /// It takes the mesh's mutual TLS: a sidecar is there, or is said to be (label `security.istio.io/tlsMode`).
    pub mutual_tls: bool,
    /// Only clients of its own cluster get it.
    pub own_cluster: bool,
}

impl Endpoint {
    /// Its IP addresses.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let primary = match self.address {
            EndpointAddress::Ip(ip) => Some(ip),
            _ => None,
        };
        primary.into_iter().chain(self.also)
    }

    /// The value of a label: what it is known to be in (region, zone, network, cluster, node) goes before what its
    /// workload says.
    pub fn label(&self, key: &str) -> Option<&str> {
        let known = match key {
            "topology.kubernetes.io/region" => &self.locality.region,
            "topology.kubernetes.io/zone" => &self.locality.zone,
            "topology.istio.io/subzone" => &self.locality.sub_zone,
            "topology.istio.io/network" => &self.network,
            "topology.istio.io/cluster" => &self.cluster,
            "kubernetes.io/hostname" => &self.node,
            _ => return self.labels.get(key).map(|value| &**value),
        };
        match known.is_empty() {
            true => self.labels.get(key).map(|value| &**value),
            false => Some(known),
        }
    }
}

/// A pod or WorkloadEntry: something that runs and can be selected by labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Namespace and name.
    pub id: ObjectId,
    /// The cluster that it was read from; empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// That cluster's id.
    pub cluster_id: Arc<str>,
    /// Its address (pods: the primary one).
    pub address: EndpointAddress,
    /// Its addresses in other families.
    pub also: Vec<IpAddr>,
    /// Labels.
    pub labels: Arc<Labels>,
    /// Port number per port name (container ports, or `ports` of the WorkloadEntry).
    pub ports: Arc<BTreeMap<Arc<str>, u16>>,
    /// Where it runs.
    pub locality: Locality,
    /// Relative weight; at least 1.
    pub weight: u32,
    /// The network it is reachable in.
    pub network: Arc<str>,
    /// Service account; empty where unknown.
    pub service_account: Arc<str>,
    /// Whether it takes traffic.
    pub health: Health,
    /// The node it runs on; empty where unknown.
    pub node: Arc<str>,
    /// Whether it is a pod (else a WorkloadEntry).
    pub pod: bool,
    /// It takes the mesh's mutual TLS.
    pub mutual_tls: bool,
}

impl Workload {
    /// All of its addresses that are IP addresses, the primary one first.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let primary = match self.address {
            EndpointAddress::Ip(ip) => Some(ip),
            _ => None,
        };
        primary.into_iter().chain(self.also.iter().copied())
    }
}
