//! VirtualService: where requests and connections to a host go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::http_route::*;
use crate::object::StringMap;

message! {
    /// Routes for one or more hosts.
    pub struct VirtualService {
        /// The hosts: names, short names of services in the same namespace, wildcards, or IP addresses.
        pub hosts: Vec<Arc<str>>,
        /// Gateways, as `name` or `namespace/name`, and `mesh` for the sidecars. Empty: `mesh` only.
        pub gateways: Vec<Arc<str>>,
        /// Routes for HTTP; the first that matches wins.
        pub http: Vec<HttpRoute>,
        /// Routes for TLS that is not terminated, by server name; the first that matches wins.
        pub tls: Vec<TlsRoute>,
        /// Routes for other TCP; the first that matches wins.
        pub tcp: Vec<TcpRoute>,
        /// Namespaces that see the routes: `.`, `*` or names. Empty: the mesh's default, else everybody.
        pub export_to: Vec<Arc<str>>,
    }
}

impl VirtualService {
    /// The name that stands for all sidecars in `gateways`.
    pub const MESH: &'static str = "mesh";

    /// Whether the routes apply to sidecars.
    pub fn applies_to_mesh(&self) -> bool {
        self.gateways.is_empty() || self.gateways.iter().any(|g| &**g == VirtualService::MESH)
    }

    /// Whether it has no hosts of its own: another VirtualService delegates to it.
    pub fn is_delegate(&self) -> bool {
        self.hosts.is_empty()
    }
}

message! {
    /// One rule for HTTP: when it applies and what happens then.
    pub struct HttpRoute {
        /// A name for logs and Envoy's route name.
        pub name: Arc<str>,
        /// The rule applies when one of these does; empty means always.
        pub matches: Vec<HttpMatchRequest> as "match",
        /// Destinations with weights.
        pub route: Vec<HttpRouteDestination>,
        /// Answer with a redirect instead.
        pub redirect: Option<HttpRedirect>,
        /// Answer with a fixed response instead.
        pub direct_response: Option<HttpDirectResponse>,
        /// Leave it to another VirtualService instead.
        pub delegate: Option<Delegate>,
        /// Rewrite the request before it is forwarded.
        pub rewrite: Option<HttpRewrite>,
        /// The time for a whole response; absent or zero: none.
        pub timeout: Option<Duration>,
        /// Retries; absent: the mesh's default.
        pub retries: Option<HttpRetry>,
        /// Faults to inject.
        pub fault: Option<HttpFaultInjection>,
        /// Where to send a copy of requests (see `mirrors`).
        pub mirror: Option<Destination>,
        /// Where to send copies of requests.
        pub mirrors: Vec<HttpMirrorPolicy>,
        /// Percentage of requests to mirror, deprecated; absent: all.
        pub mirror_percent: Option<u32> where [nullable],
        /// Percentage of requests to mirror; absent: all.
        pub mirror_percentage: Option<Percent>,
        /// Cross-origin resource sharing.
        pub cors_policy: Option<CorsPolicy>,
        /// Headers to change for all destinations.
        pub headers: Option<Headers>,
    }
}

