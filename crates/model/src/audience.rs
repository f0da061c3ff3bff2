//! Audiences and resource keys: the least that two proxies must share to receive equal bytes.
//!
//! A generator is given one of these keys and its reads, nothing else. A field that is added here makes the mesh slower
//! (fewer proxies share), a field that is missing cannot be read at all.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use names::Hostname;

use crate::listener::{DnsCache, ListenerSpec, Traced, Tuning};
use crate::mtls::PeerModes;
use crate::network::NetworkEntry;
use crate::proxy::{Capabilities, InterceptionMode, Labels, Locality, ProxyKind};
use crate::service::{Endpoint, ObjectId, ServiceKey};
use crate::session::Session;
use crate::tls::{self, ClientFacts, KeyProvider, OwnFiles};

/// What decides which services and rules a client sees.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scope {
    /// The client's namespace.
    pub namespace: Arc<str>,
    /// The `Sidecar` that applies to it; none for the built-in default (everything visible) and for gateways.
    pub sidecar: Option<ObjectId>,
    /// DestinationRules of the client's namespace whose `workloadSelector` selects the client, sorted.
    pub selected_rules: Vec<ObjectId>,
    /// Id of the client's cluster, whose addresses of services it dials; empty while all services are of one cluster.
    pub cluster: Arc<str>,
    /// It dials the addresses that services without any were assigned; false while there are none, and for all that does
    /// not depend on services' addresses.
    pub assigned: bool,
}

impl Scope {
    /// The scope of what does not depend on the addresses that services were assigned.
    pub fn without_assigned(self: &Arc<Self>) -> Arc<Scope> {
        match self.assigned {
            false => self.clone(),
            true => Arc::new(Scope {
                assigned: false,
                ..(**self).clone()
            }),
        }
    }
}

/// What decides the name table of a proxy's agent.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameAudience {
    /// What it sees, whatever services were assigned.
    pub scope: Arc<Scope>,
    /// Which addresses it gets.
    pub view: Arc<NameView>,
}

/// What the addresses behind a name depend on of a client.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameView {
    /// Id of its cluster; empty while all services are of one cluster.
    pub cluster: Arc<str>,
    /// Its network, whose instances it can dial; empty while networks have no meaning.
    pub network: Arc<str>,
    /// Which address families it has.
    pub ip: IpFamilies,
    /// It gets the addresses that services without any were assigned.
    pub assigned: bool,
}

/// What decides the endpoints that a proxy gets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointsAudience {
    /// What it sees.
    pub scope: Arc<Scope>,
    /// Where it is.
    pub place: Arc<Place>,
    /// What `local_cluster` means to it; none for proxies that do not ask for it (`ENABLE_SELF_DISCOVERY`).
    pub own: Option<Arc<OwnWorkload>>,
    /// The endpoints of large clusters are sent singly; none for proxies that do not take them so.
    pub apart: Option<Leds>,
}

/// How the endpoints of large clusters are sent singly (LEDS).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Leds {
    /// Clusters of at least so many endpoints.
    pub from: NonZeroU32,
    /// A part of the names of collections. Envoy does not say which endpoints it has when it returns, so that it would
    /// keep those that went meanwhile: it is given collections of other names than those that it had.
    pub generation: u32,
    /// Localities have weights even in clusters that make no use of them: patches may change that.
    pub weights: bool,
}

/// An endpoint of a cluster that is sent by itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointSpec {
    /// Where connections go.
    pub place: EndpointPlace,
    /// Relative weight within its locality.
    pub weight: u32,
}

/// Where connections go.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EndpointPlace {
    /// To an endpoint, at this port; by the mesh's mutual TLS if the endpoint takes it.
    Endpoint(Endpoint, u16),
    /// To a gateway, which passes them on.
    Gateway(NetworkEntry),
}

/// The instances of a client's own workload in its region, which Envoy compares with those of the services that it calls
/// (zone-aware load balancing).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OwnWorkload {
    /// The service that they are found by.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// Name of the Deployment (or whatever owns the instances).
    pub workload: Arc<str>,
    /// The instance's labels `pod-template-hash` and `rollouts-pod-template-hash`; empty where it has none.
    pub templates: [Arc<str>; 2],
    /// Its region.
    pub region: Arc<str>,
}

