//! Writes to Kubernetes objects.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The label of objects that the deployment of gateways may replace.
pub const MANAGED: &str = "gateway.istio.io/managed";

/// A resource of the Kubernetes API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The plural of the kind, as in paths.
    pub plural: &'static str,
}

impl Resource {
    pub(crate) const AUTOSCALER: Resource =
        Resource::new("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
    /// ConfigMaps.
    pub const CONFIG_MAP: Resource = Resource::new("", "v1", "ConfigMap", "configmaps");
    pub(crate) const DEPLOYMENT: Resource = Resource::new("apps", "v1", "Deployment", "deployments");
    pub(crate) const DISRUPTION_BUDGET: Resource =
        Resource::new("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
    pub(crate) const GATEWAY_CLASS: Resource =
        Resource::new("gateway.networking.k8s.io", "v1", "GatewayClass", "gatewayclasses");
    /// WorkloadEntries.
    pub const WORKLOAD_ENTRY: Resource = Resource::new("networking.istio.io", "v1", "WorkloadEntry", "workloadentries");
    /// WorkloadGroups.
    pub const WORKLOAD_GROUP: Resource = Resource::new("networking.istio.io", "v1", "WorkloadGroup", "workloadgroups");
    pub(crate) const INGRESS: Resource = Resource::new("networking.k8s.io", "v1", "Ingress", "ingresses");
    pub(crate) const INGRESS_CLASS: Resource =
        Resource::new("networking.k8s.io", "v1", "IngressClass", "ingressclasses");
    pub(crate) const NAMESPACE: Resource = Resource::new("", "v1", "Namespace", "namespaces");
    pub(crate) const NODE: Resource = Resource::new("", "v1", "Node", "nodes");
    pub(crate) const POD: Resource = Resource::new("", "v1", "Pod", "pods");
    /// Secrets.
    pub const SECRET: Resource = Resource::new("", "v1", "Secret", "secrets");
    pub(crate) const SERVICE: Resource = Resource::new("", "v1", "Service", "services");
    pub(crate) const SERVICE_ACCOUNT: Resource = Resource::new("", "v1", "ServiceAccount", "serviceaccounts");
    pub(crate) const SERVICE_ENTRY: Resource =
        Resource::new("networking.istio.io", "v1", "ServiceEntry", "serviceentries");
    pub(crate) const SERVICE_EXPORT: Resource =
        Resource::new("multicluster.x-k8s.io", "v1alpha1", "ServiceExport", "serviceexports");

    /// A resource.
    pub const fn new(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
        Resource { group, version, kind, plural }
    }

    /// `apiVersion`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.to_owned(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

/// The object to write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target {
    /// The resource.
    pub resource: Resource,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: &'static str,
    /// The namespace; empty for kinds of the whole cluster.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Target {
    /// An object.
    pub fn new(resource: Resource, namespace: &str, name: &str) -> Target {
        Target { resource, subresource: "", namespace: namespace.into(), name: name.into() }
    }

    /// The status of an object.
    pub fn status(resource: Resource, namespace: &str, name: &str) -> Target {
        Target { subresource: "status", ..Target::new(resource, namespace, name) }
    }
}

impl fmt::Display for Target {
    /// `ConfigMap shop/istio-ca-root-cert`, `Node a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => write!(f, "{} {}", self.resource.kind, self.name),
            false => write!(f, "{} {}/{}", self.resource.kind, self.namespace, self.name),
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
        /// Whether an existing object without the label [`MANAGED`] is left unchanged.
        managed: bool,
    },
    /// Create. An object that exists is left unchanged.
    Create {
        /// The fields. The writer adds `apiVersion`, `kind` and the name.
        fields: Value,
        /// The field manager.
        manager: &'static str,
    },
    /// Delete, if the object still has this resource version.
    Delete {
        /// `metadata.resourceVersion`.
        version: Arc<str>,
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
