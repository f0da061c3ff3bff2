//! References between objects, and ReferenceGrant, which allows them across namespaces.

use std::sync::Arc;

use crate::gateway_api::text::{DNS_NAME, GATEWAY_GROUP, GROUP, KIND, LABEL};

/// In CEL: a reference to a Service says which port.
const PORT_RULE: &str = "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true";
/// What is said when it does not.
const PORT_MESSAGE: &str = "a reference to a Service needs a port";

message! {
    /// Names what a route is attached to: a Gateway, one of its listeners, or a Service of the mesh.
    pub struct ParentReference {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Its namespace; absent means the route's.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// The part of it: the name of a Gateway's listener, or of a Service's port. Absent means the whole.
        pub section_name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The port of it; absent means all.
        pub port: Option<u16> where [min 1, max 65535],
    }
}

message! {
    /// Names where traffic goes, with its share.
    pub struct BackendRef where [rule PORT_RULE PORT_MESSAGE] {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same. Another one needs a ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Its port; needed for a Service.
        pub port: Option<u16> where [min 1, max 65535],
        /// Its share: this weight in relation to the sum of all. 0 means nothing.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
    }
}

message! {
    /// Names where traffic goes.
    pub struct BackendObjectReference where [rule PORT_RULE PORT_MESSAGE] {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same. Another one needs a ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Its port; needed for a Service.
        pub port: Option<u16> where [min 1, max 65535],
    }
}

message! {
    /// Names a secret, such as one with a certificate and its key.
    pub struct SecretObjectReference {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Secret"] = "Secret".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same. Another one needs a ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Names an object, perhaps of another namespace.
    pub struct ObjectReference {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Its kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same, or none for kinds of the whole cluster.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Names an object of the same namespace.
    pub struct LocalObjectReference {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Its kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// Names what a policy is attached to, in the policy's namespace.
    pub struct PolicyTarget {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Its kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// The part of it: the name of a Gateway's listener, of a Service's port, or of a route's rule. Absent: the whole.
        pub section_name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
    }
}

message! {
    /// Allows objects of other namespaces to refer to objects of its own: one of `from` to one of `to`.
    pub struct ReferenceGrant {
        /// Who may refer.
        pub from: Vec<ReferenceGrantFrom> where [required, min 1, max 16],
        /// To what.
        pub to: Vec<ReferenceGrantTo> where [required, min 1, max 16],
    }
}

message! {
    /// Objects that may refer.
    pub struct ReferenceGrantFrom {
        /// The API group of their kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Their kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Their namespace.
        pub namespace: Arc<str> where [required, min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Objects that may be referred to.
    pub struct ReferenceGrantTo {
        /// The API group of their kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern GROUP],
        /// Their kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// The name of the only one; absent means all of the kind.
        pub name: Option<Arc<str>> where [min 1, max 253],
    }
}
