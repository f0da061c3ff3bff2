//! HTTPRoute: routing of HTTP requests.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::filter::HttpRouteFilter;
use crate::gateway_api::reference::*;
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::*;

/// CEL rule: names of rules must be unique.
pub(crate) const RULE_NAMES_RULE: &str =
    "self.all(l1, !has(l1.name) || self.exists_one(l2, has(l2.name) && l1.name == l2.name))";
/// Message of [`RULE_NAMES_RULE`].
pub(crate) const RULE_NAMES_MESSAGE: &str = "rule names must be unique";
/// Message of the rule that limits the total number of matches.
pub(crate) const MATCHES_MESSAGE: &str = "the total number of matches of all rules must not exceed 128";
/// CEL rule: limits the total number of matches.
const MATCHES_RULE: &str = "(self.size() > 0 ? self[0].matches.size() : 0) + (self.size() > 1 ? self[1].matches.size() : 0) + (self.size() > 2 ? self[2].matches.size() : 0) + (self.size() > 3 ? self[3].matches.size() : 0) + (self.size() > 4 ? self[4].matches.size() : 0) + (self.size() > 5 ? self[5].matches.size() : 0) + (self.size() > 6 ? self[6].matches.size() : 0) + (self.size() > 7 ? self[7].matches.size() : 0) + (self.size() > 8 ? self[8].matches.size() : 0) + (self.size() > 9 ? self[9].matches.size() : 0) + (self.size() > 10 ? self[10].matches.size() : 0) + (self.size() > 11 ? self[11].matches.size() : 0) + (self.size() > 12 ? self[12].matches.size() : 0) + (self.size() > 13 ? self[13].matches.size() : 0) + (self.size() > 14 ? self[14].matches.size() : 0) + (self.size() > 15 ? self[15].matches.size() : 0) <= 128";
/// CEL rule: filters that must not be repeated or combined.
const FILTERS_RULE: &str = "!(self.exists(f, f.type == 'RequestRedirect') && self.exists(f, f.type == 'URLRewrite')) && ['RequestHeaderModifier', 'ResponseHeaderModifier', 'RequestRedirect', 'URLRewrite', 'CORS'].all(t, self.filter(f, f.type == t).size() <= 1)";
/// Message of [`FILTERS_RULE`].
const FILTERS_MESSAGE: &str =
    "a filter of this type must not be repeated, and RequestRedirect and URLRewrite are mutually exclusive";

route! {
    /// Routes HTTP requests that arrive at a Gateway's listener, or that are sent to a Service in the mesh.
    pub struct HttpRoute {
        /// Host names of the requests, optionally with the prefix `*.`. If empty, the host names of the listener apply.
        pub hostnames: Vec<Arc<str>> where [max 16, items(min 1, max 253, pattern HOSTNAME)],
        /// Routing rules. The rule with the most specific match applies.
        pub rules: Vec<HttpRouteRule> where [
            min 1, max 16, rule MATCHES_RULE MATCHES_MESSAGE, rule RULE_NAMES_RULE RULE_NAMES_MESSAGE,
            default [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}],
        ] = vec![HttpRouteRule::default()],
    }
}

enumeration! {
    /// Whether a route attaches to default gateways.
    pub enum DefaultGateways {
        /// Attaches to all default gateways.
        #[default]
        All = "All",
        /// Does not attach to default gateways.
        None = "None",
    }
}

message! {
    /// Routing rule: match conditions, filters and backends.
    pub struct HttpRouteRule: Relations where [
        rule "(has(self.backendRefs) && size(self.backendRefs) > 0) ? (!has(self.filters) || self.filters.all(f, !has(f.requestRedirect))) : true"
            "backendRefs must be empty in a rule with a RequestRedirect",
        rule "(has(self.filters) && self.filters.exists(f, (has(f.requestRedirect) && has(f.requestRedirect.path) && f.requestRedirect.path.type == 'ReplacePrefixMatch') || (has(f.urlRewrite) && has(f.urlRewrite.path) && f.urlRewrite.path.type == 'ReplacePrefixMatch'))) ? (size(self.matches) == 1 && has(self.matches[0].path) && self.matches[0].path.type == 'PathPrefix') : true"
            "replacePrefixMatch requires exactly one match, with the path type PathPrefix",
        rule "(has(self.backendRefs) && self.backendRefs.exists(b, has(b.filters) && b.filters.exists(f, (has(f.requestRedirect) && has(f.requestRedirect.path) && f.requestRedirect.path.type == 'ReplacePrefixMatch') || (has(f.urlRewrite) && has(f.urlRewrite.path) && f.urlRewrite.path.type == 'ReplacePrefixMatch')))) ? (size(self.matches) == 1 && has(self.matches[0].path) && self.matches[0].path.type == 'PathPrefix') : true"
            "replacePrefixMatch of a backend requires exactly one match, with the path type PathPrefix",
    ] {
        /// Name of the rule, unique within the route.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Match conditions, of which at least one must match.
        pub matches: Vec<HttpRouteMatch> where [
            max 64, default [{"path": {"type": "PathPrefix", "value": "/"}}],
        ] = vec![HttpRouteMatch::default()],
        /// Filters, applied in order.
        pub filters: Vec<HttpRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
        /// Backends with weights. If empty, requests fail with status code 500 unless a filter responds.
        pub backend_refs: Vec<HttpBackendRef> where [max 16],
        /// Timeouts of requests.
        pub timeouts: Option<HttpRouteTimeouts>,
        /// Retry policy.
        pub retry: Option<HttpRouteRetry>,
        /// Session persistence: requests of a session are sent to the same backend.
        pub session_persistence: Option<SessionPersistence>,
    }
}

