//! InferencePool: model servers with an endpoint picker that selects one for each request.

use std::sync::Arc;

use crate::gateway_api::status::Condition;
use crate::gateway_api::text::{CONTROLLER, GATEWAY_GROUP, GROUP, KIND, LABEL, LABEL_VALUE};
use crate::object::StringMap;

message! {
    /// Pool of model servers. An endpoint picker selects one for each request.
    pub struct InferencePool {
        /// Selects the Pods of the pool.
        pub selector: PoolSelector where [required],
        /// Ports of the Pods. Each is a separate endpoint.
        pub target_ports: Vec<PoolPort> where [
            required, min 1, max 8,
            rule "self.all(p1, self.exists_one(p2, p1.number == p2.number))" "port numbers must be unique",
        ],
        /// Protocol of the Pods: `http` or `kubernetes.io/h2c`.
        pub app_protocol: Arc<str> where [values_of ["http", "kubernetes.io/h2c"], default "http"] = "http".into(),
        /// Endpoint picker of the pool.
        pub endpoint_picker_ref: Option<EndpointPickerRef>,
    }
}

message! {
    /// Selects Pods by label.
    pub struct PoolSelector {
        /// Labels that a Pod must have.
        pub match_labels: StringMap where [required, min 1, max 64, values(min 0, max 63, pattern LABEL_VALUE)],
    }
}

message! {
    /// Port by number.
    pub struct PoolPort {
        /// Port number.
        pub number: u16 where [required, min 1, max 65535],
    }
}

message! {
    /// Service that selects an endpoint for each request.
    pub struct EndpointPickerRef where [
        rule "self.kind != 'Service' || has(self.port)" "port is required for a Service",
    ] {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Port of the service. Required for a Service.
        pub port: Option<PoolPort>,
        /// Handling of requests when the endpoint picker is not available.
        pub failure_mode: FailureMode where [default "FailClose"],
    }
}

enumeration! {
    /// Handling of requests when the endpoint picker is not available.
    pub enum FailureMode {
        /// Rejects the request.
        #[default]
        FailClose = "FailClose",
        /// Forwards the request to any Pod of the pool.
        FailOpen = "FailOpen",
    }
}

message! {
    /// Status of an InferencePool, for each Gateway that uses it.
    pub struct InferencePoolStatus {
        /// Gateways that use the pool.
        pub parents: Vec<PoolParentStatus> where [max 32],
    }
}

message! {
    /// Status of an InferencePool for one Gateway.
    pub struct PoolParentStatus {
        /// Conditions of the pool, such as `Accepted` and `ResolvedRefs`.
        pub conditions: Vec<Condition> where [max 8, key "type"],
        /// Gateway that the status applies to.
        pub parent_ref: PoolParentReference where [required],
        /// Controller that wrote the status, a domain-prefixed path.
        pub controller_name: Option<Arc<str>> where [min 1, max 253, pattern CONTROLLER],
    }
}

message! {
    /// Reference to a Gateway.
    pub struct PoolParentReference {
        /// API group of the referenced object.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the same namespace.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}