/// Where a client is: no more than the mesh as a whole asks for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// Its network; empty while no network has a gateway, or where it is not known.
    pub network: Arc<str>,
    /// The only networks whose endpoints it wants (`REQUESTED_NETWORK_VIEW`); empty for all.
    pub networks: Vec<Arc<str>>,
    /// Its node; empty while no service prefers, or insists on, endpoints of the client's node.
    pub node: Arc<str>,
    /// Its locality; empty while nothing balances by it.
    pub locality: Locality,
    /// Its labels that a failover priority names.
    pub labels: Labels,
}

/// What the endpoints of one cluster depend on of a client: that part of its [`Place`] that this cluster asks for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientView {
    /// Endpoints that are for clients of their own cluster only, of the cluster of this id.
    pub cluster: Option<Arc<str>>,
    /// Only endpoints of this node.
    pub node: Option<Arc<str>>,
    /// Endpoints of other networks are reached through gateways.
    pub network: Option<Arc<str>>,
    /// Only endpoints of these networks; empty for all.
    pub networks: Vec<Arc<str>>,
    /// Endpoints are preferred by their locality.
    pub locality: Option<Arc<Locality>>,
    /// Endpoints are preferred that have these labels in common with the client; what it does not have is not here.
    pub labels: Labels,
}

/// Labels that tell the instances of one version of a workload from those of another.
pub const TEMPLATE_LABELS: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// What decides the clusters of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClusterAudience {
    /// What it sees.
    pub scope: Arc<Scope>,
    /// Sidecars have pass-through and inbound clusters; gateways have not.
    pub kind: ProxyKind,
    /// A gateway between networks: it has clusters for connections that are passed on unopened, too.
    pub sni_passthrough: bool,
    /// An agent runs beside it, which has the workload's certificates.
    pub agent: bool,
    /// Ports of the workload that services (or its `Sidecar`) lead to, ascending: one inbound cluster each.
    pub inbound: Arc<[InboundPort]>,
    /// Whether it has an IPv4 and an IPv6 address.
    pub ip: IpFamilies,
    /// Where it is; empty while no service is resolved by DNS, for only then endpoints come with their cluster.
    pub place: Arc<Place>,
    /// Who resolves names, if not the system; only where the mesh has names of unknown destinations looked up.
    pub resolver: Option<SocketAddr>,
    /// Patches of clusters, in the order in which they are made.
    pub filters: Filters,
    /// What of its own settings shapes them, as JSON; empty where it is as the mesh's.
    pub settings: Arc<str>,
}

/// What decides the listeners of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ListenerAudience {
    /// What it sees.
    pub scope: Arc<Scope>,
    /// Sidecar or gateway.
    pub kind: ProxyKind,
    /// Ports of the workload that services (or its `Sidecar`) lead to, ascending; empty for gateways.
    pub inbound: Arc<[InboundPort]>,
    /// The client, its labels cut down to those that a TCP or TLS route asks for in `sourceLabels`.
    pub source: Arc<Source>,
    /// `Gateway` objects that select the proxy, in order of precedence; empty for sidecars.
    pub gateways: Arc<[ObjectId]>,
    /// Where ports of gateways' servers really are: port of a service of the gateway → port of the workload, ascending,
    /// only where they differ; empty for sidecars.
    pub gateway_ports: Arc<[(u16, u16)]>,
    /// Ports of the gateway's services that take UDP, ascending, where HTTP/3 may be answered; empty unless the mesh wants that,
    /// and for sidecars.
    pub udp_ports: Arc<[u16]>,
    /// How traffic reaches it.
    pub interception: InterceptionMode,
    /// Optional filters that it has.
    pub capabilities: Capabilities,
    /// An agent runs beside it, which has the workload's certificates.
    pub agent: bool,
    /// Files in the place of those.
    pub own_files: Arc<OwnFiles>,
    /// What the workload takes, by port; always the same for gateways.
    pub peers: Arc<PeerModes>,
    /// Whether it has an IPv4 and an IPv6 address.
    pub ip: IpFamilies,
    /// Its network, whose instances of services it dials; empty while no network has a gateway, and for gateways.
    pub network: Arc<str>,
    /// HTTP/1.0 is accepted.
    pub accepts_http10: bool,
    /// Ports below 1024 cannot be bound.
    pub unprivileged: bool,
    /// What the proxy's metadata asks for.
    pub tuning: Tuning,
    /// Who resolves names, if not the system; only where the mesh has names of unknown destinations looked up.
    pub resolver: Option<SocketAddr>,
    /// Patches of listeners, and the routes in them, in the order in which they are made.
    pub filters: Filters,
    /// What of its own settings shapes them, as JSON; empty where it is as the mesh's.
    pub settings: Arc<str>,
    /// What traces say of it; nothing while there are none.
    pub traced: Arc<Traced>,
}

