//! HTTPRoute: where HTTP requests go.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::filter::HttpRouteFilter;
use crate::gateway_api::reference::ParentReference;
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::*;

/// In CEL: one parent twice is told apart by section or port.
pub(crate) const PARENTS_RULE: &str = "self.all(p1, self.all(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.__namespace__) || p1.__namespace__ == '') && (!has(p2.__namespace__) || p2.__namespace__ == '')) || (has(p1.__namespace__) && has(p2.__namespace__) && p1.__namespace__ == p2.__namespace__)) ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '') && (!has(p1.port) || p1.port == 0) == (!has(p2.port) || p2.port == 0)) : true))";
/// What is said when it is not.
pub(crate) const PARENTS_MESSAGE: &str = "a parent that is named more than once needs sectionName or port each time";
/// In CEL: no parent is there twice.
pub(crate) const DISTINCT_PARENTS_RULE: &str = "self.all(p1, self.exists_one(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.__namespace__) || p1.__namespace__ == '') && (!has(p2.__namespace__) || p2.__namespace__ == '')) || (has(p1.__namespace__) && has(p2.__namespace__) && p1.__namespace__ == p2.__namespace__)) && (((!has(p1.sectionName) || p1.sectionName == '') && (!has(p2.sectionName) || p2.sectionName == '')) || (has(p1.sectionName) && has(p2.sectionName) && p1.sectionName == p2.sectionName)) && (((!has(p1.port) || p1.port == 0) && (!has(p2.port) || p2.port == 0)) || (has(p1.port) && has(p2.port) && p1.port == p2.port))))";
/// What is said when one is.
pub(crate) const DISTINCT_PARENTS_MESSAGE: &str = "the same part of a parent is named twice";
/// In CEL: names of rules are unique.
pub(crate) const RULE_NAMES_RULE: &str =
    "self.all(l1, !has(l1.name) || self.exists_one(l2, has(l2.name) && l1.name == l2.name))";
/// What is said when they are not.
pub(crate) const RULE_NAMES_MESSAGE: &str = "the names of rules must be unique";
/// What is said when a route has too many matches.
pub(crate) const MATCHES_MESSAGE: &str = "all rules together can have 128 matches";
/// In CEL: the matches of all rules are not too many.
const MATCHES_RULE: &str = "(self.size() > 0 ? self[0].matches.size() : 0) + (self.size() > 1 ? self[1].matches.size() : 0) + (self.size() > 2 ? self[2].matches.size() : 0) + (self.size() > 3 ? self[3].matches.size() : 0) + (self.size() > 4 ? self[4].matches.size() : 0) + (self.size() > 5 ? self[5].matches.size() : 0) + (self.size() > 6 ? self[6].matches.size() : 0) + (self.size() > 7 ? self[7].matches.size() : 0) + (self.size() > 8 ? self[8].matches.size() : 0) + (self.size() > 9 ? self[9].matches.size() : 0) + (self.size() > 10 ? self[10].matches.size() : 0) + (self.size() > 11 ? self[11].matches.size() : 0) + (self.size() > 12 ? self[12].matches.size() : 0) + (self.size() > 13 ? self[13].matches.size() : 0) + (self.size() > 14 ? self[14].matches.size() : 0) + (self.size() > 15 ? self[15].matches.size() : 0) <= 128";
/// In CEL: filters that there can be one of.
const FILTERS_RULE: &str = "!(self.exists(f, f.type == 'RequestRedirect') && self.exists(f, f.type == 'URLRewrite')) && ['RequestHeaderModifier', 'ResponseHeaderModifier', 'RequestRedirect', 'URLRewrite', 'CORS'].all(t, self.filter(f, f.type == t).size() <= 1)";
/// What is said when there are more.
const FILTERS_MESSAGE: &str =
    "a filter of this type cannot be repeated, and RequestRedirect and URLRewrite exclude each other";

message! {
    /// Where HTTP requests go that arrive at a Gateway's listener, or that leave for a service of the mesh.
    pub struct HttpRoute {
        /// The Gateways, ListenerSets or Services that the route is attached to.
        pub parent_refs: Vec<ParentReference> where [
            max 32, rule PARENTS_RULE PARENTS_MESSAGE, rule DISTINCT_PARENTS_RULE DISTINCT_PARENTS_MESSAGE,
        ],
        /// Whether the route is attached to default gateways, too.
        pub use_default_gateways: Option<DefaultGateways>,
        /// Host names that it is about, perhaps with `*.` at the beginning; empty: those of the listener.
        pub hostnames: Vec<Arc<str>> where [max 16, items(min 1, max 253, pattern HOSTNAME)],
        /// What happens to requests; the rule with the most precise match wins.
        pub rules: Vec<HttpRouteRule> where [
            min 1, max 16, rule MATCHES_RULE MATCHES_MESSAGE, rule RULE_NAMES_RULE RULE_NAMES_MESSAGE,
            default [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}],
        ] = vec![HttpRouteRule::default()],
    }
}

enumeration! {
    /// Whether a route is attached to default gateways.
    pub enum DefaultGateways {
        /// It is.
        #[default]
        All = "All",
        /// It is not.
        None = "None",
    }
}

