//! GRPCRoute: routing of gRPC requests.

use std::sync::Arc;

use crate::gateway_api::filter::GrpcRouteFilter;
use crate::gateway_api::http_route::*;
use crate::gateway_api::reference::*;
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::*;

/// CEL rule: limits the total number of matches.
const MATCHES_RULE: &str = "(self.size() > 0 ? (has(self[0].matches) ? self[0].matches.size() : 0) : 0) + (self.size() > 1 ? (has(self[1].matches) ? self[1].matches.size() : 0) : 0) + (self.size() > 2 ? (has(self[2].matches) ? self[2].matches.size() : 0) : 0) + (self.size() > 3 ? (has(self[3].matches) ? self[3].matches.size() : 0) : 0) + (self.size() > 4 ? (has(self[4].matches) ? self[4].matches.size() : 0) : 0) + (self.size() > 5 ? (has(self[5].matches) ? self[5].matches.size() : 0) : 0) + (self.size() > 6 ? (has(self[6].matches) ? self[6].matches.size() : 0) : 0) + (self.size() > 7 ? (has(self[7].matches) ? self[7].matches.size() : 0) : 0) + (self.size() > 8 ? (has(self[8].matches) ? self[8].matches.size() : 0) : 0) + (self.size() > 9 ? (has(self[9].matches) ? self[9].matches.size() : 0) : 0) + (self.size() > 10 ? (has(self[10].matches) ? self[10].matches.size() : 0) : 0) + (self.size() > 11 ? (has(self[11].matches) ? self[11].matches.size() : 0) : 0) + (self.size() > 12 ? (has(self[12].matches) ? self[12].matches.size() : 0) : 0) + (self.size() > 13 ? (has(self[13].matches) ? self[13].matches.size() : 0) : 0) + (self.size() > 14 ? (has(self[14].matches) ? self[14].matches.size() : 0) : 0) + (self.size() > 15 ? (has(self[15].matches) ? self[15].matches.size() : 0) : 0) <= 128";
/// CEL rule: header modifiers must not be repeated.
const FILTERS_RULE: &str =
    "['RequestHeaderModifier', 'ResponseHeaderModifier'].all(t, self.filter(f, f.type == t).size() <= 1)";
/// Message of [`FILTERS_RULE`].
const FILTERS_MESSAGE: &str = "a filter of this type must not be repeated";

route! {
    /// Routes gRPC requests that arrive at a Gateway's listener, or that are sent to a Service in the mesh.
    pub struct GrpcRoute {
        /// Host names of the requests, optionally with the prefix `*.`. If empty, the host names of the listener apply.
        pub hostnames: Vec<Arc<str>> where [max 16, items(min 1, max 253, pattern HOSTNAME)],
        /// Routing rules. The rule with the most specific match applies.
        pub rules: Vec<GrpcRouteRule> where [
            max 16, rule MATCHES_RULE MATCHES_MESSAGE, rule RULE_NAMES_RULE RULE_NAMES_MESSAGE,
        ],
    }
}

message! {
    /// Routing rule: match conditions, filters and backends.
    pub struct GrpcRouteRule: Relations {
        /// Name of the rule, unique within the route.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Match conditions, of which at least one must match. If empty, the rule matches all requests.
        pub matches: Vec<GrpcRouteMatch> where [max 64],
        /// Filters, applied in order.
        pub filters: Vec<GrpcRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
        /// Backends with weights. If empty, requests fail with UNAVAILABLE.
        pub backend_refs: Vec<GrpcBackendRef> where [max 16],
        /// Session persistence: requests of a session are sent to the same backend.
        pub session_persistence: Option<SessionPersistence>,
    }
}

backend! {
    /// Backend of a rule, with a weight and filters.
    pub struct GrpcBackendRef {
        /// Proportion of requests: the weight divided by the sum of all weights. 0 means no requests.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
        /// Filters for requests to this backend, applied after those of the rule.
        pub filters: Vec<GrpcRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
    }
}

message! {
    /// Conditions on a request, all of which must match.
    pub struct GrpcRouteMatch {
        /// Condition on the service and method. If omitted, any method matches.
        pub method: Option<GrpcMethodMatch>,
        /// Conditions on headers, all of which must match.
        pub headers: Vec<GrpcHeaderMatch> where [max 16, key name],
    }
}

message! {
    /// Condition on the service and method of a request.
    pub struct GrpcMethodMatch: Relations where [
        rule "has(self.service) || has(self.method)" "service or method is required",
        rule "(!has(self.type) || self.type == 'Exact') && has(self.service) ? self.service.matches(r\"\"\"^(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*$\"\"\") : true"
            "a service must consist of names of letters, digits and underscores, separated by dots",
        rule "(!has(self.type) || self.type == 'Exact') && has(self.method) ? self.method.matches(r\"\"\"^[A-Za-z_][A-Za-z_0-9]*$\"\"\") : true"
            "a method must consist of letters, digits and underscores",
    ] {
        /// Type of comparison.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Fully qualified name of the service. If omitted, any service matches.
        pub service: Option<Arc<str>> where [max 1024],
        /// Name of the method. If omitted, any method matches.
        pub method: Option<Arc<str>> where [max 1024],
    }
}

message! {
    /// Condition on a header.
    pub struct GrpcHeaderMatch: Relations {
        /// Type of comparison.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Name of the header, case-insensitive.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Value of the header.
        pub value: Arc<str> where [required, min 1, max 4096],
    }
}
