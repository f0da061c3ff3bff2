//! Status of the Gateway API's kinds, written by controllers.

use std::sync::Arc;

use crate::gateway_api::listener::RouteGroupKind;
use crate::gateway_api::reference::ParentReference;
use crate::gateway_api::text::{ADDRESS_TYPE, CONDITION_TYPE, CONTROLLER, DNS_NAME, REASON};
use crate::time::Timestamp;

message! {
    /// Condition of an object.
    pub struct Condition {
        /// Type of the condition, such as `Accepted` or `Programmed`.
        pub kind: Arc<str> as "type" where [required, max 316, pattern CONDITION_TYPE],
        /// Status of the condition: `True`, `False` or `Unknown`.
        pub status: Arc<str> where [required, values_of ["True", "False", "Unknown"]],
        /// Generation of the object that the condition is based on.
        pub observed_generation: Option<i64> where [min 0],
        /// Time of the last change of `status`.
        pub last_transition_time: Option<Timestamp> where [required],
        /// Reason of the status, as a single CamelCase word.
        pub reason: Arc<str> where [required, min 1, max 1024, pattern REASON],
        /// Human-readable message. Can be empty.
        pub message: Arc<str> where [required, max 32768],
    }
}

message! {
    /// Status of a GatewayClass.
    pub struct GatewayClassStatus {
        /// Conditions, such as `Accepted` and `SupportedVersion`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// Gateway API features that Gateways of this class support.
        pub supported_features: Vec<SupportedFeature> where [max 64, key name],
    }
}

message! {
    /// Status of an XMesh.
    pub struct MeshStatus {
        /// Conditions, such as `Accepted`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// Gateway API features that the mesh supports.
        pub supported_features: Vec<SupportedFeature> where [max 64, key name],
    }
}

message! {
    /// Feature of the Gateway API.
    pub struct SupportedFeature {
        /// Name of the feature, such as `HTTPRouteMethodMatching`.
        pub name: Arc<str> where [required],
    }
}

message! {
    /// Status of a Gateway.
    pub struct GatewayStatus {
        /// Addresses of the Gateway.
        pub addresses: Vec<GatewayStatusAddress> where [max 16],
        /// Conditions, such as `Accepted` and `Programmed`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }, {
            "type": "Programmed", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// Status of each listener.
        pub listeners: Vec<ListenerStatus> where [max 64, key name],
        /// Number of ListenerSets that are attached successfully.
        pub attached_listener_sets: Option<i32>,
    }
}

message! {
    /// Address of a Gateway.
    pub struct GatewayStatusAddress where [
        rule "self.type == 'IPAddress' ? isIP(self.value) : true" "the value must be an IP address",
        rule "self.type == 'Hostname' ? self.value.matches(r\"\"\"^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\"\"\") : true"
            "the value must be a host name",
    ] {
        /// Type of the address: `IPAddress`, `Hostname` or an implementation-specific type.
        pub kind: Arc<str> as "type" where [min 1, max 253, pattern ADDRESS_TYPE, default "IPAddress"] = "IPAddress".into(),
        /// Address.
        pub value: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// Status of a listener.
    pub struct ListenerStatus {
        /// Name of the listener.
        pub name: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// Kinds of routes that the listener supports.
        pub supported_kinds: Vec<RouteGroupKind> where [max 8],
        /// Number of routes that are attached successfully.
        pub attached_routes: i32 where [required],
        /// Conditions, such as `Accepted`, `Programmed`, `ResolvedRefs` and `Conflicted`.
        pub conditions: Vec<Condition> where [required, max 8, key "type"],
    }
}

message! {
    /// Status of a ListenerSet.
    pub struct ListenerSetStatus {
        /// Conditions, such as `Accepted` and `Programmed`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }, {
            "type": "Programmed", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// Status of each listener.
        pub listeners: Vec<ListenerStatus> where [max 64, key name],
    }
}

message! {
    /// Status of a route, for each of its parents.
    pub struct RouteStatus {
        /// Parents that the route attaches to.
        pub parents: Vec<RouteParentStatus> where [required, max 32],
    }
}

message! {
    /// Status of a route for one parent.
    pub struct RouteParentStatus {
        /// Parent, as referenced by the route.
        pub parent_ref: ParentReference where [required],
        /// Controller that wrote the status, a domain-prefixed path.
        pub controller_name: Arc<str> where [required, min 1, max 253, pattern CONTROLLER],
        /// Conditions of the route, such as `Accepted` and `ResolvedRefs`.
        pub conditions: Vec<Condition> where [required, min 1, max 8, key "type"],
    }
}

message! {
    /// Status of a policy, for each Gateway or other object that it affects.
    pub struct PolicyStatus {
        /// Objects that the policy affects.
        pub ancestors: Vec<PolicyAncestorStatus> where [required, max 16],
    }
}

message! {
    /// Status of a policy for one object.
    pub struct PolicyAncestorStatus {
        /// Object that the status applies to, usually a Gateway.
        pub ancestor_ref: ParentReference where [required],
        /// Controller that wrote the status, a domain-prefixed path.
        pub controller_name: Arc<str> where [required, min 1, max 253, pattern CONTROLLER],
        /// Conditions of the policy, such as `Accepted`.
        pub conditions: Vec<Condition> where [required, min 1, max 8, key "type"],
    }
}
