//! What is served: resource types, versions and encoded resources.
//!
//! A resource is encoded once; its bytes are shared by every stream that gets it. Its version is the hash of its bytes,
//! so that two replicas that derived the same configuration agree on it without talking to each other.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The kinds of resources that the aggregated discovery service serves, in the order in which they are sent
/// (make before break: what is referred to goes before what refers to it).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ResourceType {
    /// `envoy.config.cluster.v3.Cluster` (CDS); subscribed as a whole.
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment` (EDS); subscribed by name.
    Endpoints,
    /// `envoy.config.endpoint.v3.LbEndpoint` (LEDS): the endpoints of a locality of a large cluster, singly; a client
    /// subscribes to the collection that the assignment names (`…/*`).
    LbEndpoint,
    /// `envoy.config.listener.v3.Listener` (LDS); subscribed as a whole.
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration` (RDS); subscribed by name.
    Route,
    /// `envoy.config.route.v3.VirtualHost` (VHDS): the virtual hosts of a route table, singly; a client subscribes to the
    /// table by its name, and to all that is in it so.
    VirtualHost,
    /// `envoy.extensions.transport_sockets.tls.v3.Secret` (SDS); subscribed by name.
    Secret,
    /// `envoy.config.core.v3.TypedExtensionConfig` (ECDS): a filter's configuration; subscribed by name.
    Extension,
    /// `istio.networking.nds.v1.NameTable` (NDS): what agents answer DNS queries from; one resource, subscribed as a whole.
    NameTable,
}

impl ResourceType {
    /// How many types there are.
    pub const COUNT: usize = 9;

    /// All types, in sending order.
    pub const ALL: [ResourceType; ResourceType::COUNT] = [
        ResourceType::Cluster,
        ResourceType::Endpoints,
        ResourceType::LbEndpoint,
        ResourceType::Listener,
        ResourceType::Route,
        ResourceType::VirtualHost,
        ResourceType::Secret,
        ResourceType::Extension,
        ResourceType::NameTable,
    ];

    /// The protobuf type URL of the resource.
    pub const fn type_url(self) -> &'static str {
        match self {
            ResourceType::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ResourceType::Endpoints => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            ResourceType::LbEndpoint => "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
            ResourceType::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            ResourceType::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            ResourceType::VirtualHost => "type.googleapis.com/envoy.config.route.v3.VirtualHost",
            ResourceType::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            ResourceType::Extension => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            ResourceType::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
        }
    }

    /// The type with this URL, if it is one that is served.
    pub fn from_type_url(url: &str) -> Option<ResourceType> {
        ResourceType::ALL.into_iter().find(|t| t.type_url() == url)
    }

    /// The short name that debug output, metrics and `istioctl` use: `CDS`, `EDS`, `LEDS`, `LDS`, `RDS`, `VHDS`, `SDS`, `ECDS`,
    /// `NDS`.
    pub const fn short_name(self) -> &'static str {
        match self {
            ResourceType::Cluster => "CDS",
            ResourceType::Endpoints => "EDS",
            ResourceType::LbEndpoint => "LEDS",
            ResourceType::Listener => "LDS",
            ResourceType::Route => "RDS",
            ResourceType::VirtualHost => "VHDS",
            ResourceType::Secret => "SDS",
            ResourceType::Extension => "ECDS",
            ResourceType::NameTable => "NDS",
        }
    }

    /// Whether clients subscribe to collections, by whose names the names of resources begin ([`collection_of`]), and not to
    /// single resources (VHDS, LEDS).
    pub const fn is_collected(self) -> bool {
        matches!(self, ResourceType::VirtualHost | ResourceType::LbEndpoint)
    }

    /// Whether there is a list of what a client gets, so that what is not on it is known to be gone.
    pub const fn is_listed(self) -> bool {
        self.is_wildcard() || self.is_collected()
    }

    /// Whether a client that names no resources means all of them (xDS: wildcard; CDS, LDS and NDS).
    pub const fn is_wildcard(self) -> bool {
        matches!(
            self,
            ResourceType::Cluster | ResourceType::Listener | ResourceType::NameTable
        )
    }
}

/// The collection that a resource belongs to: its name up to the last slash.
pub fn collection_of(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(collection, _)| collection)
}

/// The hash of a resource's bytes. Shown as 16 hexadecimal digits, which is also its form on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// The version of these bytes.
    pub fn of(bytes: &[u8]) -> Version {
        Version(xxhash_rust::xxh3::xxh3_64(bytes))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One encoded resource: the message's bytes, without the `Any` around it. Cloning it copies nothing.
#[derive(Clone)]
pub struct Resource(Arc<Encoded>);

struct Encoded {
    name: Arc<str>,
    version: Version,
    body: Bytes,
    framed: OnceLock<Bytes>,
}

impl Resource {
    /// A resource of this name whose protobuf encoding is `body`.
    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Resource {
        let body = body.into();
        Resource(Arc::new(Encoded {
            name: name.into(),
            version: Version::of(&body),
            body,
            framed: OnceLock::new(),
        }))
    }

    /// The name that clients subscribe to.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The hash of the body.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// The encoded message.
    pub fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// What this resource is in responses: `frame` says it once for all who share the resource, and must say the same
    /// whenever it is asked.
    pub fn framed(&self, frame: impl FnOnce(&Resource) -> Bytes) -> &Bytes {
        self.0.framed.get_or_init(|| frame(self))
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        // The bytes decide; the hash makes the common "different" answer cheap.
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other) || one.version == other.version && one.name == other.name && one.body == other.body
    }
}

impl Eq for Resource {}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.name(), self.version(), self.body().len())
    }
}
