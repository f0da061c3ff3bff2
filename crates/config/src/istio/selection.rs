//! Targets of a policy: workloads selected by label, or gateways and services by name.

use std::sync::Arc;

use crate::gateway_api::text::{GROUP, KIND};
use crate::object::StringMap;

/// Message of the rule that a policy can be attached in only one way.
pub(crate) const ONE_TARGET: &str = "selector, targetRef and targetRefs are mutually exclusive";

message! {
    /// Selects workloads by label (`istio.type.v1beta1.WorkloadSelector`).
    pub struct PolicySelector {
        /// Labels that a workload must have; all must match. If empty, all workloads in the namespace are selected.
        pub match_labels: StringMap where [
            max 4096,
            rule "self.all(key, key.size() != 0)" "a label key must not be empty",
            rule "self.all(key, !key.contains('*'))" "wildcards are not supported in selectors",
            values(max 63, rule "!self.contains('*')" "wildcards are not supported in selectors"),
            keys(selector_key), is selector_value,
            wanted "no-effect" "the selector has no labels and selects all workloads in the namespace; omit it if this is intended",
        ],
    }
}

message! {
    /// Object that a policy is attached to: a Gateway, GatewayClass, Service or ServiceEntry.
    pub struct PolicyTargetReference: Relations {
        /// API group of the object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP],
        /// Kind of the object.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
        /// Name of the object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Must be empty. Only objects in the policy's namespace can be referenced.
        pub namespace: Arc<str> where [
            rule "self.size() == 0" "cross-namespace references are not supported",
            refuse "unsupported" "a policy can only be attached to objects in its own namespace; create it in that namespace",
        ],
    }
}

enumeration! {
    /// Side of a connection that a workload is on (`istio.type.v1beta1.WorkloadMode`).
    pub enum WorkloadMode {
        /// Both sides, the same as `CLIENT_AND_SERVER`.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// The workload is the client, or a gateway.
        Client = "CLIENT" 1,
        /// The workload is the server.
        Server = "SERVER" 2,
        /// Both sides.
        ClientAndServer = "CLIENT_AND_SERVER" 3,
    }
}
