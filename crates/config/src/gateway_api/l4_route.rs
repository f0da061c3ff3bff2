//! TLSRoute, TCPRoute and UDPRoute: where connections and datagrams go.

use std::sync::Arc;

use crate::gateway_api::http_route::{
    DISTINCT_PARENTS_MESSAGE, DISTINCT_PARENTS_RULE, DefaultGateways, PARENTS_MESSAGE, PARENTS_RULE,
};
use crate::gateway_api::reference::{BackendRef, ParentReference};
use crate::gateway_api::text::{DNS_NAME, HOSTNAME};

message! {
    /// Where TLS connections go, which are not terminated before.
    pub struct TlsRoute {
        /// The Gateways, ListenerSets or Services that the route is attached to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route is attached to default gateways, too.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Server names that it is about, perhaps with `*.` at the beginning.
        pub hostnames: Vec<Arc<str>> where [
            required, min 1, max 1024,
            rule "self.all(h, !isIP(h))" "a server name cannot be an IP address",
            items(min 1, max 253, pattern HOSTNAME),
        ],
        /// Where they go: exactly one rule.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Where TCP connections go.
    pub struct TcpRoute {
        /// The Gateways, ListenerSets or Services that the route is attached to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route is attached to default gateways, too.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Where they go: exactly one rule.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Where datagrams go.
    pub struct UdpRoute {
        /// The Gateways, ListenerSets or Services that the route is attached to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route is attached to default gateways, too.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Where they go: exactly one rule.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

message! {
    /// Where connections or datagrams go.
    pub struct L4RouteRule {
        /// A name.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The backends, by weight.
        pub backend_refs: Vec<BackendRef> where [required, min 1, max 16],
    }
}