backend! {
    /// Backend of a rule, with a weight and filters.
    pub struct HttpBackendRef {
        /// Proportion of requests: the weight divided by the sum of all weights. 0 means no requests.
        pub weight: u32 where [min 0, max 1000000, default 1] = 1,
        /// Filters for requests to this backend, applied after those of the rule.
        pub filters: Vec<HttpRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
    }
}

message! {
    /// Conditions on a request, all of which must match.
    pub struct HttpRouteMatch {
        /// Condition on the path.
        pub path: HttpPathMatch where [default {"type": "PathPrefix", "value": "/"}],
        /// Conditions on headers, all of which must match.
        pub headers: Vec<HttpHeaderMatch> where [max 16, key name],
        /// Conditions on query parameters, all of which must match.
        pub query_params: Vec<HttpQueryParamMatch> where [max 16, key name],
        /// Method of the request. If omitted, any method matches.
        pub method: Option<HttpMethod>,
    }
}

message! {
    /// Condition on a path.
    pub struct HttpPathMatch: Relations where [
        rule "self.type == 'RegularExpression' || self.value.startsWith('/')" "a path must start with /",
        rule "self.type == 'RegularExpression' || !['//', '/./', '/../', '%2f', '%2F', '#'].exists(x, self.value.contains(x))"
            "a path must not contain //, /./, /../, %2f, %2F or #",
        rule "self.type == 'RegularExpression' || !(self.value.endsWith('/..') || self.value.endsWith('/.'))"
            "a path must not end with /. or /..",
        rule "self.type == 'RegularExpression' || self.value.matches(r\"\"\"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$\"\"\")"
            "a path must contain only valid path characters",
    ] {
        /// Type of comparison.
        pub kind: PathMatchType as "type" where [default "PathPrefix"],
        /// Path, prefix or regular expression.
        pub value: Arc<str> where [max 1024, default "/"] = "/".into(),
    }
}

enumeration! {
    /// Type of path comparison.
    pub enum PathMatchType {
        /// Prefix of whole path segments: `/a` matches `/a` and `/a/b`, but not `/ab`.
        #[default]
        PathPrefix = "PathPrefix",
        /// Equal path.
        Exact = "Exact",
        /// Regular expression (RE2) that must match the whole path.
        RegularExpression = "RegularExpression",
    }
}

enumeration! {
    /// Type of comparison.
    pub enum TextMatchType {
        /// Equal value.
        #[default]
        Exact = "Exact",
        /// Regular expression (RE2) that must match the whole value.
        RegularExpression = "RegularExpression",
    }
}

message! {
    /// Condition on a header.
    pub struct HttpHeaderMatch: Relations {
        /// Type of comparison.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Name of the header, case-insensitive.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Value of the header.
        pub value: Arc<str> where [required, min 1, max 4096, pattern HEADER_VALUE],
    }
}

message! {
    /// Condition on a query parameter.
    pub struct HttpQueryParamMatch: Relations {
        /// Type of comparison.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Name of the query parameter.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Value of the query parameter.
        pub value: Arc<str> where [required, min 1, max 1024],
    }
}

enumeration! {
    /// HTTP method.
    pub enum HttpMethod {
        /// GET
        #[default]
        Get = "GET",
        /// HEAD
        Head = "HEAD",
        /// POST
        Post = "POST",
        /// PUT
        Put = "PUT",
        /// DELETE
        Delete = "DELETE",
        /// CONNECT
        Connect = "CONNECT",
        /// OPTIONS
        Options = "OPTIONS",
        /// TRACE
        Trace = "TRACE",
        /// PATCH
        Patch = "PATCH",
    }
}

message! {
    /// Timeouts of requests.
    pub struct HttpRouteTimeouts where [
        rule "!(has(self.request) && has(self.backendRequest) && duration(self.request) != duration('0s') && duration(self.backendRequest) > duration(self.request))"
            "backendRequest must not be longer than request",
    ] {
        /// Timeout from receiving a request to the end of its response. Zero disables the timeout. If omitted, the
        /// default is implementation-specific.
        pub request: Option<GatewayDuration>,
        /// Timeout of one attempt to get a response from a backend. Zero disables the timeout. If omitted, the default
        /// is implementation-specific.
        pub backend_request: Option<GatewayDuration>,
    }
}

message! {
    /// Retry policy.
    pub struct HttpRouteRetry {
        /// Status codes that are retried, 400 to 599.
        pub codes: Vec<u32> where [set, items(min 400, max 599)],
        /// Maximum number of retries. If omitted, the default is implementation-specific.
        pub attempts: Option<u32> where [min 1],
        /// Minimum time between retries. If omitted, the default is implementation-specific.
        pub backoff: Option<GatewayDuration>,
    }
}
