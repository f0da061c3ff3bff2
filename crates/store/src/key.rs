//! Object keys.

use std::fmt;
use std::sync::Arc;

use crate::Error;

/// A resource type: the plural name within its API group.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The plural name, as in paths: `virtualservices`.
    pub plural: Arc<str>,
}

impl GroupResource {
    /// Creates a resource type.
    pub fn new(group: impl Into<Arc<str>>, plural: impl Into<Arc<str>>) -> GroupResource {
        GroupResource { group: group.into(), plural: plural.into() }
    }
}

impl fmt::Display for GroupResource {
    /// `virtualservices.networking.istio.io`, or `services` of the core group.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

/// The key of an object. Ordered by type, then namespace, then name, like lists.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The type.
    pub resource: GroupResource,
    /// The namespace; empty for cluster-scoped types.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// Creates a key.
    pub fn new(resource: GroupResource, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        Key { resource, namespace: namespace.into(), name: name.into() }
    }

    /// The maximum length of each part, in bytes. Kubernetes limits names to 253.
    pub const PART_LIMIT: usize = 512;

    /// Validates the key: no part is too long or contains control characters (backends separate parts with them), and
    /// plural and name are not empty.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check(&self) -> Result<(), Error> {
        let parts = [
            ("group", &self.resource.group, false),
            ("plural", &self.resource.plural, true),
            ("namespace", &self.namespace, false),
            ("name", &self.name, true),
        ];
        for (what, text, needed) in parts {
            if needed && text.is_empty() {
                return Err(Error::Invalid(format!("the {what} of {:?} is empty", self.to_string())));
            }
            if text.len() > Key::PART_LIMIT {
                let (bytes, limit) = (text.len(), Key::PART_LIMIT);
                return Err(Error::Invalid(format!("the {what} has {bytes} bytes; at most {limit} are allowed")));
            }
            if text.chars().any(char::is_control) {
                return Err(Error::Invalid(format!("the {what} {text:?} contains control characters")));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Key {
    /// `virtualservices.networking.istio.io default/reviews`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => write!(f, "{} {}", self.resource, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.resource, self.name),
        }
    }
}