/// What decides the listeners of a gRPC client or server without a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GrpcAudience {
    /// What it sees.
    pub scope: Arc<Scope>,
    /// The DNS domain in which it may leave the end of a hostname out, `NAMESPACE.svc.cluster.local`.
    pub domain: Arc<str>,
    /// Ports of the workload that services lead to, ascending: what it may serve.
    pub inbound: Arc<[u16]>,
    /// Those of them at which it takes the mesh's mutual TLS and nothing else, ascending.
    pub mutual_tls: Arc<[u16]>,
}

/// What decides the route tables of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RouteAudience {
    /// What it sees.
    pub scope: Arc<Scope>,
    /// Sidecar or gateway.
    pub kind: ProxyKind,
    /// The client, its labels cut down to those that an HTTP route asks for in `sourceLabels`.
    pub source: Arc<Source>,
    /// `Gateway` objects that select the proxy, in order of precedence; empty for sidecars.
    pub gateways: Arc<[ObjectId]>,
    /// Where ports of gateways' servers really are: port of a service of the gateway → port of the workload, ascending,
    /// only where they differ; empty for sidecars.
    pub gateway_ports: Arc<[(u16, u16)]>,
    /// Ports of the gateway's services that take UDP, ascending, where HTTP/3 may be answered; empty unless the mesh wants that,
    /// and for sidecars.
    pub udp_ports: Arc<[u16]>,
    /// Patches of route tables, in the order in which they are made.
    pub filters: Filters,
    /// What of its own settings shapes them, as JSON; empty where it is as the mesh's.
    pub settings: Arc<str>,
}

/// What decides the extension configurations that a proxy may ask for by name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExtensionAudience {
    /// Patches that add extension configurations; of two with one name the later holds.
    pub filters: Filters,
}

/// Patches of EnvoyFilters, in the order in which they are made.
pub type Filters = Arc<[FilterRef]>;

/// Patches of one EnvoyFilter.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FilterRef {
    /// The EnvoyFilter.
    pub id: ObjectId,
    /// Which of its patches, ascending.
    pub patches: Arc<[u16]>,
}

impl ClusterAudience {
    /// The audience of what is not patched yet.
    pub fn plain(self: &Arc<Self>) -> Arc<ClusterAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(ClusterAudience {
                filters: Filters::default(),
                ..(**self).clone()
            }),
        }
    }
}

impl ListenerAudience {
    /// The audience of what is not patched yet.
    pub fn plain(self: &Arc<Self>) -> Arc<ListenerAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(ListenerAudience {
                filters: Filters::default(),
                ..(**self).clone()
            }),
        }
    }
}

impl RouteAudience {
    /// The audience of what is not patched yet.
    pub fn plain(self: &Arc<Self>) -> Arc<RouteAudience> {
        match self.filters.is_empty() {
            true => self.clone(),
            false => Arc::new(RouteAudience {
                filters: Filters::default(),
                ..(**self).clone()
            }),
        }
    }
}

/// What a VirtualService's match may ask of the client (`sourceLabels`, `sourceNamespace`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Source {
    /// The client's namespace.
    pub namespace: Arc<str>,
    /// Its labels, cut down to those that some VirtualService names.
    pub labels: Labels,
}

/// Which address families a proxy has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IpFamilies {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Dual,
}

/// In the place of an address: all of the workload's, in each family that it has.
pub const EVERYWHERE: &str = "*";

/// A port of a workload that takes traffic.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct InboundPort {
    /// The port on the workload: the inbound listener's filter chain matches it.
    pub port: u16,
    /// The protocol, from the service port that leads to it.
    pub protocol: names::Protocol,
    /// Where the application listens if not at `port` of the pod's address (`Sidecar` ingress `defaultEndpoint`).
    pub endpoint: Option<DefaultEndpoint>,
    /// The service that leads here first (by precedence), for names in statistics; none for ports that only a
    /// `Sidecar` declares.
    pub service: Option<(ServiceKey, u16)>,
    /// Bound address of an explicit `Sidecar` ingress listener, where it has one, or [`EVERYWHERE`]. Always there if it is not
    /// captured.
    pub bind: Option<Arc<str>>,
    /// Whether connections come through the virtual inbound listener; else the port has a listener of its own.
    pub captured: bool,
    /// TLS is terminated as the `Sidecar` says.
    pub tls: bool,
}

