//! VirtualService: routing of requests and connections to a host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::destination::{Destination, StringMatch};
use crate::istio::http_route::*;
use crate::object::StringMap;

message! {
    /// Routing rules for one or more hosts.
    pub struct VirtualService: Relations where [any(http, tls, tcp)] {
        /// Hosts that the rules apply to: fully qualified names, short names of services in the same namespace,
        /// wildcards or IP addresses.
        pub hosts: Vec<Arc<str>>,
        /// Gateways that the rules apply to, as `name` or `namespace/name`. `mesh` refers to all sidecars. Defaults to
        /// `mesh`.
        pub gateways: Vec<Arc<str>> where [is gateway_name],
        /// HTTP routes. The first route that matches is used.
        pub http: Vec<HttpRoute>,
        /// Routes for unterminated TLS traffic, matched by SNI. The first route that matches is used.
        pub tls: Vec<TlsRoute>,
        /// Routes for TCP traffic that is neither HTTP nor TLS. The first route that matches is used.
        pub tcp: Vec<TcpRoute>,
        /// Namespaces that the VirtualService is visible in: `.` (its own), `*` (all) or names. If empty, the mesh
        /// configuration's default applies; without one, it is visible in all namespaces.
        pub export_to: Vec<Arc<str>>,
    }
}

impl VirtualService {
    /// Name in `gateways` that refers to all sidecars.
    pub const MESH: &'static str = "mesh";

    /// Returns the full name `namespace/name` of a gateway that a VirtualService in `namespace` names. `mesh` stays as it is.
    /// The legacy form `name.namespace…` is accepted, too.
    pub fn full_gateway(name: &Arc<str>, namespace: &str) -> Arc<str> {
        if &**name == VirtualService::MESH {
            return name.clone();
        }
        if let Some(own) = name.strip_prefix("./") {
            return format!("{namespace}/{own}").into();
        }
        if name.contains('/') {
            return name.clone();
        }
        match name.split_once('.') {
            Some((short, rest)) => format!("{}/{short}", rest.split('.').next().unwrap_or(rest)).into(),
            None => format!("{namespace}/{name}").into(),
        }
    }

    /// Whether the rules apply to sidecars.
    pub fn applies_to_mesh(&self) -> bool {
        self.gateways.is_empty() || self.gateways.iter().any(|g| &**g == VirtualService::MESH)
    }

    /// Whether the VirtualService is a delegate: it has no hosts, and other VirtualServices refer to it.
    pub fn is_delegate(&self) -> bool {
        self.hosts.is_empty()
    }
}

message! {
    /// HTTP routing rule: match conditions and an action.
    pub struct HttpRoute: Relations where [
        any(route, redirect, directResponse, delegate), exclusive(route, redirect, directResponse, delegate),
        exclusive(mirror, mirrors),
    ] {
        /// Name of the route, used in logs and as Envoy's route name.
        pub name: Arc<str>,
        /// Match conditions, of which at least one must match. If empty, the rule matches all requests.
        pub matches: Vec<HttpMatchRequest> as "match",
        /// Weighted destinations to forward to.
        pub route: Vec<HttpRouteDestination>,
        /// Redirect to return instead of forwarding.
        pub redirect: Option<HttpRedirect>,
        /// Fixed response to return instead of forwarding.
        pub direct_response: Option<HttpDirectResponse>,
        /// VirtualService that routes the request instead of this rule.
        pub delegate: Option<Delegate>,
        /// Rewrite of the request before it is forwarded.
        pub rewrite: Option<HttpRewrite>,
        /// Timeout of a request, including its retries. If omitted or zero, it is disabled.
        pub timeout: Option<Duration> where [is duration],
        /// Retry policy. Defaults to the mesh configuration's policy.
        pub retries: Option<HttpRetry>,
        /// Faults to inject.
        pub fault: Option<HttpFaultInjection>,
        /// Destination to mirror requests to. See also `mirrors`.
        pub mirror: Option<Destination>,
        /// Destinations to mirror requests to.
        pub mirrors: Vec<HttpMirrorPolicy>,
        /// Percentage of requests to mirror, as an integer. Deprecated in favor of `mirrorPercentage`. If omitted, all
        /// requests are mirrored.
        pub mirror_percent: Option<u32> where [
            spelling "mirror_percent", nullable, to 100, warn "deprecated" "mirrorPercent is deprecated; use mirrorPercentage",
        ],
        /// Percentage of requests to mirror. If omitted, all requests are mirrored.
        pub mirror_percentage: Option<Percent>,
        /// Cross-origin resource sharing (CORS) policy.
        pub cors_policy: Option<CorsPolicy>,
        /// Header changes for all destinations.
        pub headers: Option<Headers>,
    }
}