/// What an [`HttpRoute`] does with a request: exactly one thing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HttpAction<'a> {
    /// Forward to one of these, by weight.
    Route(&'a [HttpRouteDestination]),
    /// Answer with a redirect.
    Redirect(&'a HttpRedirect),
    /// Answer with a fixed response.
    DirectResponse(&'a HttpDirectResponse),
    /// Leave it to another VirtualService.
    Delegate(&'a Delegate),
}

impl HttpRoute {
    /// What the rule does.
    pub fn action(&self) -> HttpAction<'_> {
        match self {
            HttpRoute {
                redirect: Some(redirect),
                ..
            } => HttpAction::Redirect(redirect),
            HttpRoute {
                direct_response: Some(response),
                ..
            } => HttpAction::DirectResponse(response),
            HttpRoute {
                delegate: Some(delegate),
                ..
            } => HttpAction::Delegate(delegate),
            _ => HttpAction::Route(&self.route),
        }
    }
}

message! {
    /// A rule for TLS that is not terminated.
    pub struct TlsRoute {
        /// The rule applies when one of these does. At least one.
        pub matches: Vec<TlsMatchAttributes> as "match" where [required],
        /// Destinations with weights.
        pub route: Vec<RouteDestination>,
    }
}

message! {
    /// A rule for TCP connections.
    pub struct TcpRoute {
        /// The rule applies when one of these does; empty means always.
        pub matches: Vec<L4MatchAttributes> as "match",
        /// Destinations with weights.
        pub route: Vec<RouteDestination>,
    }
}

message! {
    /// Conditions on a request, all of which must hold.
    pub struct HttpMatchRequest {
        /// A name, appended to the route's.
        pub name: Arc<str>,
        /// The path.
        pub uri: Option<StringMatch>,
        /// `:scheme`.
        pub scheme: Option<StringMatch>,
        /// `:method`.
        pub method: Option<StringMatch>,
        /// `:authority`.
        pub authority: Option<StringMatch>,
        /// Headers by lower-case name; [`StringMatch::Present`] means that the header is there.
        pub headers: BTreeMap<Arc<str>, StringMatch>,
        /// The port that the client meant; 0 means any.
        pub port: u32,
        /// Labels of the workload that sends; only for sidecars.
        pub source_labels: StringMap,
        /// Gateways to which the rule applies, instead of the VirtualService's.
        pub gateways: Vec<Arc<str>>,
        /// Query parameters; [`StringMatch::Present`] means that the parameter is there.
        pub query_params: BTreeMap<Arc<str>, StringMatch>,
        /// Whether `uri` ignores case; not for regular expressions.
        pub ignore_uri_case: bool,
        /// Headers that must not match.
        pub without_headers: BTreeMap<Arc<str>, StringMatch>,
        /// The namespace of the workload that sends; only for sidecars.
        pub source_namespace: Arc<str>,
        /// A prefix for the statistics of the route.
        pub stat_prefix: Arc<str>,
    }
}

choice! {
    /// A condition on a text.
    pub enum StringMatch {
        /// There is a text, whatever it is (`{}`).
        else Present,
        /// It is equal.
        Exact(Arc<str>) = "exact",
        /// It begins so.
        Prefix(Arc<str>) = "prefix",
        /// The regular expression (RE2 syntax) matches all of it.
        Regex(Arc<str>) = "regex",
    }
}

message! {
    /// A destination of HTTP requests.
    pub struct HttpRouteDestination {
        /// Where to.
        pub destination: Destination where [required],
        /// The share of requests; may be absent where there is one destination only.
        pub weight: i32,
        /// Headers to change for this destination.
        pub headers: Option<Headers>,
    }
}

message! {
    /// A destination of connections.
    pub struct RouteDestination {
        /// Where to.
        pub destination: Destination where [required],
        /// The share of connections; may be absent where there is one destination only.
        pub weight: i32,
    }
}

message! {
    /// A service, or a subset of its endpoints.
    pub struct Destination {
        /// The service's host; short names are of the VirtualService's namespace.
        pub host: Arc<str> where [required],
        /// A subset that a DestinationRule defines; empty means all endpoints.
        pub subset: Arc<str>,
        /// The service's port; may be absent where the service has one port only.
        pub port: Option<PortSelector>,
    }
}

message! {
    /// A port by its number.
    pub struct PortSelector {
        /// The number.
        pub number: u32,
    }
}

message! {
    /// Conditions on a TCP connection, all of which must hold.
    pub struct L4MatchAttributes {
        /// Destination addresses: IP addresses or CIDR ranges.
        pub destination_subnets: Vec<Arc<str>>,
        /// The destination port; 0 means any.
        pub port: u32,
        /// Unused, by Istio too.
        pub source_subnet: Arc<str>,
        /// Labels of the workload that connects.
        pub source_labels: StringMap,
        /// Gateways to which the rule applies, instead of the VirtualService's.
        pub gateways: Vec<Arc<str>>,
        /// The namespace of the workload that connects.
        pub source_namespace: Arc<str>,
    }
}

message! {
    /// Conditions on a TLS connection, all of which must hold.
    pub struct TlsMatchAttributes {
        /// Server names; wildcards are allowed. At least one, each within the VirtualService's hosts.
        pub sni_hosts: Vec<Arc<str>> where [required],
        /// Destination addresses: IP addresses or CIDR ranges.
        pub destination_subnets: Vec<Arc<str>>,
        /// The destination port; 0 means any.
        pub port: u32,
        /// Labels of the workload that connects.
        pub source_labels: StringMap,
        /// Gateways to which the rule applies, instead of the VirtualService's.
        pub gateways: Vec<Arc<str>>,
        /// The namespace of the workload that connects.
        pub source_namespace: Arc<str>,
    }
}
