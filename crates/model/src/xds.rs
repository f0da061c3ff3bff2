//! Served resources: their types, versions and encoded form.
//!
//! A resource is encoded once; its bytes are shared by every stream that gets it. Its version is the hash of its bytes,
//! so that two replicas that derived the same configuration agree on it without talking to each other.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::proxy::Proxy;

/// The properties of a resource type that the xDS server needs. Every type has one `static` of this, next to the rules
/// that encode its resources.
#[derive(Debug)]
pub struct TypeSpec {
    /// The protobuf type URL of the resource.
    pub type_url: &'static str,
    /// The abbreviation that debug output, metrics and `istioctl` use: `CDS`, `EDS`.
    pub short_name: &'static str,
    /// The name that debug output uses: `cluster`, `endpoint`.
    pub long_name: &'static str,
    /// The position in sending order (make before break). Unique among the registered types.
    pub order: u8,
    /// How clients subscribe.
    pub subscription: Subscription,
    /// Types that must be in place at a client before it is sent changes of this type from the same commit.
    pub waits_for: &'static [ResourceType],
    /// Types that must be in place at a client before resources of this type that went are removed there.
    pub removed_after: &'static [ResourceType],
    /// The type whose resources refer to resources of this type.
    pub parent: Parent,
    /// An empty resource, for names that are subscribed to and have none.
    pub placeholder: Option<Placeholder>,
    /// Whether a client that rejects a response has still accepted the resources that its error does not name.
    pub partial_nack: bool,
    /// Whether changes of many resources may be sent in several responses. None of them may need another one of its type at the
    /// same time.
    pub divisible: bool,
    /// The number of a repeated field whose messages can be left out one by one if a client rejects them: the virtual hosts
    /// of a route table. Each has its name in field 1.
    pub parts: Option<u32>,
    /// The form of a rejected part that a client is sent if it has no earlier one: it must be harmless. For a type without
    /// parts, the form of a rejected resource.
    pub stub: Option<Stub>,
    /// How `/debug/config_dump` shows resources of this type.
    pub dump: Dump,
}

impl TypeSpec {
    /// A type that clients subscribe to by name and that depends on no other. Fill in the names and the order.
    pub const NAMED: TypeSpec = TypeSpec {
        type_url: "",
        short_name: "",
        long_name: "",
        order: u8::MAX,
        subscription: Subscription::Named,
        waits_for: &[],
        removed_after: &[],
        parent: Parent::None,
        placeholder: None,
        partial_nack: false,
        divisible: false,
        parts: None,
        stub: None,
        dump: Dump::Generic,
    };
}

/// Encodes a harmless form of an encoded message.
pub type Stub = fn(&[u8]) -> Bytes;

/// How a config dump shows the resources of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dump {
    /// Not at all: another type's resources contain them, or Envoy does not read them.
    Hidden,
    /// As Envoy's client status service shows types that have no section in a config dump.
    Generic,
    /// In a section of Envoy's config dump.
    Section {
        /// The section's message in `envoy.admin.v3`.
        message: &'static str,
        /// Its repeated field.
        list: &'static str,
        /// The form of an item.
        item: DumpItem,
    },
}

/// An item of a section of Envoy's config dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DumpItem {
    /// The version, and the resource in this field.
    Resource(&'static str),
    /// The name, and a state with the version and with the resource in this field.
    State(&'static str),
    /// The name and the version only, because the resource is secret.
    Name,
}

/// How clients subscribe to a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subscription {
    /// A client that names no resources gets all of them (xDS: wildcard).
    Wildcard,
    /// By the names of resources.
    Named,
    /// By the names of collections ([`collection_of`]). Only the delta protocol can report what left a collection.
    Collections,
}

