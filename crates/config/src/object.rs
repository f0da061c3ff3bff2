//! Objects: what every kind has in common, and the sum of all kinds.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::decode::Decode;
use crate::parse::Content;
use crate::schema::Schema;
use crate::time::Timestamp;
use crate::{core, gateway_api, istio, mesh, multicluster};

/// Labels or annotations, ordered.
pub type StringMap = BTreeMap<Arc<str>, Arc<str>>;

/// Hosts and the addresses that they were given, as they are written.
pub type AssignedAddresses = Vec<(Arc<str>, IpAddr)>;

/// What names an object: its kind, its namespace (empty for kinds without one), its name, and the cluster that it is in.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectKey {
    /// The kind, whatever its API version.
    pub kind: Kind,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The cluster that the object was read from; empty for the home of the configuration. Only workloads and what
    /// describes them (services, slices, pods, nodes, namespaces) come from other clusters.
    pub cluster: Arc<str>,
}

impl ObjectKey {
    /// The key of these parts, at home.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            cluster: Arc::default(),
        }
    }

    /// The same object of another cluster.
    pub fn in_cluster(self, cluster: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey {
            cluster: cluster.into(),
            ..self
        }
    }
}

impl fmt::Display for ObjectKey {
    /// `VirtualService default/reviews`, `Pod default/reviews-1 (cluster west)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => write!(f, "{} {}", self.kind, self.name)?,
            false => write!(f, "{} {}/{}", self.kind, self.namespace, self.name)?,
        }
        match self.cluster.is_empty() {
            true => Ok(()),
            false => write!(f, " (cluster {})", self.cluster),
        }
    }
}

/// Where an object was written.
///
/// Two origins are equal when the file is: that an object moved within its file is no change of the object, so the line
/// is where it stood when it last changed.
#[derive(Clone, Eq, Debug)]
pub struct Origin {
    /// The file, as the source names it.
    pub file: Arc<str>,
    /// The line of the object's first key, counted from 1.
    pub line: u32,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        self.file == other.file
    }
}

/// The metadata of an object, as far as a mesh uses it.
#[derive(Clone, PartialEq, Debug)]
pub struct Meta {
    /// The kind of object that this describes.
    pub kind: Kind,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: Arc<str>,
    /// The name, unique among the objects of its kind and namespace.
    pub name: Arc<str>,
    /// The cluster that it was read from, as in [`ObjectKey::cluster`]; it is no field of the object.
    pub cluster: Arc<str>,
    /// `labels`.
    pub labels: StringMap,
    /// `annotations`.
    pub annotations: StringMap,
    /// `creationTimestamp`; files often have none. Use [`Meta::by_age`] to sort.
    pub creation_timestamp: Option<Timestamp>,
    /// `deletionTimestamp`: set once the object is on its way out.
    pub deletion_timestamp: Option<Timestamp>,
    /// `resourceVersion`, opaque.
    pub resource_version: Arc<str>,
    /// `generation`; 0 where the source has none.
    pub generation: i64,
    /// `uid`.
    pub uid: Arc<str>,
    /// `generateName`: the prefix that the name was made from.
    pub generate_name: Arc<str>,
    /// The owner that controls the object, from `ownerReferences`.
    pub owner: Option<Owner>,
    /// The file that it came from, for sources that have files.
    pub origin: Option<Origin>,
    /// Addresses that a controller gave the hosts of a ServiceEntry (`status.addresses`). They are here, and the rest of the
    /// status nowhere, because they are part of what the entry means.
    pub assigned: Option<Arc<AssignedAddresses>>,
}

impl Meta {
    /// Metadata with a name and nothing else.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Meta {
        Meta {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            cluster: Arc::default(),
            labels: StringMap::new(),
            annotations: StringMap::new(),
            creation_timestamp: None,
            deletion_timestamp: None,
            resource_version: "".into(),
            generation: 0,
            uid: "".into(),
            generate_name: "".into(),
            owner: None,
            origin: None,
            assigned: None,
        }
    }

    /// The key that this metadata names.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            cluster: self.cluster.clone(),
        }
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|v| &**v)
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|v| &**v)
    }

    /// The order in which Istio lets objects win: the oldest first, then by name, then by namespace. Objects without a
    /// creation time count as older than those with one, and the name decides among them.
    pub fn by_age(&self, other: &Meta) -> Ordering {
        (self.creation_timestamp.cmp(&other.creation_timestamp))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.namespace.cmp(&other.namespace))
    }
}

