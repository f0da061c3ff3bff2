//! Classes of proxies.

use std::sync::Arc;

use crate::service::ObjectId;

/// The class of a proxy, with the facts `S` that matter to sidecars only and the facts `G` that matter to gateways only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ProxyClass<S, G> {
    /// Envoy beside a workload.
    Sidecar(S),
    /// Envoy configured by `Gateway` objects.
    Gateway(G),
    /// Envoy that applies layer 7 rules in ambient mode.
    Waypoint,
    /// The node proxy of ambient mode.
    Ztunnel,
    /// A gRPC library that is an xDS client itself.
    Grpc,
}

impl<S, G> ProxyClass<S, G> {
    /// The facts of a sidecar; none for other classes.
    pub fn sidecar(&self) -> Option<&S> {
        match self {
            ProxyClass::Sidecar(facts) => Some(facts),
            _ => None,
        }
    }

    /// The facts of a gateway; none for other classes.
    pub fn gateway(&self) -> Option<&G> {
        match self {
            ProxyClass::Gateway(facts) => Some(facts),
            _ => None,
        }
    }
}

/// Facts that matter to gateways only.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct GatewayFacts {
    /// The servers of the gateway.
    pub set: GatewaySet,
    /// UDP ports of the gateway's services, ascending, at which HTTP/3 may be served; empty unless the mesh enables HTTP/3.
    pub udp_ports: Arc<[u16]>,
}

/// The `Gateway` objects that configure a proxy.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct GatewaySet {
    /// The objects that select the proxy, in order of precedence.
    pub gateways: Arc<[ObjectId]>,
    /// The Gateways of the Gateway API that the proxy serves, in order of precedence, behind those.
    pub kube: Arc<[ObjectId]>,
    /// Port of a service of the gateway → target port at the workload, ascending, only where they differ.
    pub ports: Arc<[(u16, u16)]>,
}