/// How resources of a type depend on those of another type.
#[derive(Clone, Copy, Debug)]
pub enum Parent {
    /// They depend on none.
    None,
    /// A resource of `of` may refer to one name, which `reference` reads from its name and its encoded bytes. A client that
    /// is sent the parent again drops what it refers to, and keeps the parent from use until it has it again.
    Reference {
        /// The parent's type.
        of: ResourceType,
        /// Reads the reference.
        reference: ReadReference,
    },
    /// A client that is sent any resource of `of` before it subscribes may have dropped what it had.
    Any {
        /// The parent's type.
        of: ResourceType,
    },
    /// The collections of this type are the names of resources of `of`. A client that is sent one of those again drops the
    /// collection's content.
    Collections {
        /// The parent's type.
        of: ResourceType,
    },
}

/// Reads the name that a resource refers to from its own name and its encoded bytes.
pub type ReadReference = fn(&Arc<str>, &[u8]) -> Option<Arc<str>>;

impl Parent {
    /// The parent's type.
    pub fn of(&self) -> Option<ResourceType> {
        match self {
            Parent::None => None,
            Parent::Reference { of, .. } | Parent::Any { of } | Parent::Collections { of } => Some(*of),
        }
    }
}

/// An empty resource for a name that has none, so that a client that waits for it does not wait.
#[derive(Clone, Copy, Debug)]
pub struct Placeholder {
    /// Whether this proxy is sent placeholders. Other proxies receive the answer that the resource does not exist.
    pub applies: fn(&Proxy) -> bool,
    /// Encodes the empty resource of a name.
    pub encode: fn(&str) -> Bytes,
}

/// A resource type: a reference to its [`TypeSpec`]. Ordered by sending order.
#[derive(Clone, Copy)]
pub struct ResourceType(&'static TypeSpec);

impl ResourceType {
    /// The type that this describes.
    pub const fn new(spec: &'static TypeSpec) -> ResourceType {
        ResourceType(spec)
    }

    /// Whether clients subscribe to collections and not to single resources.
    pub fn is_collected(self) -> bool {
        self.0.subscription == Subscription::Collections
    }

    /// Whether a client that names no resources means all of them (xDS: wildcard).
    pub fn is_wildcard(self) -> bool {
        self.0.subscription == Subscription::Wildcard
    }

    /// Whether there is a list of the resources that a client gets. A resource that is no longer on it is removed.
    pub fn is_listed(self) -> bool {
        self.0.subscription != Subscription::Named
    }
}

impl Deref for ResourceType {
    type Target = TypeSpec;

    fn deref(&self) -> &TypeSpec {
        self.0
    }
}

impl PartialEq for ResourceType {
    fn eq(&self, other: &ResourceType) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for ResourceType {}

impl Hash for ResourceType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.order.hash(state);
    }
}

impl PartialOrd for ResourceType {
    fn partial_cmp(&self, other: &ResourceType) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceType {
    fn cmp(&self, other: &ResourceType) -> Ordering {
        (self.0.order, self.0.type_url).cmp(&(other.0.order, other.0.type_url))
    }
}

impl fmt::Debug for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.short_name)
    }
}

/// The registered types are inconsistent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeError {
    /// Two types have the same type URL, or the same place in sending order.
    Ambiguous(ResourceType, ResourceType),
    /// A type waits for, is removed after, or depends on one that is not registered.
    Unregistered {
        /// The type.
        kind: ResourceType,
        /// The type that is missing.
        missing: ResourceType,
    },
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TypeError::Ambiguous(one, other) => write!(f, "resource types {one:?} and {other:?} conflict"),
            TypeError::Unregistered { kind, missing } => {
                write!(f, "resource type {kind:?} needs {missing:?}, which is not registered")
            }
        }
    }
}

impl std::error::Error for TypeError {}

/// The registered types, in sending order.
#[derive(Clone, Debug)]
pub struct ResourceTypes(Arc<[ResourceType]>);

