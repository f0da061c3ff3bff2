//! Filters of routes, which process requests and responses.

use std::sync::Arc;

use crate::gateway_api::reference::{BackendObjectReference, LocalObjectReference};
use crate::gateway_api::text::{DNS_NAME, HEADER_NAME, HEADER_VALUE, ORIGIN, PATH};

/// CEL rule: `*` must be the only entry of a list.
const STAR_RULE: &str = "!('*' in self && self.size() > 1)";
/// Message of [`STAR_RULE`].
const STAR_MESSAGE: &str = "* cannot be combined with other entries";

message! {
    /// Filter that processes HTTP requests or responses.
    pub struct HttpRouteFilter where [
        rule "(self.type == 'RequestHeaderModifier') == has(self.requestHeaderModifier)" "requestHeaderModifier must be set if and only if the type is RequestHeaderModifier",
        rule "(self.type == 'ResponseHeaderModifier') == has(self.responseHeaderModifier)" "responseHeaderModifier must be set if and only if the type is ResponseHeaderModifier",
        rule "(self.type == 'RequestMirror') == has(self.requestMirror)" "requestMirror must be set if and only if the type is RequestMirror",
        rule "(self.type == 'RequestRedirect') == has(self.requestRedirect)" "requestRedirect must be set if and only if the type is RequestRedirect",
        rule "(self.type == 'URLRewrite') == has(self.urlRewrite)" "urlRewrite must be set if and only if the type is URLRewrite",
        rule "(self.type == 'CORS') == has(self.cors)" "cors must be set if and only if the type is CORS",
        rule "(self.type == 'ExternalAuth') == has(self.externalAuth)" "externalAuth must be set if and only if the type is ExternalAuth",
        rule "(self.type == 'ExtensionRef') == has(self.extensionRef)" "extensionRef must be set if and only if the type is ExtensionRef",
    ] {
        /// Type of the filter. Its settings are in the field of the same name.
        pub kind: HttpFilterType as "type" where [required],
        /// Changes to request headers.
        pub request_header_modifier: Option<HeaderFilter>,
        /// Changes to response headers.
        pub response_header_modifier: Option<HeaderFilter>,
        /// Backend that requests are mirrored to. Its responses are ignored.
        pub request_mirror: Option<RequestMirrorFilter>,
        /// Redirect response instead of forwarding.
        pub request_redirect: Option<RequestRedirectFilter>,
        /// Rewrite of the host and path of the forwarded request.
        pub url_rewrite: Option<UrlRewriteFilter>,
        /// Cross-origin resource sharing (CORS) policy.
        pub cors: Option<CorsFilter>,
        /// External authorization service.
        pub external_auth: Option<ExternalAuthFilter>,
        /// Implementation-specific filter object.
        pub extension_ref: Option<LocalObjectReference>,
    }
}

enumeration! {
    /// Type of an HTTP filter.
    pub enum HttpFilterType {
        /// Changes request headers.
        #[default]
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes response headers.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Mirrors requests.
        RequestMirror = "RequestMirror",
        /// Returns a redirect.
        RequestRedirect = "RequestRedirect",
        /// Rewrites the host and path of requests.
        UrlRewrite = "URLRewrite",
        /// Implementation-specific filter.
        ExtensionRef = "ExtensionRef",
        /// Handles cross-origin requests (CORS).
        Cors = "CORS",
        /// Delegates authorization to an external service.
        ExternalAuth = "ExternalAuth",
    }
}

message! {
    /// Filter that processes gRPC requests or responses.
    pub struct GrpcRouteFilter where [
        rule "(self.type == 'RequestHeaderModifier') == has(self.requestHeaderModifier)" "requestHeaderModifier must be set if and only if the type is RequestHeaderModifier",
        rule "(self.type == 'ResponseHeaderModifier') == has(self.responseHeaderModifier)" "responseHeaderModifier must be set if and only if the type is ResponseHeaderModifier",
        rule "(self.type == 'RequestMirror') == has(self.requestMirror)" "requestMirror must be set if and only if the type is RequestMirror",
        rule "(self.type == 'ExtensionRef') == has(self.extensionRef)" "extensionRef must be set if and only if the type is ExtensionRef",
    ] {
        /// Type of the filter. Its settings are in the field of the same name.
        pub kind: GrpcFilterType as "type" where [required],
        /// Changes to request headers.
        pub request_header_modifier: Option<HeaderFilter>,
        /// Changes to response headers.
        pub response_header_modifier: Option<HeaderFilter>,
        /// Backend that requests are mirrored to. Its responses are ignored.
        pub request_mirror: Option<RequestMirrorFilter>,
        /// Implementation-specific filter object.
        pub extension_ref: Option<LocalObjectReference>,
    }
}

