//! Objects: what every kind has in common, and the sum of all kinds.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::core::{EndpointSlice, Namespace, Node, Pod, Service};
use crate::istio::{DestinationRule, Gateway, ServiceEntry, Sidecar, VirtualService, WorkloadEntry, WorkloadGroup};
use crate::mesh::MeshConfig;
use crate::time::Timestamp;

/// Labels or annotations, ordered.
pub type StringMap = BTreeMap<Arc<str>, Arc<str>>;

/// What names an object: its kind, its namespace (empty for kinds without one) and its name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ObjectKey {
    /// The kind, whatever its API version.
    pub kind: Kind,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of these parts.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> ObjectKey {
        ObjectKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    /// `VirtualService default/reviews`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return write!(f, "{} {}", self.kind, self.name);
        }
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
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
}

impl Meta {
    /// Metadata with a name and nothing else.
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Meta {
        Meta {
            kind,
            namespace: namespace.into(),
            name: name.into(),
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
        }
    }

    /// The key that this metadata names.
    pub fn key(&self) -> ObjectKey {
        ObjectKey {
            kind: self.kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
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
    /// Kept for the kinds of Istio only.
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

/// One row per kind: name, content, API group, versions that are read, whether it lives in a namespace.
macro_rules! kinds {
    ($( $kind:ident, $group:literal, [$($version:literal),+], $scope:ident; )*) => {
        /// The kinds that are read. All versions of a kind are one.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Kind { $(#[doc = concat!("`", stringify!($kind), "` of the API group \"", $group, "\".")] $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// The name in the field `kind`.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$kind => stringify!($kind),)* }
            }

            /// The API group; empty for the core group.
            pub const fn group(self) -> &'static str {
                match self { $(Kind::$kind => $group,)* }
            }

            /// The API versions that are read, the preferred one first.
            pub const fn versions(self) -> &'static [&'static str] {
                match self { $(Kind::$kind => &[$($version,)+],)* }
            }

            /// Whether objects of the kind live in a namespace.
            pub const fn is_namespaced(self) -> bool {
                match self { $(Kind::$kind => kinds!(@scope $scope),)* }
            }
        }

        /// An object of any kind. Cheap to clone.
        #[derive(Clone, PartialEq, Debug)]
        pub enum AnyObject { $(#[doc = concat!("A ", stringify!($kind), ".")] $kind(Arc<Object<$kind>>),)* }

        impl AnyObject {
            /// The object's metadata.
            pub fn meta(&self) -> &Meta {
                match self { $(AnyObject::$kind(object) => &object.meta,)* }
            }

            /// The content in JSON as Istio writes it, fields left out that are at their default. For the core kinds it
            /// has the fields of the type, which are not all of what Kubernetes has.
            pub fn spec_json(&self) -> serde_json::Value {
                match self { $(AnyObject::$kind(object) => crate::decode::Decode::encode(&object.spec),)* }
            }

            /// The object as it was written, where that is kept ([`Object::raw`]).
            pub fn raw(&self) -> Option<&Arc<str>> {
                match self { $(AnyObject::$kind(object) => object.raw.as_ref(),)* }
            }
        }

        $(impl Resource for $kind {
            const KIND: Kind = Kind::$kind;

            fn from_any(any: &AnyObject) -> Option<&Arc<Object<$kind>>> {
                match any { AnyObject::$kind(object) => Some(object), _ => None }
            }

            fn into_any(object: Arc<Object<$kind>>) -> AnyObject {
                AnyObject::$kind(object)
            }
        })*
    };
    (@scope namespaced) => { true };
    (@scope cluster) => { false };
}

kinds! {
    ServiceEntry, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    WorkloadEntry, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    WorkloadGroup, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    VirtualService, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    DestinationRule, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    Gateway, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    Sidecar, "networking.istio.io", ["v1", "v1beta1", "v1alpha3"], namespaced;
    Service, "", ["v1"], namespaced;
    EndpointSlice, "discovery.k8s.io", ["v1"], namespaced;
    Pod, "", ["v1"], namespaced;
    Node, "", ["v1"], cluster;
    Namespace, "", ["v1"], cluster;
    MeshConfig, "mesh.istio.io", ["v1alpha1"], cluster;
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

    /// Whether it is one of Istio's kinds, whose unknown fields are reported.
    pub const fn is_istio(self) -> bool {
        !matches!(
            self,
            Kind::Service | Kind::EndpointSlice | Kind::Pod | Kind::Node | Kind::Namespace
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
