//! What rules of routes do to requests and responses on their way.

use std::sync::Arc;

use crate::gateway_api::reference::{BackendObjectReference, LocalObjectReference};
use crate::gateway_api::text::{DNS_NAME, HEADER_NAME, HEADER_VALUE, ORIGIN, PATH};

/// In CEL: a list has `*` alone.
const STAR_RULE: &str = "!('*' in self && self.size() > 1)";
/// What is said when it has more.
const STAR_MESSAGE: &str = "* cannot be combined with other entries";

message! {
    /// One thing that happens to HTTP requests or responses.
    pub struct HttpRouteFilter where [
        rule "(self.type == 'RequestHeaderModifier') == has(self.requestHeaderModifier)" "requestHeaderModifier goes together with the type RequestHeaderModifier",
        rule "(self.type == 'ResponseHeaderModifier') == has(self.responseHeaderModifier)" "responseHeaderModifier goes together with the type ResponseHeaderModifier",
        rule "(self.type == 'RequestMirror') == has(self.requestMirror)" "requestMirror goes together with the type RequestMirror",
        rule "(self.type == 'RequestRedirect') == has(self.requestRedirect)" "requestRedirect goes together with the type RequestRedirect",
        rule "(self.type == 'URLRewrite') == has(self.urlRewrite)" "urlRewrite goes together with the type URLRewrite",
        rule "(self.type == 'CORS') == has(self.cors)" "cors goes together with the type CORS",
        rule "(self.type == 'ExternalAuth') == has(self.externalAuth)" "externalAuth goes together with the type ExternalAuth",
        rule "(self.type == 'ExtensionRef') == has(self.extensionRef)" "extensionRef goes together with the type ExtensionRef",
    ] {
        /// What it is; the field of the same name has the rest.
        pub kind: HttpFilterType as "type" where [required],
        /// Headers of requests to change.
        pub request_header_modifier: Option<HeaderFilter>,
        /// Headers of responses to change.
        pub response_header_modifier: Option<HeaderFilter>,
        /// Where a copy of requests goes; the answer to it is dropped.
        pub request_mirror: Option<RequestMirrorFilter>,
        /// A redirect, instead of forwarding.
        pub request_redirect: Option<RequestRedirectFilter>,
        /// What requests ask for, as it is forwarded.
        pub url_rewrite: Option<UrlRewriteFilter>,
        /// Cross-origin resource sharing.
        pub cors: Option<CorsFilter>,
        /// A service that decides whether requests pass.
        pub external_auth: Option<ExternalAuthFilter>,
        /// An object that says what happens; which kinds are known is up to the controller.
        pub extension_ref: Option<LocalObjectReference>,
    }
}

enumeration! {
    /// The sorts of filters for HTTP.
    pub enum HttpFilterType {
        /// Changes headers of requests.
        #[default]
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes headers of responses.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Copies requests.
        RequestMirror = "RequestMirror",
        /// Answers with a redirect.
        RequestRedirect = "RequestRedirect",
        /// Changes what requests ask for.
        UrlRewrite = "URLRewrite",
        /// Something else.
        ExtensionRef = "ExtensionRef",
        /// Answers and checks cross-origin requests.
        Cors = "CORS",
        /// Lets a service decide.
        ExternalAuth = "ExternalAuth",
    }
}

message! {
    /// One thing that happens to gRPC requests or responses.
    pub struct GrpcRouteFilter where [
        rule "(self.type == 'RequestHeaderModifier') == has(self.requestHeaderModifier)" "requestHeaderModifier goes together with the type RequestHeaderModifier",
        rule "(self.type == 'ResponseHeaderModifier') == has(self.responseHeaderModifier)" "responseHeaderModifier goes together with the type ResponseHeaderModifier",
        rule "(self.type == 'RequestMirror') == has(self.requestMirror)" "requestMirror goes together with the type RequestMirror",
        rule "(self.type == 'ExtensionRef') == has(self.extensionRef)" "extensionRef goes together with the type ExtensionRef",
    ] {
        /// What it is; the field of the same name has the rest.
        pub kind: GrpcFilterType as "type" where [required],
        /// Headers of requests to change.
        pub request_header_modifier: Option<HeaderFilter>,
        /// Headers of responses to change.
        pub response_header_modifier: Option<HeaderFilter>,
        /// Where a copy of requests goes; the answer to it is dropped.
        pub request_mirror: Option<RequestMirrorFilter>,
        /// An object that says what happens; which kinds are known is up to the controller.
        pub extension_ref: Option<LocalObjectReference>,
    }
}

enumeration! {
    /// The sorts of filters for gRPC.
    pub enum GrpcFilterType {
        /// Changes headers of requests.
        #[default]
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes headers of responses.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Copies requests.
        RequestMirror = "RequestMirror",
        /// Something else.
        ExtensionRef = "ExtensionRef",
    }
}

message! {
    /// Changes of headers.
    pub struct HeaderFilter {
        /// Headers that get this value, whether they are there or not.
        pub set: Vec<HttpHeader> where [max 16, key name],
        /// Headers that get this value beside those that they have.
        pub add: Vec<HttpHeader> where [max 16, key name],
        /// Headers that are taken out; case does not count.
        pub remove: Vec<Arc<str>> where [max 16, set],
    }
}

message! {
    /// A header.
    pub struct HttpHeader {
        /// Its name; case does not count.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Its value.
        pub value: Arc<str> where [required, min 1, max 4096, pattern HEADER_VALUE],
    }
}

