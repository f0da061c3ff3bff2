//! TLSRoute, TCPRoute and UDPRoute: routing of connections and datagrams.

use std::sync::Arc;

use crate::gateway_api::http_route::DefaultGateways;
use crate::gateway_api::reference::*;
use crate::gateway_api::text::{DNS_NAME, HOSTNAME};

route! {
    /// Routes TLS connections by SNI.
    pub struct TlsRoute {
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

route! {
    /// Routes TCP connections.
    pub struct TcpRoute {
        /// Routing rule. Exactly one is required.
        pub rules: Vec<L4RouteRule> where [required, min 1, max 1],
    }
}

route! {
    /// Routes UDP datagrams.
    pub struct UdpRoute {
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
