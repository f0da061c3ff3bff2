//! Writes to Kubernetes objects.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The object to write, with the parts of its API path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural of the kind, as in paths.
    pub plural: &'static str,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Target {
    /// `apiVersion`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.to_owned(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

impl fmt::Display for Target {
    /// `ConfigMap shop/istio-ca-root-cert`, `Node a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => write!(f, "{} {}", self.kind, self.name),
            false => write!(f, "{} {}/{}", self.kind, self.namespace, self.name),
        }
    }
}

/// The operation and its content.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Server-side apply. The writer adds `apiVersion`, `kind` and the name.
    Apply {
        /// The fields.
        fields: Value,
        /// The field manager.
        manager: &'static str,
        /// Whether the object is created if it does not exist.
        create: bool,
    },
    /// Create. An object that exists is left unchanged.
    Create {
        /// The fields. The writer adds `apiVersion`, `kind` and the name.
        fields: Value,
        /// The field manager.
        manager: &'static str,
    },
    /// Merge patch, if the object still has this resource version.
    Merge {
        /// The patch.
        patch: Value,
        /// `metadata.resourceVersion`.
        version: Arc<str>,
    },
}

/// A write that a controller plans.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// The object.
    pub target: Target,
    /// The UID that the object must have; empty for any.
    pub uid: Arc<str>,
    /// The operation.
    pub body: Body,
}