enumeration! {
    /// Type of a gRPC filter.
    pub enum GrpcFilterType {
        /// Changes request headers.
        #[default]
        RequestHeaderModifier = "RequestHeaderModifier",
        /// Changes response headers.
        ResponseHeaderModifier = "ResponseHeaderModifier",
        /// Mirrors requests.
        RequestMirror = "RequestMirror",
        /// Implementation-specific filter.
        ExtensionRef = "ExtensionRef",
    }
}

message! {
    /// Header changes.
    pub struct HeaderFilter {
        /// Headers to overwrite.
        pub set: Vec<HttpHeader> where [max 16, key name],
        /// Headers to append.
        pub add: Vec<HttpHeader> where [max 16, key name],
        /// Headers to remove. Names are case-insensitive.
        pub remove: Vec<Arc<str>> where [max 16, set],
    }
}

message! {
    /// HTTP header.
    pub struct HttpHeader {
        /// Name of the header, case-insensitive.
        pub name: Arc<str> where [required, min 1, max 256, pattern HEADER_NAME],
        /// Value of the header.
        pub value: Arc<str> where [required, min 1, max 4096, pattern HEADER_VALUE],
    }
}

message! {
    /// Backend that requests are mirrored to.
    pub struct RequestMirrorFilter where [
        rule "!(has(self.percent) && has(self.fraction))" "percent and fraction are mutually exclusive",
    ] {
        /// Backend that receives the copies.
        pub backend_ref: BackendObjectReference where [required],
        /// Percentage of requests to mirror. If neither `percent` nor `fraction` is set, all requests are mirrored.
        pub percent: Option<u32> where [min 0, max 100],
        /// Fraction of requests to mirror.
        pub fraction: Option<Fraction>,
    }
}

message! {
    /// Fraction.
    pub struct Fraction where [
        rule "self.numerator <= self.denominator" "the numerator must not be greater than the denominator",
    ] {
        /// Numerator.
        pub numerator: u32 where [required, min 0],
        /// Denominator.
        pub denominator: u32 where [min 1, default 100] = 100,
    }
}

message! {
    /// Redirect response.
    pub struct RequestRedirectFilter {
        /// Scheme of the redirect, `http` or `https`. Defaults to the scheme of the request.
        pub scheme: Option<Arc<str>> where [values_of ["http", "https"]],
        /// Host of the redirect. Defaults to the host of the request.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Path of the redirect. Defaults to the path of the request.
        pub path: Option<HttpPathModifier>,
        /// Port of the redirect. Defaults to the default port of `scheme` if it is set, otherwise to the port of the
        /// listener.
        pub port: Option<u16> where [min 1, max 65535],
        /// Status code: 301, 302, 303, 307 or 308.
        pub status_code: u32 where [
            default 302, rule "self in [301, 302, 303, 307, 308]" "the status code must be 301, 302, 303, 307 or 308",
        ] = 302,
    }
}

message! {
    /// Rewrite of the host and path of a request.
    pub struct UrlRewriteFilter {
        /// Host of the forwarded request. If omitted, the host is unchanged.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern DNS_NAME],
        /// Path of the forwarded request. If omitted, the path is unchanged.
        pub path: Option<HttpPathModifier>,
    }
}

