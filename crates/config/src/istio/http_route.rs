//! Actions of VirtualService rules on HTTP requests and responses.

use std::sync::Arc;
use std::time::Duration;

use crate::decode::Bytes;
use crate::istio::destination::{Destination, StringMatch};
use crate::object::StringMap;

message! {
    /// Reference to the VirtualService that a route is delegated to.
    pub struct Delegate {
        /// Name of the VirtualService.
        pub name: Arc<str>,
        /// Namespace of the VirtualService. Defaults to the namespace of the delegating VirtualService.
        pub namespace: Arc<str>,
    }
}

message! {
    /// Header changes.
    pub struct Headers: Relations {
        /// Changes to request headers before the request is forwarded.
        pub request: Option<HeaderOperations>,
        /// Changes to response headers before the response is returned.
        pub response: Option<HeaderOperations>,
    }
}

message! {
    /// Header changes in one direction.
    pub struct HeaderOperations: Relations {
        /// Headers to overwrite.
        pub set: StringMap where [keys(changed_header), is header_value],
        /// Headers to append.
        pub add: StringMap where [keys(changed_header), is header_value],
        /// Headers to remove.
        pub remove: Vec<Arc<str>> where [is changed_header],
    }
}

message! {
    /// Redirect response.
    pub struct HttpRedirect where [
        any(uri, authority, port, derivePort, scheme, prefixRewrite), exclusive(uri, prefixRewrite),
    ] {
        /// Path of the redirect.
        pub uri: Arc<str> where [is one_line],
        /// Authority (host) of the redirect.
        pub authority: Arc<str> where [is one_line],
        /// Port of the redirect.
        pub port: Option<RedirectPort>,
        /// Scheme of the redirect.
        pub scheme: Arc<str> where [among ["http", "https"]],
        /// Status code: 301, 302, 303, 307 or 308. 0 means 301.
        pub redirect_code: u32 where [is redirect_code],
        /// Path prefix that replaces the matched prefix.
        pub prefix_rewrite: Arc<str> where [is one_line],
    }
}

oneof! {
    /// Port of a redirect.
    pub enum RedirectPort {
        /// Explicit port number.
        Port(u32) = "port" where [from 1, to 65535],
        /// Port that is derived from the request.
        Derive(RedirectPortSelection) = "derivePort",
    }
}

enumeration! {
    /// Rule that derives the port of a redirect.
    pub enum RedirectPortSelection {
        /// 80 for HTTP and 443 for HTTPS.
        #[default]
        FromProtocolDefault = "FROM_PROTOCOL_DEFAULT" 0,
        /// Port of the request.
        FromRequestPort = "FROM_REQUEST_PORT" 1,
    }
}

message! {
    /// Fixed response.
    pub struct HttpDirectResponse {
        /// Status code, 200 to 599.
        pub status: u32 where [required, from 200, to 599],
        /// Body of the response.
        pub body: Option<HttpBody>,
    }
}

choice! {
    /// Body of a fixed response.
    pub enum HttpBody {
        /// No body.
        else Empty,
        /// Text.
        Text(Arc<str>) = "string" where [is body],
        /// Bytes, encoded in base64.
        Bytes(Bytes) = "bytes" where [is base64_body],
    }
}

message! {
    /// Rewrite of the path and authority of a request.
    pub struct HttpRewrite where [any(uri, uriRegexRewrite, authority), exclusive(uri, uriRegexRewrite)] {
        /// Path that replaces the request path, or prefix that replaces the matched prefix.
        pub uri: Arc<str> where [is one_line],
        /// Authority that replaces the request's authority.
        pub authority: Arc<str> where [is one_line],
        /// Rewrite of parts of the path by regular expression.
        pub uri_regex_rewrite: Option<RegexRewrite>,
    }
}

message! {
    /// Rewrite by regular expression.
    pub struct RegexRewrite {
        /// Regular expression (RE2).
        pub regex: Arc<str> as "match" where [needed, is regex],
        /// Substitution. `\1` refers to the first capture group.
        pub rewrite: Arc<str> where [needed, is one_line],
    }
}

