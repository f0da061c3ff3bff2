//! GRPCRoute: where gRPC requests go.

use std::sync::Arc;

use crate::gateway_api::filter::GrpcRouteFilter;
use crate::gateway_api::http_route::*;
use crate::gateway_api::reference::ParentReference;
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::*;

/// In CEL: the matches of all rules are not too many.
const MATCHES_RULE: &str = "(self.size() > 0 ? (has(self[0].matches) ? self[0].matches.size() : 0) : 0) + (self.size() > 1 ? (has(self[1].matches) ? self[1].matches.size() : 0) : 0) + (self.size() > 2 ? (has(self[2].matches) ? self[2].matches.size() : 0) : 0) + (self.size() > 3 ? (has(self[3].matches) ? self[3].matches.size() : 0) : 0) + (self.size() > 4 ? (has(self[4].matches) ? self[4].matches.size() : 0) : 0) + (self.size() > 5 ? (has(self[5].matches) ? self[5].matches.size() : 0) : 0) + (self.size() > 6 ? (has(self[6].matches) ? self[6].matches.size() : 0) : 0) + (self.size() > 7 ? (has(self[7].matches) ? self[7].matches.size() : 0) : 0) + (self.size() > 8 ? (has(self[8].matches) ? self[8].matches.size() : 0) : 0) + (self.size() > 9 ? (has(self[9].matches) ? self[9].matches.size() : 0) : 0) + (self.size() > 10 ? (has(self[10].matches) ? self[10].matches.size() : 0) : 0) + (self.size() > 11 ? (has(self[11].matches) ? self[11].matches.size() : 0) : 0) + (self.size() > 12 ? (has(self[12].matches) ? self[12].matches.size() : 0) : 0) + (self.size() > 13 ? (has(self[13].matches) ? self[13].matches.size() : 0) : 0) + (self.size() > 14 ? (has(self[14].matches) ? self[14].matches.size() : 0) : 0) + (self.size() > 15 ? (has(self[15].matches) ? self[15].matches.size() : 0) : 0) <= 128";
/// In CEL: filters that there can be one of.
const FILTERS_RULE: &str =
    "['RequestHeaderModifier', 'ResponseHeaderModifier'].all(t, self.filter(f, f.type == t).size() <= 1)";
/// What is said when there are more.
const FILTERS_MESSAGE: &str = "a filter of this type cannot be repeated";

message! {
    /// Where gRPC requests go that arrive at a Gateway's listener, or that leave for a service of the mesh.
    pub struct GrpcRoute {
        /// The Gateways, ListenerSets or Services that the route is attached to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route is attached to default gateways, too.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Host names that it is about, perhaps with `*.` at the beginning; empty: those of the listener.
        pub hostnames: Vec<Arc<str>> where [max 16, items(min 1, max 253, pattern HOSTNAME)],
        /// What happens to requests; the rule with the most precise match wins.
        pub rules: Vec<GrpcRouteRule> where [
            max 16, rule MATCHES_RULE MATCHES_MESSAGE, rule RULE_NAMES_RULE RULE_NAMES_MESSAGE,
        ],
    }
}

message! {
    /// When a rule applies, and what happens then.
    pub struct GrpcRouteRule {
        /// A name, unique in the route.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The rule applies when one of these does; empty means always.
        pub matches: Vec<GrpcRouteMatch> where [max 64],
        /// What happens to requests and responses, in this order.
        pub filters: Vec<GrpcRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
        /// Where requests go, by weight. Without any they are answered with UNAVAILABLE.
        pub backend_refs: Vec<GrpcBackendRef> where [max 16],
        /// Requests of a session go to the same backend.
        pub session_persistence: Option<SessionPersistence>,
    }
}

message! {
    /// Where requests go, with a share and what happens on this way only.
    pub struct GrpcBackendRef where [
        rule "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true" "a reference to a Service needs a port",
    ] {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [max 253, pattern GROUP, default ""],
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Service"] = "Service".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same. Another one needs a ReferenceGrant there.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
        /// Its port; needed for a Service.
        pub port: Option<u16> where [min 1, max 65535],
        /// Its share: this weight in relation to the sum of all. 0 means nothing.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
        /// What happens to requests that go here, after what the rule says.
        pub filters: Vec<GrpcRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
    }
}

message! {
    /// Conditions on a request, all of which must hold.
    pub struct GrpcRouteMatch {
        /// Its service and method; absent means any.
        pub method: Option<GrpcMethodMatch>,
        /// Its headers, each of them.
        pub headers: Vec<GrpcHeaderMatch> where [max 16, key name],
    }
}

message! {
    /// A condition on service and method.
    pub struct GrpcMethodMatch where [
        rule "has(self.service) || has(self.method)" "service or method is needed",
        rule "(!has(self.type) || self.type == 'Exact') && has(self.service) ? self.service.matches(r\"\"\"^(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*$\"\"\") : true"
            "a service is names of letters, digits and _, joined by dots",
        rule "(!has(self.type) || self.type == 'Exact') && has(self.method) ? self.method.matches(r\"\"\"^[A-Za-z_][A-Za-z_0-9]*$\"\"\") : true"
            "a method is a name of letters, digits and _",
    ] {
        /// How they are compared.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// The service, with its package; absent means any.
        pub service: Option<Arc<str>> where [max 1024],
        /// The method; absent means any.
        pub method: Option<Arc<str>> where [max 1024],
    }
}

message! {
    /// A condition on a header.
    pub struct GrpcHeaderMatch {
        /// How it is compared.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Its name; case does not count.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Its value.
        pub value: Arc<str> where [required, min 1, max 4096],
    }
}
