//! TLSRoute, TCPRoute and UDPRoute: routing of connections and datagrams.

use std::sync::Arc;

use crate::gateway_api::http_route::{
    DISTINCT_PARENTS_MESSAGE, DISTINCT_PARENTS_RULE, DefaultGateways, PARENTS_MESSAGE, PARENTS_RULE,
};
use crate::gateway_api::reference::{BackendRef, ParentReference};
use crate::gateway_api::text::{DNS_NAME, HOSTNAME};

message! {
    /// Routes TLS connections by SNI.
    pub struct TlsRoute {
        /// Gateways, ListenerSets or Services that the route attaches to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route also attaches to default gateways.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Server names (SNI) of the connections, optionally with the prefix `*.`.
        pub hostnames: Vec<Arc<str>> where [
            required, min 1, max 1024,
            rule "self.all(h, !isIP(h))" "a server name must not be an IP address",
            items(min 1, max 253, pattern HOSTNAME),
        ],
        /// Routing rule. Exactly one is required.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Routes TCP connections.
    pub struct TcpRoute {
        /// Gateways, ListenerSets or Services that the route attaches to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route also attaches to default gateways.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Routing rule. Exactly one is required.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Routes UDP datagrams.
    pub struct UdpRoute {
        /// Gateways, ListenerSets or Services that the route attaches to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route also attaches to default gateways.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Routing rule. Exactly one is required.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Routing rule for connections or datagrams.
    pub struct L4RouteRule {
        /// Name of the rule.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Backends with weights.
        pub backend_refs: Vec<BackendRef> where [required, min 1, max 16],
    }
}
