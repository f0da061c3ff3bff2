//! Input tables: configuration objects, mesh settings and connected proxies.
//!
//! Objects with the same role share a table (a `Service` and a `ServiceEntry` both define services), so that rules can
//! range over them.

use std::net::IpAddr;
use std::sync::Arc;

use config::core::{
    CertificatePair, ConfigMap, Content, EndpointSlice, Hidden, Ingress, IngressClass, Namespace, Node, Pod, Roots,
    Secret, Service,
};
use config::gateway_api::reference::ParentReference;
use config::gateway_api::{
    BackendTlsPolicy, BackendTrafficPolicy, Gateway as KubeGateway, GatewayClass, GrpcRoute, HttpRoute, InferencePool,
    ListenerSet, ReferenceGrant, TcpRoute, TlsRoute, UdpRoute, XMesh,
};
use config::istio::{
    AuthorizationPolicy, DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, RequestAuthentication,
    ServiceEntry, Sidecar, VirtualService, WorkloadEntry, WorkloadGroup,
};
use config::mesh::{MeshConfig, MeshNetworks};
use config::multicluster::{ServiceExport, ServiceImport};
use config::{AnyObject, KeySet, Kind, Object, ObjectKey, StringMap};
use flow::{Reads, Relation, Rule};
use model::audience::Account;
use model::jwt::{KeyFailure, KeySource};
use model::kube::{GatewayRefusal, RouteId, RouteKind};
use model::proxy::Proxy;
use model::service::{ObjectId, Registry, SourceId};

pub use crate::tables::ClusterName;
use crate::tables::{self, Operations, Rank, Table, TableKey};

/// Key of an object that defines services. Kubernetes services sort before service entries, and the configuration
/// cluster before others.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServiceObjectKey {
    /// The kind.
    pub registry: Registry,
    /// The cluster that it was read from; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Namespace and name.
    pub id: ObjectId,
}

/// An object that defines services.
#[derive(Clone, PartialEq, Debug)]
pub enum ServiceObject {
    /// A core `Service`.
    Kubernetes(Arc<Object<Service>>),
    /// A `ServiceEntry`.
    Entry(Arc<Object<ServiceEntry>>),
    /// A `ServiceImport`.
    Import(Arc<Object<ServiceImport>>),
    /// An `InferencePool`.
    Pool(Arc<Object<InferencePool>>),
}

/// Key of a workload object. A pod and a WorkloadEntry may have the same name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WorkloadObjectKey {
    /// Whether it is a pod.
    pub pod: bool,
    /// The cluster that it was read from; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Namespace and name.
    pub id: ObjectId,
}

/// An object that represents one workload instance.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkloadObject {
    /// A core `Pod`.
    Pod(Arc<Object<Pod>>),
    /// A `WorkloadEntry`.
    Entry(Arc<Object<WorkloadEntry>>),
}

/// Key of a routing object. Objects of different kinds may have the same name. Gateways and VirtualServices sort before
/// the Ingresses from which such objects are generated.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RoutingKey {
    /// The kind.
    pub kind: RoutingKind,
    /// Namespace and name.
    pub id: ObjectId,
}

impl RoutingKey {
    /// The key of a Gateway.
    pub fn gateway(id: ObjectId) -> RoutingKey {
        RoutingKey { kind: RoutingKind::Gateway, id }
    }

    /// The key of a VirtualService.
    pub fn virtual_service(id: ObjectId) -> RoutingKey {
        RoutingKey { kind: RoutingKind::VirtualService, id }
    }

    /// The key of an Ingress.
    pub fn ingress(id: ObjectId) -> RoutingKey {
        RoutingKey { kind: RoutingKind::Ingress, id }
    }
}

/// The kinds of [`RoutingObject`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RoutingKind {
    /// A `Gateway`.
    Gateway,
    /// A `VirtualService`.
    VirtualService,
    /// An `Ingress`.
    Ingress,
}