impl ResourceTypes {
    /// The set of these types.
    ///
    /// # Errors
    /// Two of them conflict, or one needs a type that is not among them.
    pub fn new(types: impl IntoIterator<Item = ResourceType>) -> Result<ResourceTypes, TypeError> {
        let mut types: Vec<ResourceType> = types.into_iter().collect();
        types.sort_unstable();
        for (at, kind) in types.iter().enumerate() {
            let same = |other: &&ResourceType| kind.order == other.order || kind.type_url == other.type_url;
            if let Some(other) = types[at + 1..].iter().find(same) {
                return Err(TypeError::Ambiguous(*kind, *other));
            }
            let parent = kind.parent.of();
            let mut needed = kind.waits_for.iter().chain(kind.removed_after).chain(&parent);
            if let Some(missing) = needed.find(|needed| !types.contains(needed)) {
                let (kind, missing) = (*kind, *missing);
                return Err(TypeError::Unregistered { kind, missing });
            }
        }
        Ok(ResourceTypes(types.into()))
    }

    /// The types, in sending order.
    pub fn iter(&self) -> impl Iterator<Item = ResourceType> + use<'_> {
        self.0.iter().copied()
    }

    /// The type with this URL.
    pub fn find(&self, type_url: &str) -> Option<ResourceType> {
        self.iter().find(|kind| kind.type_url == type_url)
    }

    /// The type that resources of this one refer to, and how.
    pub fn reference_from(&self, kind: ResourceType) -> Option<(ResourceType, ReadReference)> {
        self.iter().find_map(|child| match child.parent {
            Parent::Reference { of, reference } if of == kind => Some((child, reference)),
            _ => None,
        })
    }

    /// The type whose collections are the names of resources of this one.
    pub fn collections_in(&self, kind: ResourceType) -> Option<ResourceType> {
        let mut types = self.iter();
        types.find(|child| matches!(child.parent, Parent::Collections { of } if of == kind))
    }

    /// The types that depend on this one.
    pub fn children(&self, kind: ResourceType) -> impl Iterator<Item = ResourceType> + use<'_> {
        self.iter().filter(move |child| child.parent.of() == Some(kind))
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
        Version(xxh3_64(bytes))
    }

    /// The version of the concatenation of these pieces.
    fn of_pieces(pieces: &[Bytes]) -> Version {
        match pieces {
            [bytes] => Version::of(bytes),
            _ => {
                let mut hasher = Xxh3::new();
                pieces.iter().for_each(|piece| hasher.update(piece));
                Version(hasher.digest())
            }
        }
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
    /// The body in order. Resources may share pieces.
    pieces: Box<[Bytes]>,
    framed: OnceLock<Bytes>,
}

impl Resource {
    /// A resource of this name whose protobuf encoding is `body`.
    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Resource {
        Resource::in_pieces(name, [body.into()])
    }

    /// A resource of this name whose protobuf encoding is the concatenation of these pieces.
    pub fn in_pieces(name: impl Into<Arc<str>>, pieces: impl Into<Box<[Bytes]>>) -> Resource {
        let pieces = pieces.into();
        Resource(Arc::new(Encoded {
            name: name.into(),
            version: Version::of_pieces(&pieces),
            pieces,
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

    /// The encoded message. Copied if it is in several pieces.
    pub fn body(&self) -> Bytes {
        match &*self.0.pieces {
            [body] => body.clone(),
            pieces => pieces.concat().into(),
        }
    }

    /// The encoded message in pieces.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0.pieces
    }

    /// The length of the encoded message in bytes.
    pub fn len(&self) -> usize {
        self.0.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether the encoded message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The form of this resource in responses. `frame` encodes it once for all streams that share the resource, and must
    /// always give the same bytes.
    pub fn framed(&self, frame: impl FnOnce(&Resource) -> Bytes) -> &Bytes {
        self.0.framed.get_or_init(|| frame(self))
    }

    /// Whether [`Resource::framed`] was called.
    pub fn is_framed(&self) -> bool {
        self.0.framed.get().is_some()
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        // The bytes decide; the hash makes the common "different" answer cheap.
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other)
            || one.version == other.version && one.name == other.name && equal(&one.pieces, &other.pieces)
    }
}

impl Eq for Resource {}

/// Whether the concatenations of two lists of pieces are equal.
fn equal(one: &[Bytes], other: &[Bytes]) -> bool {
    one == other || one.concat() == other.concat()
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.name(), self.version(), self.len())
    }
}
