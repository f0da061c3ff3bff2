//! What a rule of a VirtualService does to HTTP requests and responses.

use std::sync::Arc;
use std::time::Duration;

use crate::decode::Bytes;
use crate::istio::virtual_service::{Destination, StringMatch};
use crate::object::StringMap;

message! {
    /// Names the VirtualService that decides instead.
    pub struct Delegate {
        /// Its name.
        pub name: Arc<str>,
        /// Its namespace; empty means the same.
        pub namespace: Arc<str>,
    }
}

message! {
    /// Changes of headers.
    pub struct Headers {
        /// Of the request, before it is forwarded.
        pub request: Option<HeaderOperations>,
        /// Of the response, before it is returned.
        pub response: Option<HeaderOperations>,
    }
}

message! {
    /// Changes of the headers of one direction.
    pub struct HeaderOperations {
        /// Overwrite.
        pub set: StringMap,
        /// Append.
        pub add: StringMap,
        /// Remove.
        pub remove: Vec<Arc<str>>,
    }
}

message! {
    /// A redirect as the answer.
    pub struct HttpRedirect {
        /// The new path.
        pub uri: Arc<str>,
        /// The new authority.
        pub authority: Arc<str>,
        /// The new port.
        pub port: Option<RedirectPort>,
        /// The new scheme.
        pub scheme: Arc<str>,
        /// The status code: 301 (also for 0), 302, 303, 307 or 308.
        pub redirect_code: u32,
        /// Replaces the prefix that was matched.
        pub prefix_rewrite: Arc<str>,
    }
}

oneof! {
    /// The port of a redirect.
    pub enum RedirectPort {
        /// This one.
        Port(u32) = "port",
        /// Derived from something.
        Derive(RedirectPortSelection) = "derivePort",
    }
}

enumeration! {
    /// What the port of a redirect is derived from.
    pub enum RedirectPortSelection {
        /// 80 for HTTP and 443 for HTTPS.
        #[default]
        FromProtocolDefault = "FROM_PROTOCOL_DEFAULT" 0,
        /// The port of the request.
        FromRequestPort = "FROM_REQUEST_PORT" 1,
    }
}

message! {
    /// A fixed response.
    pub struct HttpDirectResponse {
        /// The status code, 200 to 599.
        pub status: u32 where [required],
        /// The body.
        pub body: Option<HttpBody>,
    }
}

choice! {
    /// The body of a fixed response.
    pub enum HttpBody {
        /// Nothing.
        else Empty,
        /// A text.
        Text(Arc<str>) = "string",
        /// Bytes.
        Bytes(Bytes) = "bytes",
    }
}

message! {
    /// Changes of the request line.
    pub struct HttpRewrite {
        /// Replaces the path, or the prefix that was matched.
        pub uri: Arc<str>,
        /// Replaces the authority.
        pub authority: Arc<str>,
        /// Rewrites parts of the path.
        pub uri_regex_rewrite: Option<RegexRewrite>,
    }
}

message! {
    /// A rewrite by regular expression.
    pub struct RegexRewrite {
        /// RE2 syntax.
        pub regex: Arc<str> as "match",
        /// The replacement; `\1` is the first group.
        pub rewrite: Arc<str>,
    }
}

message! {
    /// Retries of failed requests.
    pub struct HttpRetry {
        /// How many; 0 means none.
        pub attempts: i32,
        /// The time for each; absent: the route's timeout.
        pub per_try_timeout: Option<Duration>,
        /// On what: Envoy's policies and status codes, separated by commas; empty means Istio's default.
        pub retry_on: Arc<str>,
        /// Whether retries may go to other localities.
        pub retry_remote_localities: Option<bool> where [nullable],
        /// Whether retries avoid hosts that were tried; absent means true.
        pub retry_ignore_previous_hosts: Option<bool> where [nullable],
        /// The least wait between retries; absent means 25ms.
        pub backoff: Option<Duration>,
    }
}

message! {
    /// Cross-origin resource sharing.
    pub struct CorsPolicy {
        /// Allowed origins, deprecated.
        pub allow_origin: Vec<Arc<str>>,
        /// Allowed origins.
        pub allow_origins: Vec<StringMatch>,
        /// Allowed methods.
        pub allow_methods: Vec<Arc<str>>,
        /// Allowed request headers.
        pub allow_headers: Vec<Arc<str>>,
        /// Response headers that the browser may show.
        pub expose_headers: Vec<Arc<str>>,
        /// How long a preflight answer may be cached.
        pub max_age: Option<Duration>,
        /// Whether credentials may be sent.
        pub allow_credentials: Option<bool> where [nullable],
        /// What happens to preflight requests that no origin matches.
        pub unmatched_preflights: UnmatchedPreflights,
    }
}

enumeration! {
    /// What happens to preflight requests that no origin matches.
    pub enum UnmatchedPreflights {
        /// As `FORWARD`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// They are forwarded.
        Forward = "FORWARD" 1,
        /// They are answered without the headers of this policy.
        Ignore = "IGNORE" 2,
    }
}

message! {
    /// Faults to inject into some of the requests.
    pub struct HttpFaultInjection {
        /// Wait before the request is forwarded.
        pub delay: Option<Delay>,
        /// Answer with an error.
        pub abort: Option<Abort>,
    }
}

message! {
    /// A delay of some of the requests.
    pub struct Delay {
        /// Percentage, deprecated.
        pub percent: i32,
        /// How long.
        pub kind: Option<DelayType>,
        /// Percentage of requests; absent: all.
        pub percentage: Option<Percent>,
    }
}

oneof! {
    /// How long a delay is.
    pub enum DelayType {
        /// Always the same.
        Fixed(Duration) = "fixedDelay",
        /// Distributed exponentially; Istio refuses it.
        Exponential(Duration) = "exponentialDelay",
    }
}

message! {
    /// An error for some of the requests.
    pub struct Abort {
        /// Which.
        pub kind: Option<AbortType>,
        /// Percentage of requests; absent: all.
        pub percentage: Option<Percent>,
    }
}

oneof! {
    /// The error to answer with.
    pub enum AbortType {
        /// An HTTP status.
        HttpStatus(i32) = "httpStatus",
        /// A gRPC status by name or number.
        GrpcStatus(Arc<str>) = "grpcStatus",
        /// An HTTP/2 error; Istio refuses it.
        Http2Error(Arc<str>) = "http2Error",
    }
}

message! {
    /// Where copies of requests go.
    pub struct HttpMirrorPolicy {
        /// The service; answers are dropped.
        pub destination: Destination where [required],
        /// Percentage of requests; absent: all.
        pub percentage: Option<Percent>,
    }
}

message! {
    /// A percentage, 0 to 100.
    pub struct Percent {
        /// The value.
        pub value: f64,
    }
}