/// The controller of an object, such as the ReplicaSet of a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The controller's kind.
    pub kind: Arc<str>,
    /// The controller's name.
    pub name: Arc<str>,
}

/// One object: metadata and what its kind says.
#[derive(Clone, PartialEq, Debug)]
pub struct Object<S> {
    /// The metadata.
    pub meta: Meta,
    /// The content. For the core kinds status fields are in here, too.
    pub spec: S,
    /// The object as it was written, as compact JSON (`status` and `managedFields` left out), for those who show it.
    /// Kept for kinds whose type has every field ([`Kind::is_complete`]).
    pub raw: Option<Arc<str>>,
}

impl<S: Resource> Object<S> {
    /// An object that was not written by a user.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>, spec: S) -> Object<S> {
        Object {
            meta: Meta::new(S::KIND, namespace, name),
            spec,
            raw: None,
        }
    }
}

impl<S> Object<S> {
    /// The object's key.
    pub fn key(&self) -> ObjectKey {
        self.meta.key()
    }
}

/// The content of one kind of object.
pub trait Resource: Clone + PartialEq + fmt::Debug + Send + Sync + Sized + 'static {
    /// The kind that it is the content of.
    const KIND: Kind;

    /// The object inside, if it is one of this kind.
    fn from_any(any: &AnyObject) -> Option<&Arc<Object<Self>>>;

    /// The object as one of all kinds.
    fn into_any(object: Arc<Object<Self>>) -> AnyObject;
}

/// One row per kind: what the code calls it, its name, its content, API group, versions that are read, whether it lives in a
/// namespace, and the type of its status where that is one of its own.
macro_rules! kinds {
    ($( $kind:ident, $name:literal, $content:path, $group:literal, [$($version:literal),+], $scope:ident
        $(, status $status:path)?; )*) => {
        /// The kinds that are read. All versions of a kind are one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Kind { $(#[doc = concat!("`", $name, "` of the API group \"", $group, "\".")] $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The name in the field `kind`. Two kinds are named Gateway; their groups differ.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// The API group; empty for the core group.
            pub const fn group(self) -> &'static str {
                match self { $(Kind::$kind => $group,)* }
            }

            /// The API versions that are read, the preferred one first.
            pub const fn versions(self) -> &'static [&'static str] {
                match self { $(Kind::$kind => &[$($version,)+],)* }
            }

            /// The schema of the content.
            pub(crate) fn spec_schema(self) -> Arc<Schema> {
                match self { $(Kind::$kind => <$content as Decode>::schema(),)* }
            }

            /// The schema of the content as this crate reads it: for the core kinds, of the fields of their types.
            pub fn content_schema(self) -> Arc<Schema> {
                self.spec_schema()
            }

            /// The schema of the status, where the kind has one of its own.
            pub(crate) fn status_schema(self) -> Option<Arc<Schema>> {
                match self { $(Kind::$kind => kinds!(@status $($status)?),)* }
            }

            /// Whether objects of the kind live in a namespace.
            pub const fn is_namespaced(self) -> bool {
                match self { $(Kind::$kind => kinds!(@scope $scope),)* }
            }
        }

        /// An object of any kind. Cheap to clone.
        #[derive(Clone, PartialEq, Debug)]
        pub enum AnyObject { $(#[doc = concat!("An object of the kind ", $name, ".")] $kind(Arc<Object<$content>>),)* }

        impl AnyObject {
            /// The object's metadata.
            pub fn meta(&self) -> &Meta {
                match self { $(AnyObject::$kind(object) => &object.meta,)* }
            }

            /// The same object as one of this cluster ([`Meta::cluster`]).
            pub fn in_cluster(self, cluster: &str) -> AnyObject {
                match self { $(AnyObject::$kind(mut object) => {
                    if *object.meta.cluster != *cluster {
                        Arc::make_mut(&mut object).meta.cluster = cluster.into();
                    }
                    AnyObject::$kind(object)
                })* }
            }

            /// The content in JSON as Istio writes it, fields left out that are at their default. For the core kinds it
            /// has the fields of the type, which are not all of what Kubernetes has.
            pub fn spec_json(&self) -> serde_json::Value {
                match self { $(AnyObject::$kind(object) => Decode::encode(&object.spec),)* }
            }

            /// The object as it was written, where that is kept ([`Object::raw`]).
            pub fn raw(&self) -> Option<&Arc<str>> {
                match self { $(AnyObject::$kind(object) => object.raw.as_ref(),)* }
            }
        }

        $(impl Resource for $content {
            const KIND: Kind = Kind::$kind;

            fn from_any(any: &AnyObject) -> Option<&Arc<Object<$content>>> {
                match any { AnyObject::$kind(object) => Some(object), _ => None }
            }

            fn into_any(object: Arc<Object<$content>>) -> AnyObject {
                AnyObject::$kind(object)
            }
        })*

        /// Does something with the content type of a kind that is known at run time only.
        pub(crate) trait WithContent {
            /// What comes of it.
            type Output;

            /// Does it.
            fn run<S: Content>(self) -> Self::Output;
        }

        impl Kind {
            /// Runs with the kind's content type.
            pub(crate) fn with_content<W: WithContent>(self, work: W) -> W::Output {
                match self { $(Kind::$kind => work.run::<$content>(),)* }
            }
        }
    };
    (@scope namespaced) => { true };
    (@scope cluster) => { false };
    (@status) => { None };
    (@status $status:path) => { Some(<$status as Decode>::schema()) };
}

