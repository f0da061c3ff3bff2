//! Facts for the statuses of the Gateway API's objects, without times and acknowledgements.

use std::sync::Arc;

use config::gateway_api::reference::ParentReference;

use crate::kube::RouteKind;

/// Names of the controllers whose GatewayClasses are served. Statuses carry that of the class.
pub const CONTROLLERS: [&str; 2] = ["istio.io/gateway-controller", "rutter.io/gateway-controller"];
/// Annotation of a Gateway with the IP addresses of proxies that run without Kubernetes, separated by commas. `rutter gateway run`
/// writes it.
pub const PROXY_ADDRESSES: &str = "gateway.rutter.io/addresses";

/// Names of the controllers of meshes, of XMesh objects and of policies for services that no Gateway uses.
pub const MESH_CONTROLLERS: [&str; 2] = ["istio.io/mesh-controller", "rutter.io/mesh-controller"];

/// Types of conditions.
pub mod condition {
    /// The object is valid and in use.
    pub const ACCEPTED: &str = "Accepted";
    /// Proxies run it.
    pub const PROGRAMMED: &str = "Programmed";
    /// All references can be resolved.
    pub const RESOLVED: &str = "ResolvedRefs";
    /// A listener conflicts with another one.
    pub const CONFLICTED: &str = "Conflicted";
    /// Some rules of a route are not served.
    pub const PARTIALLY_INVALID: &str = "PartiallyInvalid";
    /// A Gateway accepts clients without a valid certificate where it verifies them.
    pub const INSECURE_FRONTEND: &str = "InsecureFrontendValidationMode";

    /// All types.
    pub const ALL: [&str; 6] = [ACCEPTED, PROGRAMMED, RESOLVED, CONFLICTED, PARTIALLY_INVALID, INSECURE_FRONTEND];
}

/// The facts for a status.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// Conditions of the whole object.
    pub conditions: Vec<Fact>,
    /// The fields beside them.
    pub body: StandingBody,
}

/// A condition. `Programmed` is one only if the configuration decides it; otherwise acknowledgements do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fact {
    /// The type: one of [`condition`].
    pub kind: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: Arc<str>,
}

impl Fact {
    /// A condition that holds.
    pub fn yes(kind: &'static str, reason: &'static str, message: impl Into<Arc<str>>) -> Fact {
        Fact { kind, holds: true, reason, message: message.into() }
    }

    /// A condition that does not hold.
    pub fn no(kind: &'static str, reason: &'static str, message: impl Into<Arc<str>>) -> Fact {
        Fact { kind, holds: false, reason, message: message.into() }
    }
}

/// The fields of a status beside its conditions.
#[derive(Clone, PartialEq, Debug)]
pub enum StandingBody {
    /// A GatewayClass or an XMesh.
    Class {
        /// Names of the supported features, sorted.
        features: &'static [&'static str],
    },
    /// A Gateway.
    Gateway {
        /// The addresses.
        addresses: Vec<StatusAddress>,
        /// `HOST:PORT` of the services that clients reach it by. A part of a message only.
        services: Vec<Arc<str>>,
        /// The listeners, in their order.
        listeners: Vec<ListenerStanding>,
        /// The number of ListenerSets that are attached and accepted; none if the Gateway does not say which ones may be.
        sets: Option<usize>,
    },
    /// A ListenerSet.
    ListenerSet {
        /// The listeners, in their order.
        listeners: Vec<ListenerStanding>,
    },
    /// A route.
    Route {
        /// The Gateways of served classes and the services that it refers to, in the order of `parentRefs`.
        parents: Vec<ParentStanding>,
    },
    /// A policy for backends.
    Policy {
        /// The Gateways that send requests to its targets, and the targets that no Gateway sends requests to.
        ancestors: Vec<ParentStanding>,
    },
    /// An InferencePool.
    Pool {
        /// The Gateways whose routes refer to it.
        parents: Vec<ParentStanding>,
    },
}

/// An address of a Gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StatusAddress {
    /// The type.
    pub kind: Arc<str>,
    /// The address.
    pub value: Arc<str>,
}

/// The facts about a listener.
#[derive(Clone, PartialEq, Debug)]
pub struct ListenerStanding {
    /// The name.
    pub name: Arc<str>,
    /// The kinds of routes that may attach.
    pub kinds: Vec<RouteKind>,
    /// The number of routes that attach.
    pub attached: usize,
    /// The conditions.
    pub conditions: Vec<Fact>,
}

/// The facts about a route, a policy or a pool at a Gateway or service.
#[derive(Clone, PartialEq, Debug)]
pub struct ParentStanding {
    /// The reference, as in the route.
    pub parent: ParentReference,
    /// The controller of the Gateway's class, or that of services.
    pub controller: &'static str,
    /// The conditions.
    pub conditions: Vec<Fact>,
}
