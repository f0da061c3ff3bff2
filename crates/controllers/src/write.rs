//! A write to an object of any kind.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The object that is written, as a path of the API has it.
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

/// How an object is written.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// By server-side apply: these fields are to be so, and those that the manager gave before and does not name any more
    /// go. `apiVersion`, `kind` and the name are added by who writes.
    Apply {
        /// The fields.
        fields: Value,
        /// The field manager.
        manager: &'static str,
        /// Whether the object may be made; else it is left alone where it does not exist.
        create: bool,
    },
    /// By making it. One that is there already is left alone.
    Create {
        /// The fields. `apiVersion`, `kind` and the name are added by who writes.
        fields: Value,
        /// The field manager.
        manager: &'static str,
    },
    /// By a merge patch, if the object still has this version.
    Merge {
        /// The patch.
        patch: Value,
        /// `metadata.resourceVersion`.
        version: Arc<str>,
    },
}

/// A write that a controller wants.
#[derive(Clone, PartialEq, Debug)]
pub struct Write {
    /// To which object.
    pub target: Target,
    /// The UID that the object must have; empty: any.
    pub uid: Arc<str>,
    /// What.
    pub body: Body,
}