/// Where an application listens (`Sidecar` ingress `defaultEndpoint`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DefaultEndpoint {
    /// A port of the loopback address.
    Loopback(u16),
    /// A port of the address that the client dialled (`0.0.0.0:PORT`).
    Instance(u16),
    /// A Unix domain socket.
    Unix(Arc<str>),
}

/// What decides the secrets of a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SecretAudience {
    /// Its namespace: it gets the secrets of no other.
    pub namespace: Arc<str>,
    /// Its cluster, whose secrets they are; empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// What signs with their keys, if not the proxy's own code.
    pub key_provider: Option<KeyProvider>,
}

/// What decides one secret.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SecretKey {
    /// The name that it is asked for by.
    pub name: Arc<str>,
    /// It is in a ConfigMap, of which only the authorities are used; else in a Secret.
    pub config_map: bool,
    /// The cluster of the object; empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name, with `-cacert` where only the authorities are wanted.
    pub object: Arc<str>,
    /// What signs with its key, if not the proxy's own code; of Secrets that are wanted with their keys.
    pub key_provider: Option<KeyProvider>,
}

impl SecretAudience {
    /// What a name means to proxies of this audience; nothing for what they may not have. The authorities in ConfigMaps
    /// are public: a client needs those of servers in other namespaces.
    pub fn resolve(&self, name: &Arc<str>) -> Option<SecretKey> {
        let key = |config_map, cluster: &Arc<str>, path: &str| {
            let (namespace, object) = match path.split_once('/') {
                Some((namespace, object)) => (namespace, object),
                None => (&*self.namespace, path),
            };
            let sound = !namespace.is_empty() && !object.is_empty() && !object.contains('/');
            let allowed = config_map || *namespace == *self.namespace;
            (sound && allowed).then(|| SecretKey {
                name: name.clone(),
                config_map,
                cluster: cluster.clone(),
                namespace: namespace.into(),
                object: object.into(),
                key_provider: self.key_provider.filter(|_| !config_map),
            })
        };
        let home = Arc::default();
        if let Some(path) = name.strip_prefix(tls::SECRET) {
            return key(false, &self.cluster, path);
        }
        let whole = |path: &&str| path.contains('/');
        if let Some(path) = name.strip_prefix(tls::GATEWAY_SECRET).filter(whole) {
            return key(false, &home, path);
        }
        name.strip_prefix(tls::CONFIG_MAP)
            .filter(whole)
            .and_then(|path| key(true, &home, path))
    }
}

/// Names a merged DestinationRule: all rules of one namespace for one host (pattern).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyKey {
    /// The namespace of the rules.
    pub namespace: Arc<str>,
    /// Their `host`, resolved; may be a wildcard.
    pub host: Hostname,
    /// A single rule that was chosen by its `workloadSelector` instead of all rules without one.
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

/// Everything that decides one cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ClusterKey {
    /// `outbound|PORT|SUBSET|HOST`.
    Outbound(OutboundKey),
    /// `inbound|PORT||`.
    Inbound {
        /// The port on the workload.
        port: u16,
        /// What is spoken to the application; auto-detected protocols follow the client.
        protocol: names::Protocol,
        /// Where the application listens, if a `Sidecar` says so.
        endpoint: Option<DefaultEndpoint>,
        /// Address families of the proxy.
        ip: IpFamilies,
        /// The `Sidecar` whose `inboundConnectionPool` or ingress `connectionPool` applies.
        sidecar: Option<ObjectId>,
        /// The service that leads here first, and its port; none for ports that only a `Sidecar` declares.
        service: Option<(ServiceKey, u16)>,
        /// The policy of the service that leads here, and its port, where that sets limits to connections: what clients
        /// may open the workload has to take.
        policy: Option<(PolicyKey, u16)>,
    },
    /// `PassthroughCluster`: to where the application wanted.
    Passthrough,
    /// `BlackHoleCluster`: nowhere.
    BlackHole,
    /// `AllowAnyDynamicDNSCluster`: to where the request's name leads.
    DynamicForwardProxy(DnsCache),
    /// `InboundPassthroughCluster`: to the application, at the port that the client dialled.
    InboundPassthrough(IpFamilies),
    /// Any of these, as proxies with settings of their own have it.
    ProxyConfigOverride(Arc<OverriddenCluster>),
}