/// An object that configures gateways and routes.
#[derive(Clone, PartialEq, Debug)]
pub enum RoutingObject {
    /// A `Gateway` of Istio's API.
    Gateway(Arc<Object<Gateway>>),
    /// A `VirtualService`.
    VirtualService(Arc<Object<VirtualService>>),
    /// An `Ingress`, which is translated to a Gateway and VirtualServices.
    Ingress(Arc<Object<Ingress>>),
}

/// A route of the Gateway API.
#[derive(Clone, PartialEq, Debug)]
pub enum RouteObject {
    /// An `HTTPRoute`.
    Http(Arc<Object<HttpRoute>>),
    /// A `GRPCRoute`.
    Grpc(Arc<Object<GrpcRoute>>),
    /// A `TLSRoute`.
    Tls(Arc<Object<TlsRoute>>),
    /// A `TCPRoute`.
    Tcp(Arc<Object<TcpRoute>>),
    /// A `UDPRoute`.
    Udp(Arc<Object<UdpRoute>>),
}

/// Key of an object that may contain a proxy's secrets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CredentialKey {
    /// Whether it is a ConfigMap; else a Secret.
    pub config_map: bool,
    /// The cluster that it was read from; empty for the configuration cluster.
    pub cluster: Arc<str>,
    /// Namespace and name.
    pub id: ObjectId,
}

/// An object that may contain a proxy's secrets.
#[derive(Clone, PartialEq, Debug)]
pub enum CredentialObject {
    /// A core `Secret`.
    Secret(Arc<Object<Secret>>),
    /// A core `ConfigMap`.
    ConfigMap(Arc<Object<ConfigMap>>),
}

impl CredentialObject {
    /// The certificate with its key, if it has any; a ConfigMap has none.
    pub fn pair(&self) -> Option<&Content<CertificatePair>> {
        match self {
            CredentialObject::Secret(object) => object.spec.pair.as_ref(),
            CredentialObject::ConfigMap(_) => None,
        }
    }

    /// The CA certificates, if it has any.
    pub fn roots(&self) -> Option<&Content<Roots>> {
        match self {
            CredentialObject::Secret(object) => object.spec.roots.as_ref(),
            CredentialObject::ConfigMap(object) => object.spec.roots.as_ref(),
        }
    }

    /// This object with the last valid values of the one that it replaces, in place of invalid ones.
    fn keeping(&self, before: &CredentialObject) -> Option<CredentialObject> {
        match (self, before) {
            (CredentialObject::Secret(object), CredentialObject::Secret(before)) => {
                let spec = object.spec.keeping(&before.spec)?;
                Some(CredentialObject::Secret(Arc::new(Object { spec, ..(**object).clone() })))
            }
            (CredentialObject::ConfigMap(object), CredentialObject::ConfigMap(before)) => {
                let spec = object.spec.keeping(&before.spec)?;
                Some(CredentialObject::ConfigMap(Arc::new(Object { spec, ..(**object).clone() })))
            }
            _ => None,
        }
    }
}

/// Mesh-wide settings.
#[derive(Clone, PartialEq, Debug)]
pub struct MeshSettings {
    /// The mesh configuration.
    pub config: MeshConfig,
    /// DNS domain suffix of Kubernetes services, such as `cluster.local`.
    pub domain: Arc<str>,
    /// Id of the local cluster, such as `Kubernetes`.
    pub cluster_id: Arc<str>,
    /// Which endpoints are used by clients of other clusters.
    pub sharing: Sharing,
    /// Automatically assigned addresses of ServiceEntries are used.
    pub assigned_addresses: bool,
    /// Optional features.
    pub features: Features,
}

/// Optional features that the control plane's settings enable for the whole mesh.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// The reported health of WorkloadEntries has no effect.
    pub ignores_entry_health: bool,
    /// Gateways serve HTTP/3 at ports that are UDP ports of their services, too.
    pub http3: bool,
    /// All proxies accept HTTP/1.0, not only those that report it.
    pub http10: bool,
    /// The component that fetches the keys of token issuers.
    pub jwks: JwksMode,
}

/// The component that fetches the keys at a `jwksUri`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum JwksMode {
    /// The control plane.
    #[default]
    ControlPlane,
    /// Proxies.
    Proxies,
    /// Proxies if the host is a service of the mesh, else the control plane.
    Hybrid,
}

