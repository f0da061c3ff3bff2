//! Objects: metadata, keys, and the enumeration of all kinds.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::decode::{Decode, Decoder};
use crate::problem::Segment;
use crate::schema::Schema;
use crate::time::Timestamp;
use crate::yaml::Node;
use crate::{core, gateway_api, istio, mesh, multicluster};

/// Labels or annotations, ordered.
pub type StringMap = BTreeMap<Arc<str>, Arc<str>>;

/// Hosts and their assigned addresses.
pub type AssignedAddresses = Vec<(Arc<str>, IpAddr)>;

/// The part of a status that is read, because it affects the meaning of the object.
#[derive(Clone, PartialEq, Debug)]
pub enum StatusPart {
    /// Addresses that a controller assigned to the hosts of a ServiceEntry (`status.addresses`).
    Addresses(AssignedAddresses),
    /// Whether the condition `Healthy` of a WorkloadEntry is `True`; it is `False` otherwise.
    Healthy(bool),
}

/// Identifies an object: kind, namespace (empty for cluster-scoped kinds), name and cluster.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectKey {
    /// The kind, independent of the API version.
    pub kind: Kind,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The remote cluster that the object is from; empty for the config cluster. Only services, EndpointSlices, Pods,
    /// Nodes and Namespaces come from remote clusters.
    pub cluster: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in the config cluster.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey { kind, namespace: namespace.into(), name: name.into(), cluster: Arc::default() }
    }

    /// The key of the same object in another cluster.
    pub fn in_cluster(self, cluster: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey { cluster: cluster.into(), ..self }
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

/// The location of an object in a file.
///
/// Origins are equal if the files are equal: moving an object within its file does not change it. The line is that of
/// the last change of the object.
#[derive(Clone, Eq, Debug)]
pub struct Origin {
    /// The name of the file, from the source.
    pub file: Arc<str>,
    /// The line of the first key of the object, 1-based.
    pub line: u32,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Origin) -> bool {
        self.file == other.file
    }
}

/// The metadata of an object that a mesh uses.
#[derive(Clone, PartialEq, Debug)]
pub struct Meta {
    /// The kind of the object.
    pub kind: Kind,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// The name, unique for the kind and namespace.
    pub name: Arc<str>,
    /// The cluster, as in [`ObjectKey::cluster`]. It is not a field of the object.
    pub cluster: Arc<str>,
    /// `labels`.
    pub labels: StringMap,
    /// `annotations`.
    pub annotations: StringMap,
    /// `creationTimestamp`. Objects in files often have none. Use [`Meta::by_age`] to sort.
    pub creation_timestamp: Option<Timestamp>,
    /// `deletionTimestamp`, set while the object is being deleted.
    pub deletion_timestamp: Option<Timestamp>,
    /// `resourceVersion`, opaque.
    pub resource_version: Arc<str>,
    /// `generation`; 0 if the source has none.
    pub generation: i64,
    /// `uid`.
    pub uid: Arc<str>,
    /// `generateName`: the prefix of the generated name.
    pub generate_name: Arc<str>,
    /// The owner that controls the object, from `ownerReferences`.
    pub owner: Option<Owner>,
    /// The location in a file, for sources that read files.
    pub origin: Option<Origin>,
    /// The part of the status that is read.
    pub status: Option<Arc<StatusPart>>,
}

impl Meta {
    /// Metadata with kind, namespace and name.
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
            status: None,
        }
    }

    /// The key of the object.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            cluster: self.cluster.clone(),
        }
    }

    /// The assigned addresses of a ServiceEntry.
    pub fn assigned(&self) -> Option<&AssignedAddresses> {
        match self.status.as_deref()? {
            StatusPart::Addresses(addresses) => Some(addresses),
            StatusPart::Healthy(_) => None,
        }
    }

    /// The health of a WorkloadEntry, if it was reported.
    pub fn healthy(&self) -> Option<bool> {
        match self.status.as_deref()? {
            StatusPart::Healthy(healthy) => Some(*healthy),
            StatusPart::Addresses(_) => None,
        }
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|v| &**v)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|v| &**v)
    }

    /// Istio's order of precedence: by age with the oldest first, then by name, then by namespace. Objects without a
    /// creation time precede others.
    pub fn by_age(&self, other: &Meta) -> Ordering {
        (self.creation_timestamp.cmp(&other.creation_timestamp))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.namespace.cmp(&other.namespace))
    }
}