/// A cluster as proxies with settings of their own have it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OverriddenCluster {
    /// The cluster as others have it.
    pub cluster: ClusterKey,
    /// The settings that shape it, as in the audience.
    pub settings: Arc<str>,
}

impl ClusterKey {
    /// The cluster as proxies without settings of their own have it.
    pub fn without_override(&self) -> &ClusterKey {
        match self {
            ClusterKey::ProxyConfigOverride(tuned) => tuned.cluster.without_override(),
            key => key,
        }
    }
}

/// What decides an outbound cluster and its endpoints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OutboundKey {
    /// The service.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// Name of the subset; empty for the whole service.
    pub subset: Arc<str>,
    /// The traffic policy that applies, if any.
    pub policy: Option<PolicyKey>,
    /// A pass-through service is served from endpoints (gateways have no original destination).
    pub from_endpoints: bool,
    /// The client is a gateway; only where the port's protocol is not declared: what a gateway's own clients speak says
    /// nothing about the service.
    pub from_gateway: bool,
    /// Address families of the client; only for services that the proxy itself resolves by DNS.
    pub lookup: Option<IpFamilies>,
    /// By what endpoints are preferred; only where endpoints come with the cluster and its policy asks for it.
    pub view: Option<Arc<ClientView>>,
    /// For gateways between networks: named by what clients of other networks put in their TLS server name, and only to
    /// endpoints that take the mesh's mutual TLS, which is passed on unopened.
    pub sni_passthrough: bool,
    /// What its TLS depends on of the client. Endpoints do not depend on it: for them it is nothing.
    pub client: ClientFacts,
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

/// Everything that decides the routes of one virtual host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RoutesKey {
    /// The VirtualService whose `http` routes these are; none for a service's default route.
    pub virtual_service: Option<ObjectId>,
    /// The host of the virtual host: the service that is the default destination, or a host that only the
    /// VirtualService knows.
    pub host: Hostname,
    /// The listener's port: what `match.port` is compared with, and the port of destinations that name none and
    /// whose service has several.
    pub port: u16,
    /// The gateway (`namespace/name`) that the routes are bound to; none for sidecars (`mesh`).
    pub gateway: Option<ObjectId>,
    /// What `sourceLabels` and `sourceNamespace` are compared with.
    pub source: Arc<Source>,
    /// What each destination host means for this client.
    pub destinations: Arc<BTreeMap<Hostname, DestinationRef>>,
    /// The proxy's own settings that shape it, as in its audience.
    pub settings: Arc<str>,
}

/// What a destination host means for a client.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DestinationRef {
    /// The visible service of that host.
    pub service: Option<ServiceKey>,
    /// The traffic policy that applies to it, for hash policies.
    pub policy: Option<PolicyKey>,
}

/// One virtual host of a route table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct VirtualHostSpec {
    /// `HOST:PORT`, or a catch-all's name.
    pub name: Arc<str>,
    /// The domains, none of which occurs twice in the table.
    pub domains: Vec<Arc<str>>,
    /// What it holds.
    pub content: VirtualHostContent,
    /// Plain-text requests are redirected to HTTPS (`httpsRedirect`).
    pub require_tls: bool,
    /// By what clients are known again, whom the host's service keeps with one endpoint.
    pub session: Option<Session>,
    /// The proxy's own settings that shape it, as in its audience.
    pub settings: Arc<str>,
}

impl VirtualHostSpec {
    /// The virtual host as a proxy with these settings of its own gets it.
    pub fn with_settings(&self, settings: &Arc<str>) -> VirtualHostSpec {
        let content = match &self.content {
            VirtualHostContent::Routes(keys) => {
                let with = |key: &Arc<RoutesKey>| RoutesKey {
                    settings: settings.clone(),
                    ..(**key).clone()
                };
                VirtualHostContent::Routes(keys.iter().map(|key| Arc::new(with(key))).collect())
            }
            other => other.clone(),
        };
        VirtualHostSpec {
            content,
            settings: settings.clone(),
            ..self.clone()
        }
    }
}

