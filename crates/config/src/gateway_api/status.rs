//! The status of the Gateway API's kinds, which controllers write.

use std::sync::Arc;

use crate::gateway_api::listener::RouteGroupKind;
use crate::gateway_api::reference::ParentReference;
use crate::gateway_api::text::{ADDRESS_TYPE, CONDITION_TYPE, CONTROLLER, DNS_NAME, REASON};
use crate::time::Timestamp;

message! {
    /// Something that holds of an object, or not.
    pub struct Condition {
        /// What, such as `Accepted` or `Programmed`.
        pub kind: Arc<str> as "type" where [required, max 316, pattern CONDITION_TYPE],
        /// Whether it holds: `True`, `False` or `Unknown`.
        pub status: Arc<str> where [required, values_of ["True", "False", "Unknown"]],
        /// The generation of the object that this speaks of.
        pub observed_generation: Option<i64> where [min 0],
        /// When `status` changed last.
        pub last_transition_time: Option<Timestamp> where [required],
        /// Why, in one word.
        pub reason: Arc<str> where [required, min 1, max 1024, pattern REASON],
        /// Why, for people; may be empty.
        pub message: Arc<str> where [required, max 32768],
    }
}

message! {
    /// What became of a GatewayClass.
    pub struct GatewayClassStatus {
        /// What holds of it: `Accepted`, `SupportedVersion`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// The features of the Gateway API that gateways of this class have.
        pub supported_features: Vec<SupportedFeature> where [max 64, key name],
    }
}

message! {
    /// A feature of the Gateway API.
    pub struct SupportedFeature {
        /// Its name, such as `HTTPRouteMethodMatching`.
        pub name: Arc<str> where [required],
    }
}

message! {
    /// What became of a Gateway.
    pub struct GatewayStatus {
        /// The addresses that it is reached by.
        pub addresses: Vec<GatewayStatusAddress> where [max 16],
        /// What holds of it: `Accepted`, `Programmed`, and more.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }, {
            "type": "Programmed", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// What became of each listener.
        pub listeners: Vec<ListenerStatus> where [max 64, key name],
        /// How many ListenerSets are attached with success.
        pub attached_listener_sets: Option<i32>,
    }
}

message! {
    /// An address that a Gateway is reached by.
    pub struct GatewayStatusAddress where [
        rule "self.type == 'IPAddress' ? isIP(self.value) : true" "the value must be an IP address",
        rule "self.type == 'Hostname' ? self.value.matches(r\"\"\"^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\"\"\") : true"
            "the value must be a host name",
    ] {
        /// What it is: `IPAddress`, `Hostname`, or a domain's own sort.
        pub kind: Arc<str> as "type" where [min 1, max 253, pattern ADDRESS_TYPE, default "IPAddress"] = "IPAddress".into(),
        /// The address.
        pub value: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// What became of a listener.
    pub struct ListenerStatus {
        /// The listener's name.
        pub name: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// The kinds of routes that it takes.
        pub supported_kinds: Vec<RouteGroupKind> where [max 8],
        /// How many routes are attached to it with success.
        pub attached_routes: i32 where [required],
        /// What holds of it: `Accepted`, `Programmed`, `ResolvedRefs`, `Conflicted`, and more.
        pub conditions: Vec<Condition> where [required, max 8, key "type"],
    }
}

message! {
    /// What became of a ListenerSet.
    pub struct ListenerSetStatus {
        /// What holds of it: `Accepted`, `Programmed`.
        pub conditions: Vec<Condition> where [max 8, key "type", default [{
            "type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }, {
            "type": "Programmed", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        }]],
        /// What became of each listener.
        pub listeners: Vec<ListenerStatus> where [max 64, key name],
    }
}

message! {
    /// What became of a route, with each of its parents.
    pub struct RouteStatus {
        /// The parents that a controller is in charge of.
        pub parents: Vec<RouteParentStatus> where [required, max 32],
    }
}

message! {
    /// What became of a route with one parent.
    pub struct RouteParentStatus {
        /// The parent, as the route names it.
        pub parent_ref: ParentReference where [required],
        /// Who wrote this: a domain and a path.
        pub controller_name: Arc<str> where [required, min 1, max 253, pattern CONTROLLER],
        /// What holds of the route there: `Accepted`, `ResolvedRefs`, and more.
        pub conditions: Vec<Condition> where [required, min 1, max 8, key "type"],
    }
}

message! {
    /// What became of a policy, with each Gateway or other object that it matters to.
    pub struct PolicyStatus {
        /// The objects that a controller is in charge of.
        pub ancestors: Vec<PolicyAncestorStatus> where [required, max 16],
    }
}

message! {
    /// What became of a policy with one object.
    pub struct PolicyAncestorStatus {
        /// The object, mostly a Gateway.
        pub ancestor_ref: ParentReference where [required],
        /// Who wrote this: a domain and a path.
        pub controller_name: Arc<str> where [required, min 1, max 253, pattern CONTROLLER],
        /// What holds of the policy there: `Accepted`, and more.
        pub conditions: Vec<Condition> where [required, min 1, max 8, key "type"],
    }
}
