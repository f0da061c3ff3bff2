//! What a policy applies to: workloads by their labels, or gateways and services by name.

use std::sync::Arc;

use crate::object::StringMap;

/// A DNS name in lower case, or nothing: an API group.
const GROUP: &str = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// The name of a kind.
const KIND: &str = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";

message! {
    /// Selects workloads by labels (`istio.type.v1beta1.WorkloadSelector`).
    pub struct PolicySelector {
        /// The labels that a workload must have, all of them. Without labels all workloads of the namespace are selected.
        pub match_labels: StringMap where [
            max 4096,
            rule "self.all(key, key.size() != 0)" "a label needs a key",
            rule "self.all(key, !key.contains('*'))" "wildcards are not supported in selectors",
            values(max 63, rule "!self.contains('*')" "wildcards are not supported in selectors"),
        ],
    }
}

message! {
    /// Names an object that a policy is attached to: a Gateway, GatewayClass, Service or ServiceEntry.
    pub struct PolicyTargetReference {
        /// The API group of the object's kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP],
        /// The object's kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// The object's name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Must be empty: only objects of the policy's own namespace can be named.
        pub namespace: Arc<str> where [rule "self.size() == 0" "references across namespaces are not supported"],
    }
}

enumeration! {
    /// On which side of a connection a workload stands (`istio.type.v1beta1.WorkloadMode`).
    pub enum WorkloadMode {
        /// Either side, as `CLIENT_AND_SERVER`.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// The workload is the client, or a gateway.
        Client = "CLIENT" 1,
        /// The workload is the server.
        Server = "SERVER" 2,
        /// Either side.
        ClientAndServer = "CLIENT_AND_SERVER" 3,
    }
}