/// What a virtual host answers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum VirtualHostContent {
    /// Routes, in order: those of the first key go first.
    Routes(Vec<Arc<RoutesKey>>),
    /// Everything goes to this cluster (`allow_any`).
    AllowAny(Arc<str>),
    /// Everything goes to where its name leads (`allow_any_dynamic_dns`).
    DynamicForwardProxy,
    /// Everything is refused with 502 (`block_all`).
    BlockAll,
    /// Everything is refused with 404 (`blackhole:PORT` of a gateway without routes).
    NotFound,
}

/// A route table: its virtual hosts in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTable {
    /// The virtual hosts.
    pub virtual_hosts: Vec<Arc<VirtualHostSpec>>,
    /// A port in the `Host` header is ignored when hosts are matched.
    pub ignore_port: bool,
    /// The port at which clients are told to try HTTP/3 (`alt-svc`).
    pub http3_port: Option<u16>,
}

/// What a client asks for, or a catalogue lists: the key of one resource.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ResourceKey {
    /// A cluster.
    Cluster(ClusterKey),
    /// The endpoints of the cluster of this name, as these clients see it.
    Endpoints(Arc<EndpointsAudience>, Arc<str>),
    /// An endpoint of the collection that its name begins with.
    LbEndpoint(Arc<str>, Arc<EndpointSpec>),
    /// A listener.
    Listener(Arc<ListenerSpec>),
    /// The listener that a gRPC client or server knows under this name.
    GrpcListener(Arc<GrpcAudience>, Arc<str>),
    /// The cluster of this name, as gRPC clients who see this get it.
    GrpcCluster(Arc<Scope>, Arc<str>),
    /// The route table of this name.
    Route(Arc<RouteAudience>, Arc<str>),
    /// The route table of this name, without its virtual hosts: they are discovered singly.
    RouteShell(Arc<RouteAudience>, Arc<str>),
    /// A virtual host of the route table of this name.
    VirtualHost(Arc<str>, Arc<VirtualHostSpec>),
    /// A secret.
    Secret(SecretKey),
    /// A cluster after these patches.
    PatchedCluster(Arc<PatchedCluster>),
    /// A listener after these patches.
    PatchedListener(Arc<PatchedListener>),
    /// What a patch adds: the EnvoyFilter, and which of its patches.
    Added(ObjectId, u16),
    /// The name table.
    NameTable(Arc<NameAudience>),
    /// The extension configuration of this name.
    Extension(Arc<ExtensionAudience>, Arc<str>),
}

/// A cluster, and the patches that it gets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedCluster {
    /// The cluster as it is without them.
    pub cluster: ClusterKey,
    /// The patches; one at least.
    pub filters: Filters,
}

/// A listener, and the patches that it may get.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedListener {
    /// The listener as it is without them.
    pub listener: Arc<ListenerSpec>,
    /// The patches; one at least.
    pub filters: Filters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_other_namespaces_mean_nothing() {
        let audience = SecretAudience {
            namespace: "shop".into(),
            cluster: "west".into(),
            key_provider: None,
        };
        let resolved = |name: &str| {
            let key = audience.resolve(&name.into())?;
            Some(format!(
                "{} {}/{}/{}",
                key.config_map, key.cluster, key.namespace, key.object
            ))
        };
        assert_eq!(resolved("kubernetes://web").as_deref(), Some("false west/shop/web"));
        assert_eq!(
            resolved("kubernetes://shop/web-cacert").as_deref(),
            Some("false west/shop/web-cacert")
        );
        assert_eq!(
            resolved("kubernetes-gateway://shop/web").as_deref(),
            Some("false /shop/web")
        );
        assert_eq!(
            resolved("configmap://other/roots-cacert").as_deref(),
            Some("true /other/roots-cacert")
        );
        for name in [
            "kubernetes://other/web",
            "kubernetes-gateway://other/web",
            "kubernetes-gateway://web",
            "configmap://web",
            "configmap:///web",
            "kubernetes://",
            "kubernetes:///web",
            "kubernetes://shop/",
            "kubernetes://shop/a/b",
            "default",
            "",
        ] {
            assert_eq!(resolved(name), None, "{name}");
        }
    }
}