message! {
    /// Retry policy for failed requests.
    pub struct HttpRetry: Relations {
        /// Number of retries. 0 disables retries.
        pub attempts: i32 where [from 0],
        /// Timeout of each attempt. Defaults to the timeout of the route.
        pub per_try_timeout: Option<Duration> where [is duration],
        /// Conditions for a retry: Envoy retry policies and status codes, separated by commas. If empty, Istio's
        /// defaults apply.
        pub retry_on: Arc<str> where [is retry_on],
        /// Whether retries can be sent to other localities.
        pub retry_remote_localities: Option<bool> where [nullable],
        /// Whether retries avoid hosts that were already tried. Defaults to true.
        pub retry_ignore_previous_hosts: Option<bool> where [nullable],
        /// Base interval of the exponential backoff between retries. Defaults to 25ms.
        pub backoff: Option<Duration> where [is duration],
    }
}

message! {
    /// Cross-origin resource sharing (CORS) policy.
    pub struct CorsPolicy: Relations {
        /// Allowed origins. Deprecated in favor of `allowOrigins`.
        pub allow_origin: Vec<Arc<str>> where [warn "deprecated" "allowOrigin is deprecated; use allowOrigins"],
        /// Allowed origins.
        pub allow_origins: Vec<StringMatch>,
        /// Allowed methods.
        pub allow_methods: Vec<Arc<str>> where [
            items(among ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*"]),
        ],
        /// Allowed request headers.
        pub allow_headers: Vec<Arc<str>> where [is header_name],
        /// Response headers that browsers can expose to scripts.
        pub expose_headers: Vec<Arc<str>> where [is header_name],
        /// Time for which browsers can cache the response to a preflight request.
        pub max_age: Option<Duration> where [is seconds],
        /// Whether requests can include credentials.
        pub allow_credentials: Option<bool> where [nullable],
        /// Handling of preflight requests that match no allowed origin.
        pub unmatched_preflights: UnmatchedPreflights,
    }
}

enumeration! {
    /// Handling of preflight requests that match no allowed origin.
    pub enum UnmatchedPreflights {
        /// Same as `FORWARD`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// Forwards the request to the destination.
        Forward = "FORWARD" 1,
        /// Responds without CORS headers.
        Ignore = "IGNORE" 2,
    }
}

message! {
    /// Fault injection for a percentage of requests.
    pub struct HttpFaultInjection where [any(delay, abort)] {
        /// Delay before the request is forwarded.
        pub delay: Option<Delay>,
        /// Error response instead of forwarding the request.
        pub abort: Option<Abort>,
    }
}

message! {
    /// Delay of a percentage of requests.
    pub struct Delay: Relations {
        /// Percentage of requests, as an integer. Deprecated in favor of `percentage`.
        pub percent: i32 where [from 0, to 100],
        /// Duration of the delay.
        pub kind: Option<DelayType>,
        /// Percentage of requests to delay. If omitted, all requests are delayed.
        pub percentage: Option<Percent>,
    }
}

oneof! {
    /// Duration of a delay.
    pub enum DelayType {
        /// Fixed delay.
        Fixed(Duration) = "fixedDelay" where [is duration],
        /// Exponentially distributed delay. Rejected, as in Istio.
        Exponential(Duration) = "exponentialDelay" where [refuse "unsupported" "exponentialDelay is not supported"],
    }
}

message! {
    /// Error response for a percentage of requests.
    pub struct Abort: Relations {
        /// Error to return.
        pub kind: Option<AbortType>,
        /// Percentage of requests to abort. If omitted, all requests are aborted.
        pub percentage: Option<Percent>,
    }
}

oneof! {
    /// Error to return.
    pub enum AbortType {
        /// HTTP status code.
        HttpStatus(i32) = "httpStatus" where [from 200, to 599],
        /// gRPC status, by name or number.
        GrpcStatus(Arc<str>) = "grpcStatus" where [is grpc_status],
        /// HTTP/2 error. Rejected, as in Istio.
        Http2Error(Arc<str>) = "http2Error" where [refuse "unsupported" "http2Error is not supported"],
    }
}

message! {
    /// Destination that requests are mirrored to.
    pub struct HttpMirrorPolicy {
        /// Service that receives the copies. Its responses are discarded.
        pub destination: Destination where [required],
        /// Percentage of requests to mirror. If omitted, all requests are mirrored.
        pub percentage: Option<Percent>,
    }
}

message! {
    /// Percentage, 0 to 100.
    pub struct Percent {
        /// Value, 0 to 100.
        pub value: f64 where [from 0, to 100],
    }
}
