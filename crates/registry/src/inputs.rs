//! Input tables: configuration objects, mesh settings and connected proxies.
//!
//! Objects with the same role share a table (a `Service` and a `ServiceEntry` both define services), so that rules can
//! range over them.

use std::net::IpAddr;
use std::sync::Arc;

use config::Object;
use config::core::{
    CertificatePair, ConfigMap, EndpointSlice, Flaw, Hidden, Ingress, IngressClass, Namespace, Node, Pod, Roots,
    Secret, Service,
};
use config::gateway_api::Gateway as KubeGateway;
use config::istio::{
    DestinationRule, EnvoyFilter, Gateway, PeerAuthentication, ProxyConfig, ServiceEntry, Sidecar, VirtualService,
    WorkloadEntry, WorkloadGroup,
};
use config::mesh::{MeshConfig, MeshNetworks};
use config::multicluster::{ServiceExport, ServiceImport};
use model::proxy::Proxy;
use model::service::{ObjectId, Registry, SourceId};

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
        RoutingKey {
            kind: RoutingKind::Gateway,
            id,
        }
    }

    /// The key of a VirtualService.
    pub fn virtual_service(id: ObjectId) -> RoutingKey {
        RoutingKey {
            kind: RoutingKind::VirtualService,
            id,
        }
    }

    /// The key of an Ingress.
    pub fn ingress(id: ObjectId) -> RoutingKey {
        RoutingKey {
            kind: RoutingKind::Ingress,
            id,
        }
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
    /// The certificate with its key; none if it has none, or for a ConfigMap.
    ///
    /// # Errors
    /// The reason why they cannot be used.
    pub fn pair(&self) -> Option<Result<CertificatePair, Flaw>> {
        match self {
            CredentialObject::Secret(object) => object.spec.pair(),
            CredentialObject::ConfigMap(_) => None,
        }
    }

    /// The CA certificates, if it has any.
    ///
    /// # Errors
    /// The reason why they cannot be used.
    pub fn roots(&self) -> Option<Result<Roots, Flaw>> {
        match self {
            CredentialObject::Secret(object) => object.spec.roots(),
            CredentialObject::ConfigMap(object) => object.spec.roots(),
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
    /// Gateways serve HTTP/3 at ports that are UDP ports of their services, too.
    pub http3: bool,
    /// All proxies accept HTTP/1.0, not only those that report it.
    pub http10: bool,
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

impl MeshSettings {
    /// The id of a cluster, given as in keys (empty for the configuration cluster).
    pub fn cluster_id_of<'a>(&'a self, cluster: &'a Arc<str>) -> &'a Arc<str> {
        if cluster.is_empty() { &self.cluster_id } else { cluster }
    }

    /// A cluster as in keys, from its id.
    pub fn cluster_of_id(&self, id: &Arc<str>) -> Arc<str> {
        if *id == self.cluster_id {
            Arc::default()
        } else {
            id.clone()
        }
    }
}

/// A cluster (empty for the configuration cluster) and the name of a cluster-scoped object.
pub type ClusterName = (Arc<str>, Arc<str>);

/// Identifies a connected proxy; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProxyToken(pub u64);

flow::input! {
    /// `Service`, `ServiceEntry` and `ServiceImport` objects.
    pub ServiceObjects: ServiceObjectKey => ServiceObject = "service objects";
    /// `Pod` and `WorkloadEntry` objects.
    pub WorkloadObjects: WorkloadObjectKey => WorkloadObject = "workload objects";
    /// `ServiceExport` objects.
    pub ServiceExports: SourceId => Arc<Object<ServiceExport>> = "service exports";
    /// `EndpointSlice` objects.
    pub EndpointSlices: SourceId => Arc<Object<EndpointSlice>> = "endpoint slices";
    /// `Node` objects.
    pub Nodes: ClusterName => Arc<Object<Node>> = "nodes";
    /// `Namespace` objects.
    pub Namespaces: ClusterName => Arc<Object<Namespace>> = "namespaces";
    /// `WorkloadGroup` objects.
    pub WorkloadGroups: ObjectId => Arc<Object<WorkloadGroup>> = "workload groups";
    /// `Gateway`, `VirtualService` and `Ingress` objects.
    pub RoutingObjects: RoutingKey => RoutingObject = "routing objects";
    /// `IngressClass` objects, by name.
    pub IngressClasses: Arc<str> => Arc<Object<IngressClass>> = "ingress classes";
    /// `DestinationRule` objects.
    pub DestinationRules: ObjectId => Arc<Object<DestinationRule>> = "destination rules";
    /// `Sidecar` objects.
    pub Sidecars: ObjectId => Arc<Object<Sidecar>> = "sidecars";
    /// `EnvoyFilter` objects.
    pub EnvoyFilters: ObjectId => Arc<Object<EnvoyFilter>> = "envoy filters";
    /// `ProxyConfig` objects.
    pub ProxyConfigs: ObjectId => Arc<Object<ProxyConfig>> = "proxy configs";
    /// `PeerAuthentication` objects.
    pub PeerAuthentications: ObjectId => Arc<Object<PeerAuthentication>> = "peer authentications";
    /// Environment variables of the control plane that mesh-wide settings refer to.
    pub Environment: Arc<str> => Hidden = "environment";
    /// Mesh-wide settings; always present.
    pub Mesh: () => Arc<MeshSettings> = "mesh";
    /// The networks of the mesh, if configured.
    pub Networks: () => Arc<Object<MeshNetworks>> = "mesh networks";
    /// `Gateway` objects of the Gateway API.
    pub KubeGateways: SourceId => Arc<Object<KubeGateway>> = "gateways of the gateway api";
    /// Resolved addresses of hostnames, ascending.
    pub HostAddresses: Arc<str> => Arc<[IpAddr]> = "addresses of hosts";
    /// `Secret` and `ConfigMap` objects.
    pub Credentials: CredentialKey => CredentialObject = "credentials";
    /// Connected proxies.
    pub Proxies: ProxyToken => Arc<Proxy> = "proxies";
}

/// Declares the tables.
pub(crate) fn register(b: &mut flow::Builder) {
    b.input::<Mesh>();
    b.input::<Networks>();
    b.input::<Namespaces>();
    b.input::<Nodes>();
    b.input::<ServiceObjects>();
    b.input::<WorkloadObjects>();
    b.input::<EndpointSlices>();
    b.input::<ServiceExports>();
    b.input::<WorkloadGroups>();
    b.input::<KubeGateways>();
    b.input::<HostAddresses>();
    b.input::<RoutingObjects>();
    b.input::<IngressClasses>();
    b.input::<DestinationRules>();
    b.input::<Sidecars>();
    b.input::<Credentials>();
    b.input::<EnvoyFilters>();
    b.input::<ProxyConfigs>();
    b.input::<PeerAuthentications>();
    b.input::<Environment>();
    b.input::<Proxies>();
}