/// Action of an [`HttpRoute`]. A route has exactly one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HttpAction<'a> {
    /// Forwards to weighted destinations.
    Route(&'a [HttpRouteDestination]),
    /// Returns a redirect.
    Redirect(&'a HttpRedirect),
    /// Returns a fixed response.
    DirectResponse(&'a HttpDirectResponse),
    /// Delegates to another VirtualService.
    Delegate(&'a Delegate),
}

impl HttpRoute {
    /// Returns the action of the rule.
    pub fn action(&self) -> HttpAction<'_> {
        match self {
            HttpRoute { redirect: Some(redirect), .. } => HttpAction::Redirect(redirect),
            HttpRoute { direct_response: Some(response), .. } => HttpAction::DirectResponse(response),
            HttpRoute { delegate: Some(delegate), .. } => HttpAction::Delegate(delegate),
            _ => HttpAction::Route(&self.route),
        }
    }
}

message! {
    /// Rule for unterminated TLS traffic.
    pub struct TlsRoute: Relations {
        /// Match conditions, of which at least one must match. At least one is required.
        pub matches: Vec<TlsMatchAttributes> as "match" where [required, needed],
        /// Weighted destinations.
        pub route: Vec<RouteDestination> where [needed],
    }
}

message! {
    /// Rule for TCP connections.
    pub struct TcpRoute: Relations {
        /// Match conditions, of which at least one must match. If empty, the rule matches all connections.
        pub matches: Vec<L4MatchAttributes> as "match",
        /// Weighted destinations.
        pub route: Vec<RouteDestination> where [needed],
    }
}

message! {
    /// Conditions on a request, all of which must match.
    pub struct HttpMatchRequest: Relations {
        /// Name of the match, appended to the name of the route.
        pub name: Arc<str>,
        /// Path of the request.
        pub uri: Option<StringMatch>,
        /// Scheme of the request (`:scheme`).
        pub scheme: Option<StringMatch>,
        /// Method of the request (`:method`).
        pub method: Option<StringMatch>,
        /// Authority of the request (`:authority`).
        pub authority: Option<StringMatch>,
        /// Headers, by lower-case name. The condition `{}` matches if the header is present.
        pub headers: BTreeMap<Arc<str>, StringMatch> where [keys(matched_header)],
        /// Destination port of the request. 0 matches any port.
        pub port: u32 where [to 65535],
        /// Labels of the client workload. Applies to sidecars only.
        pub source_labels: StringMap where [keys(label_key), is label_value],
        /// Gateways that the condition applies to, instead of the VirtualService's `gateways`.
        pub gateways: Vec<Arc<str>> where [is gateway_name],
        /// Query parameters, by name. The condition `{}` matches if the parameter is present.
        pub query_params: BTreeMap<Arc<str>, StringMatch> where [keys(text)],
        /// Whether `uri` is compared case-insensitively. Does not apply to regular expressions.
        pub ignore_uri_case: bool,
        /// Headers that must not match.
        pub without_headers: BTreeMap<Arc<str>, StringMatch> where [keys(matched_header)],
        /// Namespace of the client workload. Applies to sidecars only.
        pub source_namespace: Arc<str> where [is label],
        /// Prefix of the statistics of the route.
        pub stat_prefix: Arc<str>,
    }
}

message! {
    /// Destination of HTTP requests.
    pub struct HttpRouteDestination {
        /// Service that receives the requests.
        pub destination: Destination where [required],
        /// Weight of the destination relative to the others. Can be omitted if there is only one destination.
        pub weight: i32 where [from 0],
        /// Header changes for this destination.
        pub headers: Option<Headers>,
    }
}

message! {
    /// Destination of connections.
    pub struct RouteDestination {
        /// Service that receives the connections.
        pub destination: Destination where [required],
        /// Weight of the destination relative to the others. Can be omitted if there is only one destination.
        pub weight: i32 where [from 0],
    }
}

message! {
    /// Conditions on a TCP connection, all of which must match.
    pub struct L4MatchAttributes {
        /// Destination addresses, as IP addresses or CIDR ranges.
        pub destination_subnets: Vec<Arc<str>> where [is subnet],
        /// Destination port. 0 matches any port.
        pub port: u32 where [to 65535],
        /// Not used, as in Istio.
        pub source_subnet: Arc<str> where [warn "no-effect" "sourceSubnet has no effect"],
        /// Labels of the client workload.
        pub source_labels: StringMap where [keys(label_key), is label_value],
        /// Gateways that the condition applies to, instead of the VirtualService's `gateways`.
        pub gateways: Vec<Arc<str>> where [is gateway_name],
        /// Namespace of the client workload.
        pub source_namespace: Arc<str>,
    }
}

message! {
    /// Conditions on a TLS connection, all of which must match.
    pub struct TlsMatchAttributes {
        /// Server names (SNI); wildcards are allowed. Each must be covered by the VirtualService's hosts. At least one
        /// is required.
        pub sni_hosts: Vec<Arc<str>> where [required, needed],
        /// Destination addresses, as IP addresses or CIDR ranges.
        pub destination_subnets: Vec<Arc<str>> where [is subnet],
        /// Destination port. 0 matches any port.
        pub port: u32 where [to 65535],
        /// Labels of the client workload.
        pub source_labels: StringMap where [keys(label_key), is label_value],
        /// Gateways that the condition applies to, instead of the VirtualService's `gateways`.
        pub gateways: Vec<Arc<str>> where [is gateway_name],
        /// Namespace of the client workload.
        pub source_namespace: Arc<str>,
    }
}
