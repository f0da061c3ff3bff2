//! References between objects, and ReferenceGrant, which allows references across namespaces.

use std::sync::Arc;

use crate::gateway_api::text::{DNS_NAME, GATEWAY_GROUP, GROUP, KIND, LABEL};

/// CEL rule: a reference to a Service requires a port.
const PORT_RULE: &str = "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true";
/// Message of [`PORT_RULE`].
const PORT_MESSAGE: &str = "port is required for a Service";

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

message! {
    /// Backend with a weight.
    pub struct BackendRef where [rule PORT_RULE PORT_MESSAGE] {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the same namespace. A reference to another namespace requires a
        /// ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Port of the backend. Required for a Service.
        pub port: Option<u16> where [min 1, max 65535],
        /// Proportion of traffic: the weight divided by the sum of all weights. 0 means no traffic.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
    }
}

message! {
    /// Backend that traffic is sent to.
    pub struct BackendObjectReference where [rule PORT_RULE PORT_MESSAGE] {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the same namespace. A reference to another namespace requires a
        /// ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Port of the backend. Required for a Service.
        pub port: Option<u16> where [min 1, max 65535],
    }
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