kinds! {
    ServiceEntry, "ServiceEntry", istio::ServiceEntry, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    WorkloadEntry, "WorkloadEntry", istio::WorkloadEntry, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    WorkloadGroup, "WorkloadGroup", istio::WorkloadGroup, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    VirtualService, "VirtualService", istio::VirtualService, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    DestinationRule, "DestinationRule", istio::DestinationRule, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    Gateway, "Gateway", istio::Gateway, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    Sidecar, "Sidecar", istio::Sidecar, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    EnvoyFilter, "EnvoyFilter", istio::EnvoyFilter, "networking.istio.io", ["v1alpha3"], namespaced;
    ProxyConfig, "ProxyConfig", istio::ProxyConfig, "networking.istio.io", ["v1beta1"], namespaced;
    AuthorizationPolicy, "AuthorizationPolicy", istio::AuthorizationPolicy, "security.istio.io", ["v1", "v1beta1"], namespaced;
    PeerAuthentication, "PeerAuthentication", istio::PeerAuthentication, "security.istio.io", ["v1", "v1beta1"], namespaced;
    RequestAuthentication, "RequestAuthentication", istio::RequestAuthentication, "security.istio.io", ["v1", "v1beta1"], namespaced;
    Telemetry, "Telemetry", istio::Telemetry, "telemetry.istio.io", ["v1", "v1alpha1"], namespaced;
    WasmPlugin, "WasmPlugin", istio::WasmPlugin, "extensions.istio.io", ["v1alpha1"], namespaced;
    TrafficExtension, "TrafficExtension", istio::TrafficExtension, "extensions.istio.io", ["v1alpha1"], namespaced;
    GatewayClass, "GatewayClass", gateway_api::GatewayClass, "gateway.networking.k8s.io", ["v1", "v1beta1"], cluster,
        status gateway_api::status::GatewayClassStatus;
    KubeGateway, "Gateway", gateway_api::Gateway, "gateway.networking.k8s.io", ["v1", "v1beta1"], namespaced,
        status gateway_api::status::GatewayStatus;
    ListenerSet, "ListenerSet", gateway_api::ListenerSet, "gateway.networking.k8s.io", ["v1"], namespaced,
        status gateway_api::status::ListenerSetStatus;
    HttpRoute, "HTTPRoute", gateway_api::HttpRoute, "gateway.networking.k8s.io", ["v1", "v1beta1"], namespaced,
        status gateway_api::status::RouteStatus;
    GrpcRoute, "GRPCRoute", gateway_api::GrpcRoute, "gateway.networking.k8s.io", ["v1"], namespaced,
        status gateway_api::status::RouteStatus;
    TlsRoute, "TLSRoute", gateway_api::TlsRoute, "gateway.networking.k8s.io", ["v1", "v1alpha3", "v1alpha2"], namespaced,
        status gateway_api::status::RouteStatus;
    TcpRoute, "TCPRoute", gateway_api::TcpRoute, "gateway.networking.k8s.io", ["v1", "v1alpha2"], namespaced,
        status gateway_api::status::RouteStatus;
    UdpRoute, "UDPRoute", gateway_api::UdpRoute, "gateway.networking.k8s.io", ["v1", "v1alpha2"], namespaced,
        status gateway_api::status::RouteStatus;
    ReferenceGrant, "ReferenceGrant", gateway_api::ReferenceGrant, "gateway.networking.k8s.io", ["v1", "v1beta1"], namespaced;
    BackendTlsPolicy, "BackendTLSPolicy", gateway_api::BackendTlsPolicy, "gateway.networking.k8s.io", ["v1", "v1alpha3"], namespaced,
        status gateway_api::status::PolicyStatus;
    BackendTrafficPolicy, "XBackendTrafficPolicy", gateway_api::BackendTrafficPolicy, "gateway.networking.x-k8s.io", ["v1alpha1"], namespaced,
        status gateway_api::status::PolicyStatus;
    InferencePool, "InferencePool", gateway_api::InferencePool, "inference.networking.k8s.io", ["v1"], namespaced,
        status gateway_api::inference_pool::InferencePoolStatus;
    ServiceExport, "ServiceExport", multicluster::ServiceExport, "multicluster.x-k8s.io", ["v1alpha1"], namespaced;
    ServiceImport, "ServiceImport", multicluster::ServiceImport, "multicluster.x-k8s.io", ["v1alpha1"], namespaced;
    Service, "Service", core::Service, "", ["v1"], namespaced;
    EndpointSlice, "EndpointSlice", core::EndpointSlice, "discovery.k8s.io", ["v1"], namespaced;
    Pod, "Pod", core::Pod, "", ["v1"], namespaced;
    Node, "Node", core::Node, "", ["v1"], cluster;
    Namespace, "Namespace", core::Namespace, "", ["v1"], cluster;
    Ingress, "Ingress", core::Ingress, "networking.k8s.io", ["v1"], namespaced;
    IngressClass, "IngressClass", core::IngressClass, "networking.k8s.io", ["v1"], cluster;
    Secret, "Secret", core::Secret, "", ["v1"], namespaced;
    ConfigMap, "ConfigMap", core::ConfigMap, "", ["v1"], namespaced;
    MeshConfig, "MeshConfig", mesh::MeshConfig, "mesh.istio.io", ["v1alpha1"], cluster;
    MeshNetworks, "MeshNetworks", mesh::MeshNetworks, "mesh.istio.io", ["v1alpha1"], cluster;
}