/// The controller of an object, such as the ReplicaSet of a Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The kind of the controller.
    pub kind: Arc<str>,
    /// The name of the controller.
    pub name: Arc<str>,
}

/// An object: metadata and content.
#[derive(Clone, PartialEq, Debug)]
pub struct Object<S> {
    /// The metadata.
    pub meta: Meta,
    /// The content. For core kinds it includes status fields.
    pub spec: S,
    /// The original object as compact JSON without `status` and `managedFields`, for display. Only for complete kinds
    /// ([`Kind::is_complete`]).
    pub raw: Option<Arc<str>>,
}

impl<S: Resource> Object<S> {
    /// An object without an original.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>, spec: S) -> Object<S> {
        Object { meta: Meta::new(S::KIND, namespace, name), spec, raw: None }
    }
}

impl<S> Object<S> {
    /// The object's key.
    pub fn key(&self) -> ObjectKey {
        self.meta.key()
    }
}

/// The content of a kind of object.
pub trait Resource: Clone + PartialEq + fmt::Debug + Send + Sync + Sized + 'static {
    /// The kind.
    const KIND: Kind;

    /// The object, if it has this kind.
    fn from_any(any: &AnyObject) -> Option<&Arc<Object<Self>>>;

    /// Wraps the object.
    fn into_any(object: Arc<Object<Self>>) -> AnyObject;
}

/// The content of a kind in an object.
pub(crate) trait Content: Resource + Decode {
    /// Decodes the content. Returns none only after it reported a problem. Most kinds have it in `spec`.
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Self> {
        cx.within(Segment::Field("spec".into()), |cx| Decode::decode(&spec_of(root), cx))
    }
}

/// The content of `spec`. An object without it has an empty one.
pub(crate) fn spec_of(root: &Node) -> Cow<'_, Node> {
    let spec = root.get("spec").filter(|spec| !spec.is_null());
    spec.map_or_else(|| Cow::Owned(Node::empty(root.at)), Cow::Borrowed)
}