message! {
    /// Where a copy of requests goes.
    pub struct RequestMirrorFilter where [
        rule "!(has(self.percent) && has(self.fraction))" "percent and fraction exclude each other",
    ] {
        /// The backend.
        pub backend_ref: BackendObjectReference where [required],
        /// The percentage of requests that are copied; without it and `fraction` all are.
        pub percent: Option<u32> where [min 0, max 100],
        /// The fraction of requests that are copied.
        pub fraction: Option<Fraction>,
    }
}

message! {
    /// A fraction.
    pub struct Fraction where [
        rule "self.numerator <= self.denominator" "the numerator must not be greater than the denominator",
    ] {
        /// What stands above.
        pub numerator: u32 where [required, min 0],
        /// What stands below.
        pub denominator: u32 where [min 1, default 100] = 100,
    }
}

message! {
    /// A redirect.
    pub struct RequestRedirectFilter {
        /// The scheme, `http` or `https`; absent: the request's.
        pub scheme: Option<Arc<str>> where [values_of ["http", "https"]],
        /// The host; absent: the request's.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The path; absent: the request's.
        pub path: Option<HttpPathModifier>,
        /// The port; absent: the one of `scheme`, else the listener's.
        pub port: Option<u16> where [min 1, max 65535],
        /// The status code: 301, 302, 303, 307 or 308.
        pub status_code: u32 where [
            default 302, rule "self in [301, 302, 303, 307, 308]" "the status code must be 301, 302, 303, 307 or 308",
        ] = 302,
    }
}

message! {
    /// A change of what requests ask for.
    pub struct UrlRewriteFilter {
        /// The host; absent: it stays.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// The path; absent: it stays.
        pub path: Option<HttpPathModifier>,
    }
}

message! {
    /// A change of a path.
    pub struct HttpPathModifier where [
        rule "(self.type == 'ReplaceFullPath') == has(self.replaceFullPath)" "replaceFullPath goes together with the type ReplaceFullPath",
        rule "(self.type == 'ReplacePrefixMatch') == has(self.replacePrefixMatch)"
            "replacePrefixMatch goes together with the type ReplacePrefixMatch",
    ] {
        /// What changes.
        pub kind: PathModifierType as "type" where [required],
        /// The new path.
        pub replace_full_path: Option<Arc<str>> where [max 1024],
        /// What takes the place of the prefix that matched.
        pub replace_prefix_match: Option<Arc<str>> where [max 1024],
    }
}

enumeration! {
    /// What of a path changes.
    pub enum PathModifierType {
        /// All of it.
        #[default]
        ReplaceFullPath = "ReplaceFullPath",
        /// The prefix that matched.
        ReplacePrefixMatch = "ReplacePrefixMatch",
    }
}

message! {
    /// Cross-origin resource sharing.
    pub struct CorsFilter {
        /// Origins that may ask, `*`, or with `*` as the first label of the host.
        pub allow_origins: Vec<Arc<str>> where [max 64, set, rule STAR_RULE STAR_MESSAGE, items(min 1, max 253, pattern ORIGIN)],
        /// Whether they may send credentials.
        pub allow_credentials: Option<bool>,
        /// Methods that they may use, or `*`.
        pub allow_methods: Vec<Arc<str>> where [max 9, set, rule STAR_RULE STAR_MESSAGE, items(values_of [
            "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"
        ])],
        /// Headers that they may send, or `*`.
        pub allow_headers: Vec<Arc<str>> where [
            max 64, set, rule STAR_RULE STAR_MESSAGE, items(min 1, max 256, pattern HEADER_NAME),
        ],
        /// Headers of responses that they may read, or `*`.
        pub expose_headers: Vec<Arc<str>> where [max 64, set, items(min 1, max 256, pattern HEADER_NAME)],
        /// For how many seconds they may remember the answer.
        pub max_age: u32 where [min 1, default 5] = 5,
    }
}

message! {
    /// A service that decides whether requests pass.
    pub struct ExternalAuthFilter where [
        rule "(self.protocol == 'GRPC') == has(self.grpc)" "grpc goes together with the protocol GRPC",
        rule "(self.protocol == 'HTTP') == has(self.http)" "http goes together with the protocol HTTP",
    ] {
        /// What it speaks.
        pub protocol: ExternalAuthProtocol where [required],
        /// The service.
        pub backend_ref: BackendObjectReference where [required],
        /// Settings for `GRPC`.
        pub grpc: Option<GrpcAuthConfig>,
        /// Settings for `HTTP`.
        pub http: Option<HttpAuthConfig>,
        /// How much of a request's body the service gets; absent: nothing.
        pub forward_body: Option<ForwardBodyConfig>,
    }
}

enumeration! {
    /// What a service that decides speaks.
    pub enum ExternalAuthProtocol {
        /// HTTP: status 200 means yes.
        #[default]
        Http = "HTTP",
        /// Envoy's interface for external authorization, version 3.
        Grpc = "GRPC",
    }
}

message! {
    /// Settings for services that speak gRPC.
    pub struct GrpcAuthConfig {
        /// Headers of requests that the service gets; empty: all.
        pub allowed_headers: Vec<Arc<str>> where [max 64, set],
    }
}

message! {
    /// Settings for services that speak HTTP.
    pub struct HttpAuthConfig {
        /// A text before the path of the request that is asked about; absent: nothing.
        pub path: Option<Arc<str>> where [max 1024, pattern PATH],
        /// Headers of requests that the service gets beside `Authorization`, `Host`, method, path and `Content-Length`.
        pub allowed_headers: Vec<Arc<str>> where [max 64, set],
        /// Headers of the service's answer that are put into requests; empty: all.
        pub allowed_response_headers: Vec<Arc<str>> where [max 64, set],
    }
}

message! {
    /// How much of a request's body a service gets.
    pub struct ForwardBodyConfig {
        /// The most bytes; 0 means nothing.
        pub max_size: Option<u32> where [min 0],
    }
}