impl Kind {
    /// The kind with this group and name.
    pub fn find(group: &str, name: &str) -> Option<Kind> {
        Kind::ALL
            .iter()
            .copied()
            .find(|k| k.name() == name && k.group() == group)
    }

    /// The preferred `apiVersion`: `GROUP/VERSION`, or `VERSION` for the core group.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.versions()[0].to_owned(),
            group => format!("{group}/{}", self.versions()[0]),
        }
    }

    /// Whether it is one of Istio's kinds.
    pub fn is_istio(self) -> bool {
        self.group().ends_with("istio.io")
    }

    /// Whether it is a setting of the mesh, of which there is one, and no object of an API server.
    pub const fn is_setting(self) -> bool {
        matches!(self, Kind::MeshConfig | Kind::MeshNetworks)
    }

    /// Whether its type has every field of the kind, so that others are reported, and the object as it was written is kept.
    /// Of the core kinds the types have what a mesh reads.
    pub const fn is_complete(self) -> bool {
        !matches!(
            self,
            Kind::Service
                | Kind::EndpointSlice
                | Kind::Pod
                | Kind::Node
                | Kind::Namespace
                | Kind::ServiceExport
                | Kind::ServiceImport
                | Kind::Ingress
                | Kind::IngressClass
                | Kind::Secret
                | Kind::ConfigMap
        )
    }

    /// Whether its objects may hold what proxies get as secrets: they are shown to nobody else.
    pub const fn is_credential(self) -> bool {
        matches!(self, Kind::Secret | Kind::ConfigMap)
    }
}

impl fmt::Display for Kind {
    /// The name; with its group where another kind has the same name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::KubeGateway => write!(f, "{}.{}", self.name(), self.group()),
            _ => f.write_str(self.name()),
        }
    }
}

impl AnyObject {
    /// The object's key.
    pub fn key(&self) -> ObjectKey {
        self.meta().key()
    }

    /// The object's kind.
    pub fn kind(&self) -> Kind {
        self.meta().kind
    }
}

impl<S: Resource> From<Object<S>> for AnyObject {
    fn from(object: Object<S>) -> AnyObject {
        S::into_any(Arc::new(object))
    }
}