/// Which endpoints of a Kubernetes service (`NAME.NAMESPACE.svc.DOMAIN`) are used by clients of other clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// All of them.
    #[default]
    All,
    /// Endpoints of clusters that export the service.
    Exported,
    /// None: clients of other clusters call the ServiceImport's name.
    Imported,
}

/// The settings of a control plane without flags.
impl Default for MeshSettings {
    fn default() -> MeshSettings {
        MeshSettings {
            config: MeshConfig::default(),
            domain: "cluster.local".into(),
            cluster_id: "Kubernetes".into(),
            sharing: Sharing::default(),
            assigned_addresses: true,
            features: Features::default(),
        }
    }
}

impl MeshSettings {
    /// The id of a cluster, given as in keys (empty for the configuration cluster).
    pub fn cluster_id_of<'a>(&'a self, cluster: &'a Arc<str>) -> &'a Arc<str> {
        if cluster.is_empty() { &self.cluster_id } else { cluster }
    }

    /// A cluster as in keys, from its id.
    pub fn cluster_of_id(&self, id: &Arc<str>) -> Arc<str> {
        if *id == self.cluster_id { Arc::default() } else { id.clone() }
    }
}

/// Identifies a connected proxy; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyToken(pub u64);

impl TableKey for ServiceObjectKey {
    fn of(key: &ObjectKey) -> ServiceObjectKey {
        ServiceObjectKey {
            registry: match key.kind {
                Kind::ServiceEntry => Registry::ServiceEntry,
                Kind::ServiceImport => Registry::Import,
                Kind::InferencePool => Registry::Pool,
                _ => Registry::Kubernetes,
            },
            cluster: key.cluster.clone(),
            id: ObjectId::of(key),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for WorkloadObjectKey {
    fn of(key: &ObjectKey) -> WorkloadObjectKey {
        WorkloadObjectKey { pod: key.kind == Kind::Pod, cluster: key.cluster.clone(), id: ObjectId::of(key) }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for CredentialKey {
    fn of(key: &ObjectKey) -> CredentialKey {
        CredentialKey { config_map: key.kind == Kind::ConfigMap, cluster: key.cluster.clone(), id: ObjectId::of(key) }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for RoutingKey {
    fn of(key: &ObjectKey) -> RoutingKey {
        let id = ObjectId::of(key);
        match key.kind {
            Kind::Gateway => RoutingKey::gateway(id),
            Kind::Ingress => RoutingKey::ingress(id),
            _ => RoutingKey::virtual_service(id),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((Arc::default(), self.id.namespace.clone()))
    }
}

impl TableKey for RouteId {
    fn of(key: &ObjectKey) -> RouteId {
        let kind = match key.kind {
            Kind::GrpcRoute => RouteKind::Grpc,
            Kind::TlsRoute => RouteKind::Tls,
            Kind::TcpRoute => RouteKind::Tcp,
            Kind::UdpRoute => RouteKind::Udp,
            _ => RouteKind::Http,
        };
        RouteId { kind, id: ObjectId::of(key) }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((Arc::default(), self.id.namespace.clone()))
    }
}

/// Declares tables: `NAME: KEY => ROW = "label", KIND;`, or a list of `KIND => VARIANT of ROW` for tables with several kinds,
/// followed by `| FUNCTION` for [`Table::KEEPING`].
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $name:ident: $key:ty => $row:ty = $label:literal, $($kind:ident $(=> $variant:ident of $of:ident)?),+ $(| $keeping:path)?;
    )*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl Relation for $name {
                const NAME: &'static str = $label;
                type Key = $key;
                type Row = $row;
            }

            impl Rule for $name {
                fn derive(cx: &Reads<'_>, key: &$key) -> Option<$row> {
                    tables::in_effect::<$name, SelectedNamespaces>(cx, key)
                }
            }

            impl Table for $name {
                const BY_SOURCE: &'static str = concat!($label, " by source");
                const RANKS: &'static str = concat!("sources of ", $label);
                $(const KEEPING: Option<tables::Keeping<$row>> = Some($keeping);)?

                fn row(object: AnyObject) -> Option<$row> {
                    match object {
                        $(AnyObject::$kind(object) => Some(tables!(@row object $($variant $of)?)),)+
                        _ => None,
                    }
                }

                fn object(row: &$row) -> AnyObject {
                    match row {
                        $(tables!(@pattern object $($variant $of)?) => AnyObject::$kind(object.clone()),)+
                    }
                }
            }
        )*

        /// The tables of all kinds.
        pub(crate) const TABLES: &[fn() -> Operations] = &[$(Operations::of::<$name>,)* Operations::of::<OtherObjects>];

        /// The table of a kind.
        pub(crate) fn operations(kind: Kind) -> Operations {
            match kind {
                $($(Kind::$kind)|+ => Operations::of::<$name>(),)*
                _ => Operations::of::<OtherObjects>(),
            }
        }
    };
    (@row $object:ident) => { $object };
    (@row $object:ident $variant:ident $of:ident) => { $of::$variant($object) };
    (@pattern $object:ident) => { $object };
    (@pattern $object:ident $variant:ident $of:ident) => { $of::$variant($object) };
}

tables! {
    /// The mesh configuration; at most one.
    MeshConfigs: () => Arc<Object<MeshConfig>> = "mesh config", MeshConfig;
    /// `Namespace` objects.
    Namespaces: ClusterName => Arc<Object<Namespace>> = "namespaces", Namespace;
    /// `Node` objects.
    Nodes: ClusterName => Arc<Object<Node>> = "nodes", Node;
    /// `Service`, `ServiceEntry`, `ServiceImport` and `InferencePool` objects.
    ServiceObjects: ServiceObjectKey => ServiceObject = "service objects",
        Service => Kubernetes of ServiceObject, ServiceEntry => Entry of ServiceObject, ServiceImport => Import of ServiceObject,
        InferencePool => Pool of ServiceObject;
    /// `Pod` and `WorkloadEntry` objects.
    WorkloadObjects: WorkloadObjectKey => WorkloadObject = "workload objects",
        Pod => Pod of WorkloadObject, WorkloadEntry => Entry of WorkloadObject;
    /// `ServiceExport` objects.
    ServiceExports: SourceId => Arc<Object<ServiceExport>> = "service exports", ServiceExport;
    /// `EndpointSlice` objects.
    EndpointSlices: SourceId => Arc<Object<EndpointSlice>> = "endpoint slices", EndpointSlice;
    /// `WorkloadGroup` objects.
    WorkloadGroups: ObjectId => Arc<Object<WorkloadGroup>> = "workload groups", WorkloadGroup;
    /// `Gateway`, `VirtualService` and `Ingress` objects.
    RoutingObjects: RoutingKey => RoutingObject = "routing objects",
        Gateway => Gateway of RoutingObject, VirtualService => VirtualService of RoutingObject, Ingress => Ingress of RoutingObject;
    /// `IngressClass` objects, by name.
    IngressClasses: Arc<str> => Arc<Object<IngressClass>> = "ingress classes", IngressClass;
    /// `DestinationRule` objects.
    DestinationRules: ObjectId => Arc<Object<DestinationRule>> = "destination rules", DestinationRule;
    /// `Sidecar` objects.
    Sidecars: ObjectId => Arc<Object<Sidecar>> = "sidecars", Sidecar;
    /// `EnvoyFilter` objects.
    EnvoyFilters: ObjectId => Arc<Object<EnvoyFilter>> = "envoy filters", EnvoyFilter;
    /// `ProxyConfig` objects.
    ProxyConfigs: ObjectId => Arc<Object<ProxyConfig>> = "proxy configs", ProxyConfig;
    /// `PeerAuthentication` objects.
    PeerAuthentications: ObjectId => Arc<Object<PeerAuthentication>> = "peer authentications", PeerAuthentication;
    /// `RequestAuthentication` objects.
    RequestAuthentications: ObjectId => Arc<Object<RequestAuthentication>> = "request authentications", RequestAuthentication;
    /// `AuthorizationPolicy` objects.
    AuthorizationPolicies: ObjectId => Arc<Object<AuthorizationPolicy>> = "authorization policies", AuthorizationPolicy;
    /// The networks of the mesh, if configured.
    Networks: () => Arc<Object<MeshNetworks>> = "mesh networks", MeshNetworks;
    /// `Gateway` objects of the Gateway API.
    KubeGateways: SourceId => Arc<Object<KubeGateway>> = "gateways of the gateway api", KubeGateway;
    /// `ListenerSet` objects.
    ListenerSets: ObjectId => Arc<Object<ListenerSet>> = "listener sets", ListenerSet;
    /// `Secret` and `ConfigMap` objects.
    Credentials: CredentialKey => CredentialObject = "credentials",
        Secret => Secret of CredentialObject, ConfigMap => ConfigMap of CredentialObject | CredentialObject::keeping;
    /// `ReferenceGrant` objects.
    ReferenceGrants: ObjectId => Arc<Object<ReferenceGrant>> = "reference grants", ReferenceGrant;
    /// `GatewayClass` objects, by name.
    GatewayClasses: Arc<str> => Arc<Object<GatewayClass>> = "gateway classes", GatewayClass;
    /// `XMesh` objects, by name.
    XMeshes: Arc<str> => Arc<Object<XMesh>> = "meshes", XMesh;
    /// `BackendTLSPolicy` objects.
    BackendTlsPolicies: ObjectId => Arc<Object<BackendTlsPolicy>> = "backend tls policies", BackendTlsPolicy;
    /// `XBackendTrafficPolicy` objects.
    BackendTrafficPolicies: ObjectId => Arc<Object<BackendTrafficPolicy>> = "backend traffic policies", BackendTrafficPolicy;
    /// Routes of the Gateway API.
    RouteObjects: RouteId => RouteObject = "routes of the gateway api",
        HttpRoute => Http of RouteObject, GrpcRoute => Grpc of RouteObject, TlsRoute => Tls of RouteObject,
        TcpRoute => Tcp of RouteObject, UdpRoute => Udp of RouteObject;
}

/// Objects of kinds that no rule reads yet.
pub struct OtherObjects;

impl Relation for OtherObjects {
    const NAME: &'static str = "other objects";
    type Key = ObjectKey;
    type Row = AnyObject;
}

impl Rule for OtherObjects {
    fn derive(cx: &Reads<'_>, key: &ObjectKey) -> Option<AnyObject> {
        tables::in_effect::<OtherObjects, SelectedNamespaces>(cx, key)
    }
}

impl Table for OtherObjects {
    const BY_SOURCE: &'static str = "other objects by source";
    const RANKS: &'static str = "sources of other objects";

    fn row(object: AnyObject) -> Option<AnyObject> {
        Some(object)
    }

    fn object(row: &AnyObject) -> AnyObject {
        row.clone()
    }
}

flow::input! {
    /// The mesh-wide settings, with the mesh configuration that applies if there is no `MeshConfig`; always present.
    pub MeshDefaults: () => Arc<MeshSettings> = "mesh defaults";
    /// The names of the sources of objects.
    pub Sources: Rank => Arc<str> = "sources";
    /// Environment variables of the control plane that mesh-wide settings refer to.
    pub Environment: Arc<str> => Hidden = "environment";
    /// Resolved addresses of hostnames, ascending.
    pub HostAddresses: Arc<str> => Arc<[IpAddr]> = "addresses of hosts";
    /// Fetched public keys of token issuers.
    pub FetchedKeys: KeySource => KeySet = "fetched keys";
    /// Sources of keys whose last fetch failed.
    pub KeyFailures: KeySource => KeyFailure = "failed key sources";
    /// The root certificates of the mesh in PEM, one each, for agents.
    pub TrustBundle: () => Arc<[Arc<str>]> = "trust bundle";
    /// Gateways of the Gateway API that cannot be deployed for a reason of their own.
    pub GatewayRefusals: ObjectId => GatewayRefusal = "refused gateways";
    /// The parents of objects of the Gateway API that validation refuses ([`config::parents_of`]).
    pub RefusedObjects: (Kind, ObjectId) => Arc<[ParentReference]> = "refused objects";
    /// Service accounts that may list the Secrets of their namespaces, as the API of their cluster says.
    pub SecretReaders: Account => () = "readers of secrets";
    /// Connected proxies.
    pub Proxies: ProxyToken => Arc<Proxy> = "proxies";
}

flow::rule! {
    /// The mesh-wide settings in effect; always present.
    pub Mesh: () => Arc<MeshSettings> = "mesh", derive_mesh;
}

fn derive_mesh(cx: &Reads<'_>, _: &()) -> Option<Arc<MeshSettings>> {
    let defaults = cx.get::<MeshDefaults>(&())?;
    let Some(object) = cx.get::<MeshConfigs>(&()) else {
        return Some((*defaults).clone());
    };
    Some(Arc::new(MeshSettings { config: object.spec.clone(), ..(**defaults).clone() }))
}

/// Label that every namespace has, with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

flow::rule! {
    /// Namespaces that `MeshConfig.discoverySelectors` selects: all if there are no selectors.
    pub SelectedNamespaces: ClusterName => () = "selected namespaces", derive_selected_namespace;
}

fn derive_selected_namespace(cx: &Reads<'_>, namespace: &ClusterName) -> Option<()> {
    let mesh = cx.get::<Mesh>(&())?;
    let selectors = &mesh.config.discovery_selectors;
    if selectors.is_empty() {
        return Some(());
    }
    let labels = namespace_labels(cx, namespace);
    selectors.iter().any(|selector| selector.matches(&labels)).then_some(())
}

/// The labels of a namespace, with that of its name.
pub fn namespace_labels(cx: &Reads<'_>, namespace: &ClusterName) -> StringMap {
    let object = cx.get::<Namespaces>(namespace);
    let mut labels = object.map(|object| object.meta.labels.clone()).unwrap_or_default();
    labels.insert(NAME_LABEL.into(), namespace.1.clone());
    labels
}

/// Registers the inputs and tables.
pub(crate) fn register(b: &mut flow::Builder) {
    b.input::<MeshDefaults>();
    tables::register::<MeshConfigs>(b);
    b.world::<Mesh, MeshDefaults>();
    tables::register::<Namespaces>(b);
    b.view::<SelectedNamespaces>();
    tables::register::<Networks>(b);
    tables::register::<Nodes>(b);
    tables::register::<ServiceObjects>(b);
    tables::register::<WorkloadObjects>(b);
    tables::register::<EndpointSlices>(b);
    tables::register::<ServiceExports>(b);
    tables::register::<WorkloadGroups>(b);
    tables::register::<KubeGateways>(b);
    tables::register::<ListenerSets>(b);
    b.input::<HostAddresses>();
    b.input::<TrustBundle>();
    tables::register::<RoutingObjects>(b);
    tables::register::<IngressClasses>(b);
    tables::register::<DestinationRules>(b);
    tables::register::<Sidecars>(b);
    tables::register::<Credentials>(b);
    tables::register::<ReferenceGrants>(b);
    tables::register::<GatewayClasses>(b);
    tables::register::<XMeshes>(b);
    tables::register::<BackendTlsPolicies>(b);
    tables::register::<BackendTrafficPolicies>(b);
    tables::register::<RouteObjects>(b);
    tables::register::<EnvoyFilters>(b);
    tables::register::<ProxyConfigs>(b);
    tables::register::<PeerAuthentications>(b);
    tables::register::<RequestAuthentications>(b);
    tables::register::<AuthorizationPolicies>(b);
    b.input::<FetchedKeys>();
    b.input::<KeyFailures>();
    tables::register::<OtherObjects>(b);
    b.input::<Sources>();
    b.input::<Environment>();
    b.input::<SecretReaders>();
    b.input::<GatewayRefusals>();
    b.input::<RefusedObjects>();
    b.input::<Proxies>();
}