/// One row per kind: variant, name, content type, API group, versions, scope, the type of the status if the kind has its
/// own, and `in parts` if its content is not just `spec` (see [`Content`]).
macro_rules! kinds {
    ($( $kind:ident, $name:literal, $content:path, $group:literal, [$($version:literal),+], $scope:ident
        $(, status $status:path)? $(, in $located:ident)?; )*) => {
        /// The kinds that the mesh reads, independent of the API version.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Kind { $(#[doc = concat!("`", $name, "` of the API group \"", $group, "\".")] $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The name in the field `kind`. Two kinds are named Gateway, in different groups.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// The API group; empty for the core group.
            pub const fn group(self) -> &'static str {
                match self { $(Kind::$kind => $group,)* }
            }

            /// The supported API versions, the preferred one first.
            pub const fn versions(self) -> &'static [&'static str] {
                match self { $(Kind::$kind => &[$($version,)+],)* }
            }

            /// The schema of the content. For core kinds it has only the fields that the mesh reads.
            pub fn content_schema(self) -> Arc<Schema> {
                match self { $(Kind::$kind => <$content as Decode>::schema(),)* }
            }

            /// The schema of the status, if the kind has its own.
            pub(crate) fn status_schema(self) -> Option<Arc<Schema>> {
                match self { $(Kind::$kind => kinds!(@status $($status)?),)* }
            }

            /// Whether the kind is namespaced.
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

            /// The object's metadata, to change it. If others share the object, they keep it as it was.
            pub fn meta_mut(&mut self) -> &mut Meta {
                match self { $(AnyObject::$kind(object) => &mut Arc::make_mut(object).meta,)* }
            }

            /// The same object in this cluster ([`Meta::cluster`]).
            pub fn in_cluster(mut self, cluster: &str) -> AnyObject {
                if *self.meta().cluster != *cluster {
                    self.meta_mut().cluster = cluster.into();
                }
                self
            }

            /// The content as JSON in Istio's format, without fields that have their default value. For core kinds it
            /// has only the fields that the mesh reads.
            pub fn spec_json(&self) -> serde_json::Value {
                match self { $(AnyObject::$kind(object) => Decode::encode(&object.spec),)* }
            }

            /// The original object, if kept ([`Object::raw`]).
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

        $( kinds!(@content $content $(, $located)?); )*

        /// A generic operation on the content type of a kind that is known only at run time.
        pub(crate) trait WithContent {
            /// The result.
            type Output;

            /// Runs the operation.
            fn run<S: Content>(self) -> Self::Output;
        }

        impl Kind {
            /// Runs an operation with the content type of the kind.
            pub(crate) fn with_content<W: WithContent>(self, work: W) -> W::Output {
                match self { $(Kind::$kind => work.run::<$content>(),)* }
            }
        }
    };
    (@content $content:path) => { impl Content for $content {} };
    (@content $content:path, parts) => {};
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
    XMesh, "XMesh", gateway_api::XMesh, "gateway.networking.x-k8s.io", ["v1alpha1"], cluster,
        status gateway_api::status::MeshStatus;
    InferencePool, "InferencePool", gateway_api::InferencePool, "inference.networking.k8s.io", ["v1"], namespaced,
        status gateway_api::inference_pool::InferencePoolStatus;
    ServiceExport, "ServiceExport", multicluster::ServiceExport, "multicluster.x-k8s.io", ["v1alpha1"], namespaced;
    ServiceImport, "ServiceImport", multicluster::ServiceImport, "multicluster.x-k8s.io", ["v1alpha1"], namespaced;
    Service, "Service", core::Service, "", ["v1"], namespaced, in parts;
    EndpointSlice, "EndpointSlice", core::EndpointSlice, "discovery.k8s.io", ["v1"], namespaced, in parts;
    Pod, "Pod", core::Pod, "", ["v1"], namespaced, in parts;
    Node, "Node", core::Node, "", ["v1"], cluster, in parts;
    Namespace, "Namespace", core::Namespace, "", ["v1"], cluster, in parts;
    Ingress, "Ingress", core::Ingress, "networking.k8s.io", ["v1"], namespaced, in parts;
    IngressClass, "IngressClass", core::IngressClass, "networking.k8s.io", ["v1"], cluster, in parts;
    Secret, "Secret", core::Secret, "", ["v1"], namespaced, in parts;
    ConfigMap, "ConfigMap", core::ConfigMap, "", ["v1"], namespaced, in parts;
    MeshConfig, "MeshConfig", mesh::MeshConfig, "mesh.istio.io", ["v1alpha1"], cluster, in parts;
    MeshNetworks, "MeshNetworks", mesh::MeshNetworks, "mesh.istio.io", ["v1alpha1"], cluster;
}

impl Kind {
    /// The kind with this group and name.
    pub fn find(group: &str, name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|k| k.name() == name && k.group() == group)
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

    /// Whether it is a route of the Gateway API.
    pub const fn is_route(self) -> bool {
        matches!(self, Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute)
    }

    /// Whether it is a settings kind, which has one instance and is not served by API servers.
    pub const fn is_setting(self) -> bool {
        matches!(self, Kind::MeshConfig | Kind::MeshNetworks)
    }

    /// Whether the Rust type has every field of the kind. If so, unknown fields are reported, and the original object
    /// is kept. The types of core kinds have only the fields that a mesh reads.
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

    /// Whether its objects may contain secrets of proxies, which must not be shown.
    pub const fn is_credential(self) -> bool {
        matches!(self, Kind::Secret | Kind::ConfigMap)
    }
}

impl fmt::Display for Kind {
    /// The name, with the group if another kind has the same name.
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