message! {
    /// Path change.
    pub struct HttpPathModifier where [
        rule "(self.type == 'ReplaceFullPath') == has(self.replaceFullPath)" "replaceFullPath must be set if and only if the type is ReplaceFullPath",
        rule "(self.type == 'ReplacePrefixMatch') == has(self.replacePrefixMatch)"
            "replacePrefixMatch must be set if and only if the type is ReplacePrefixMatch",
    ] {
        /// Type of the change.
        pub kind: PathModifierType as "type" where [required],
        /// Path that replaces the whole path.
        pub replace_full_path: Option<Arc<str>> where [max 1024],
        /// Path that replaces the matched prefix.
        pub replace_prefix_match: Option<Arc<str>> where [max 1024],
    }
}

enumeration! {
    /// Type of a path change.
    pub enum PathModifierType {
        /// Replaces the whole path.
        #[default]
        ReplaceFullPath = "ReplaceFullPath",
        /// Replaces the matched prefix.
        ReplacePrefixMatch = "ReplacePrefixMatch",
    }
}

message! {
    /// Cross-origin resource sharing (CORS) policy.
    pub struct CorsFilter {
        /// Allowed origins: exact origins, origins with `*` as the first label of the host, or `*`.
        pub allow_origins: Vec<Arc<str>> where [max 64, set, rule STAR_RULE STAR_MESSAGE, items(min 1, max 253, pattern ORIGIN)],
        /// Whether requests can include credentials.
        pub allow_credentials: Option<bool>,
        /// Allowed methods, or `*`.
        pub allow_methods: Vec<Arc<str>> where [max 9, set, rule STAR_RULE STAR_MESSAGE, items(values_of [
            "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "*"
        ])],
        /// Allowed request headers, or `*`.
        pub allow_headers: Vec<Arc<str>> where [
            max 64, set, rule STAR_RULE STAR_MESSAGE, items(min 1, max 256, pattern HEADER_NAME),
        ],
        /// Response headers that browsers can expose to scripts, or `*`.
        pub expose_headers: Vec<Arc<str>> where [max 64, set, items(min 1, max 256, pattern HEADER_NAME)],
        /// Time for which browsers can cache the response to a preflight request, in seconds.
        pub max_age: u32 where [min 1, default 5] = 5,
    }
}

message! {
    /// External authorization service.
    pub struct ExternalAuthFilter where [
        rule "(self.protocol == 'GRPC') == has(self.grpc)" "grpc must be set if and only if the protocol is GRPC",
        rule "(self.protocol == 'HTTP') == has(self.http)" "http must be set if and only if the protocol is HTTP",
    ] {
        /// Protocol of the service.
        pub protocol: ExternalAuthProtocol where [required],
        /// Backend that provides the service.
        pub backend_ref: BackendObjectReference where [required],
        /// Settings for the protocol `GRPC`.
        pub grpc: Option<GrpcAuthConfig>,
        /// Settings for the protocol `HTTP`.
        pub http: Option<HttpAuthConfig>,
        /// Part of the request body that is sent to the service. If omitted, no body is sent.
        pub forward_body: Option<ForwardBodyConfig>,
    }
}

enumeration! {
    /// Protocol of an external authorization service.
    pub enum ExternalAuthProtocol {
        /// HTTP. Status code 200 allows the request.
        #[default]
        Http = "HTTP",
        /// Envoy's external authorization API, version 3.
        Grpc = "GRPC",
    }
}

message! {
    /// Settings for authorization over gRPC.
    pub struct GrpcAuthConfig {
        /// Request headers that are sent to the service. If empty, all headers are sent.
        pub allowed_headers: Vec<Arc<str>> where [max 64, set],
    }
}

message! {
    /// Settings for authorization over HTTP.
    pub struct HttpAuthConfig {
        /// Prefix added to the path of the authorization request.
        pub path: Option<Arc<str>> where [max 1024, pattern PATH],
        /// Request headers that are sent to the service in addition to `Authorization`, `Host`, the method, the path
        /// and `Content-Length`.
        pub allowed_headers: Vec<Arc<str>> where [max 64, set],
        /// Headers of the service's response that are added to the forwarded request. If empty, all headers are added.
        pub allowed_response_headers: Vec<Arc<str>> where [max 64, set],
    }
}

message! {
    /// Part of the request body that is sent to an external service.
    pub struct ForwardBodyConfig {
        /// Maximum number of bytes. 0 means no body is sent.
        pub max_size: Option<u32> where [min 0],
    }
}
