//! InferencePool: model servers of which a service of its own picks one per request.

use std::sync::Arc;

use crate::gateway_api::status::Condition;
use crate::gateway_api::text::{CONTROLLER, GATEWAY_GROUP, GROUP, KIND, LABEL, LABEL_VALUE};
use crate::object::StringMap;

message! {
    /// Model servers of which a service of its own picks one per request.
    pub struct InferencePool {
        /// The Pods of the pool.
        pub selector: PoolSelector where [required],
        /// The ports of the Pods; each is an endpoint of its own.
        pub target_ports: Vec<PoolPort> where [
            required, min 1, max 8,
            rule "self.all(p1, self.exists_one(p2, p1.number == p2.number))" "port numbers must be unique",
        ],
        /// What the Pods speak: `http` or `kubernetes.io/h2c`.
        pub app_protocol: Arc<str> where [values_of ["http", "kubernetes.io/h2c"], default "http"] = "http".into(),
        /// The service that picks.
        pub endpoint_picker_ref: Option<EndpointPickerRef>,
    }
}

message! {
    /// Selects Pods by labels.
    pub struct PoolSelector {
        /// The labels that a Pod must have.
        pub match_labels: StringMap where [required, min 1, max 64, values(min 0, max 63, pattern LABEL_VALUE)],
    }
}

message! {
    /// A port by its number.
    pub struct PoolPort {
        /// The number.
        pub number: u16 where [required, min 1, max 65535],
    }
}

message! {
    /// Names the service that picks.
    pub struct EndpointPickerRef where [
        rule "self.kind != 'Service' || has(self.port)" "a reference to a Service needs a port",
    ] {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its port; needed for a Service.
        pub port: Option<PoolPort>,
        /// What happens to requests when it cannot pick.
        pub failure_mode: FailureMode where [default "FailClose"],
    }
}

enumeration! {
    /// What happens to requests when nobody can pick.
    pub enum FailureMode {
        /// They are refused.
        #[default]
        FailClose = "FailClose",
        /// They go to any of the Pods.
        FailOpen = "FailOpen",
    }
}

message! {
    /// What became of an InferencePool, with each Gateway that uses it.
    pub struct InferencePoolStatus {
        /// The Gateways that a controller is in charge of.
        pub parents: Vec<PoolParentStatus> where [max 32],
    }
}

message! {
    /// What became of an InferencePool with one Gateway.
    pub struct PoolParentStatus {
        /// What holds of the pool there: `Accepted`, `ResolvedRefs`.
        pub conditions: Vec<Condition> where [max 8, key "type"],
        /// The Gateway.
        pub parent_ref: PoolParentReference where [required],
        /// Who wrote this: a domain and a path.
        pub controller_name: Option<Arc<str>> where [min 1, max 253, pattern CONTROLLER],
    }
}

message! {
    /// Names a Gateway.
    pub struct PoolParentReference {
        /// The API group of its kind.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}