message! {
    /// When a rule applies, and what happens then.
    pub struct HttpRouteRule where [
        rule "(has(self.backendRefs) && size(self.backendRefs) > 0) ? (!has(self.filters) || self.filters.all(f, !has(f.requestRedirect))) : true"
            "a rule with a RequestRedirect has no backendRefs",
        rule "(has(self.filters) && self.filters.exists(f, (has(f.requestRedirect) && has(f.requestRedirect.path) && f.requestRedirect.path.type == 'ReplacePrefixMatch') || (has(f.urlRewrite) && has(f.urlRewrite.path) && f.urlRewrite.path.type == 'ReplacePrefixMatch'))) ? (size(self.matches) == 1 && has(self.matches[0].path) && self.matches[0].path.type == 'PathPrefix') : true"
            "replacePrefixMatch needs exactly one match, of a path prefix",
        rule "(has(self.backendRefs) && self.backendRefs.exists(b, has(b.filters) && b.filters.exists(f, (has(f.requestRedirect) && has(f.requestRedirect.path) && f.requestRedirect.path.type == 'ReplacePrefixMatch') || (has(f.urlRewrite) && has(f.urlRewrite.path) && f.urlRewrite.path.type == 'ReplacePrefixMatch')))) ? (size(self.matches) == 1 && has(self.matches[0].path) && self.matches[0].path.type == 'PathPrefix') : true"
            "replacePrefixMatch of a backend needs exactly one match, of a path prefix",
    ] {
        /// A name, unique in the route.
        pub name: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The rule applies when one of these does.
        pub matches: Vec<HttpRouteMatch> where [
            max 64, default [{"path": {"type": "PathPrefix", "value": "/"}}],
        ] = vec![HttpRouteMatch::default()],
        /// What happens to requests and responses, in this order.
        pub filters: Vec<HttpRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
        /// Where requests go, by weight. Without any they are answered with 500, unless a filter answers.
        pub backend_refs: Vec<HttpBackendRef> where [max 16],
        /// How long things may take.
        pub timeouts: Option<HttpRouteTimeouts>,
        /// When requests are repeated.
        pub retry: Option<HttpRouteRetry>,
        /// Requests of a session go to the same backend.
        pub session_persistence: Option<SessionPersistence>,
    }
}

message! {
    /// Where requests go, with a share and what happens on this way only.
    pub struct HttpBackendRef where [
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
        pub filters: Vec<HttpRouteFilter> where [max 16, rule FILTERS_RULE FILTERS_MESSAGE],
    }
}

message! {
    /// Conditions on a request, all of which must hold.
    pub struct HttpRouteMatch {
        /// Its path.
        pub path: HttpPathMatch where [default {"type": "PathPrefix", "value": "/"}],
        /// Its headers, each of them.
        pub headers: Vec<HttpHeaderMatch> where [max 16, key name],
        /// Its query parameters, each of them.
        pub query_params: Vec<HttpQueryParamMatch> where [max 16, key name],
        /// Its method; absent means any.
        pub method: Option<HttpMethod>,
    }
}

message! {
    /// A condition on a path.
    pub struct HttpPathMatch where [
        rule "self.type == 'RegularExpression' || self.value.startsWith('/')" "a path begins with /",
        rule "self.type == 'RegularExpression' || !['//', '/./', '/../', '%2f', '%2F', '#'].exists(x, self.value.contains(x))"
            "a path has no //, /./, /../, %2f, %2F or # in it",
        rule "self.type == 'RegularExpression' || !(self.value.endsWith('/..') || self.value.endsWith('/.'))"
            "a path does not end in /. or /..",
        rule "self.type == 'RegularExpression' || self.value.matches(r\"\"\"^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$\"\"\")"
            "a path has the characters that paths may have",
    ] {
        /// How it is compared.
        pub kind: PathMatchType as "type" where [default "PathPrefix"],
        /// The path, prefix or regular expression.
        pub value: Arc<str> where [max 1024, default "/"] = "/".into(),
    }
}

enumeration! {
    /// How a path is compared.
    pub enum PathMatchType {
        /// Segment by segment: `/a` matches `/a` and `/a/b`, but not `/ab`.
        #[default]
        PathPrefix = "PathPrefix",
        /// It is equal.
        Exact = "Exact",
        /// The regular expression (RE2) matches all of it.
        RegularExpression = "RegularExpression",
    }
}

enumeration! {
    /// How a text is compared.
    pub enum TextMatchType {
        /// It is equal.
        #[default]
        Exact = "Exact",
        /// The regular expression (RE2) matches all of it.
        RegularExpression = "RegularExpression",
    }
}

message! {
    /// A condition on a header.
    pub struct HttpHeaderMatch {
        /// How it is compared.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Its name; case does not count.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Its value.
        pub value: Arc<str> where [required, min 1, max 4096, pattern HEADER_VALUE],
    }
}

message! {
    /// A condition on a query parameter.
    pub struct HttpQueryParamMatch {
        /// How it is compared.
        pub kind: TextMatchType as "type" where [default "Exact"],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Its value.
        pub value: Arc<str> where [required, min 1, max 1024],
    }
}

enumeration! {
    /// The method of a request.
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
    /// How long things may take.
    pub struct HttpRouteTimeouts where [
        rule "!(has(self.request) && has(self.backendRequest) && duration(self.request) != duration('0s') && duration(self.backendRequest) > duration(self.request))"
            "backendRequest must not be longer than request",
    ] {
        /// From a request to the end of its response; zero: no limit; absent: the controller's choice.
        pub request: Option<GatewayDuration>,
        /// One attempt to get a response from a backend; zero: no limit; absent: the controller's choice.
        pub backend_request: Option<GatewayDuration>,
    }
}

message! {
    /// When requests are repeated.
    pub struct HttpRouteRetry {
        /// Status codes of backends after which they are, 400 to 599.
        pub codes: Vec<u32> where [set, items(min 400, max 599)],
        /// How often at most; absent: the controller's choice.
        pub attempts: Option<u32> where [min 1],
        /// How long to wait at least before that; absent: the controller's choice.
        pub backoff: Option<GatewayDuration>,
    }
}
