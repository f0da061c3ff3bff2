//! References between objects, and ReferenceGrant, which allows references across namespaces.

use std::sync::Arc;

use crate::gateway_api::text::{DNS_NAME, GATEWAY_GROUP, GROUP, KIND, LABEL};

/// CEL rule: a reference to a Service requires a port.
pub(crate) const PORT_RULE: &str = "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true";
/// Message of [`PORT_RULE`].
pub(crate) const PORT_MESSAGE: &str = "port is required for a Service";

/// CEL rule: references to the same parent must differ in section or port.
pub(crate) const PARENTS_RULE: &str = "self.all(p1, self.all(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.__namespace__) || p1.__namespace__ == '') && (!has(p2.__namespace__) || p2.__namespace__ == '')) || (has(p1.__namespace__) && has(p2.__namespace__) && p1.__namespace__ == p2.__namespace__)) ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '') && (!has(p1.port) || p1.port == 0) == (!has(p2.port) || p2.port == 0)) : true))";
/// Message of [`PARENTS_RULE`].
pub(crate) const PARENTS_MESSAGE: &str = "sectionName or port is required if a parent is listed more than once";
/// CEL rule: parent references must be unique.
pub(crate) const DISTINCT_PARENTS_RULE: &str = "self.all(p1, self.exists_one(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.__namespace__) || p1.__namespace__ == '') && (!has(p2.__namespace__) || p2.__namespace__ == '')) || (has(p1.__namespace__) && has(p2.__namespace__) && p1.__namespace__ == p2.__namespace__)) && (((!has(p1.sectionName) || p1.sectionName == '') && (!has(p2.sectionName) || p2.sectionName == '')) || (has(p1.sectionName) && has(p2.sectionName) && p1.sectionName == p2.sectionName)) && (((!has(p1.port) || p1.port == 0) && (!has(p2.port) || p2.port == 0)) || (has(p1.port) && has(p2.port) && p1.port == p2.port))))";
/// Message of [`DISTINCT_PARENTS_RULE`].
pub(crate) const DISTINCT_PARENTS_MESSAGE: &str = "the combination of parent, sectionName and port must be unique";

/// Declares a route: its parents, and these fields.
macro_rules! route {
    ($(#[doc = $doc:literal])* pub struct $name:ident { $($fields:tt)* }) => {
        message! {
            $(#[doc = $doc])*
            pub struct $name {
                /// Gateways, ListenerSets or Services that the route attaches to.
                pub parent_refs: Vec<ParentReference> where [
                    max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
                ],
                /// Whether the route also attaches to default gateways.
                pub use_default_gateways: Option<DefaultGateways> where [
                    warn "not-implemented-yet" "the field is not implemented yet and has no effect",
                ],
                $($fields)*
            }
        }
    };
}
pub(crate) use route;

/// Declares a reference to a backend, with these additional fields.
macro_rules! backend {
    ($(#[doc = $doc:literal])* pub struct $name:ident { $($fields:tt)* }) => {
        message! {
            $(#[doc = $doc])*
            pub struct $name where [rule PORT_RULE PORT_MESSAGE] {
                /// API group of the referenced object. Empty means the core group.
                pub group: Arc<str> where [max 253, pattern GROUP, default ""],
                /// Kind of the referenced object.
                pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
                /// Name of the referenced object.
                pub name: Arc<str> where [required, min 1, max 253],
                /// Namespace of the referenced object. Defaults to the same namespace. A reference to another namespace
                /// requires a ReferenceGrant there.
                pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
                /// Port of the backend. Required for a Service.
                pub port: Option<u16> where [min 1, max 65535],
                $($fields)*
            }
        }

        impl $name {
            /// The reference alone.
            pub fn object(&self) -> BackendObjectReference {
                BackendObjectReference {
                    group: self.group.clone(),
                    kind: self.kind.clone(),
                    name: self.name.clone(),
                    namespace: self.namespace.clone(),
                    port: self.port,
                }
            }
        }
    };
}
pub(crate) use backend;

message! {
    /// Object that a route attaches to: a Gateway, one of its listeners, or a Service in the mesh.
    pub struct ParentReference {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Namespace of the referenced object. Defaults to the namespace of the route.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Section of the referenced object: the name of a Gateway listener or of a Service port. If omitted, the whole
        /// object is referenced.
        pub section_name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Port of the referenced object. If omitted, all ports are referenced.
        pub port: Option<u16> where [min 1, max 65535],
    }
}

backend! {
    /// Backend with a weight.
    pub struct BackendRef {
        /// Proportion of traffic: the weight divided by the sum of all weights. 0 means no traffic.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
    }
}

backend! {
    /// Backend that traffic is sent to.
    pub struct BackendObjectReference {}
}

message! {
    /// Reference to a Secret, such as one with a certificate and its key.
    pub struct SecretObjectReference {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Secret"] = "Secret".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the same namespace. A reference to another namespace requires a
        /// ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Reference to an object in any namespace.
    pub struct ObjectReference {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the namespace of the referring object. Must be omitted for
        /// cluster-scoped kinds.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Reference to an object in the same namespace.
    pub struct LocalObjectReference {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// Object in the policy's namespace that a policy is attached to.
    pub struct PolicyTarget {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Section of the referenced object: the name of a Gateway listener, of a Service port or of a route rule. If
        /// omitted, the policy applies to the whole object.
        pub section_name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
    }
}

message! {
    /// Allows references from objects in other namespaces to objects in its own namespace. Any object that `from`
    /// describes can refer to any object that `to` describes.
    pub struct ReferenceGrant {
        /// Objects that can refer to objects in this namespace.
        pub from: Vec<ReferenceGrantFrom> where [required, min 1, max 16],
        /// Objects that can be referred to.
        pub to: Vec<ReferenceGrantTo> where [required, min 1, max 16],
    }
}

message! {
    /// Objects that can refer to objects in another namespace.
    pub struct ReferenceGrantFrom {
        /// API group of the referring objects. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Kind of the referring objects.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Namespace of the referring objects.
        pub namespace: Arc<str> where [required, min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Objects that can be referred to.
    pub struct ReferenceGrantTo {
        /// API group of the referenced objects. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Kind of the referenced objects.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Name of the referenced object. If omitted, all objects of the kind can be referred to.
        pub name: Option<Arc<str>> where [min 1, max 253],
    }
}
