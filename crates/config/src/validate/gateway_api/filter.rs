//! Filters of routes.

use super::{goes_together, service_port};
use crate::diagnostic::FieldPath;
use crate::gateway_api::filter::*;
use crate::validate::Report;

/// The status codes of redirects.
const REDIRECTS: [u32; 5] = [301, 302, 303, 307, 308];

pub(super) fn http(r: &mut Report, path: &FieldPath, filters: &[HttpRouteFilter]) {
    for (index, filter) in filters.iter().enumerate() {
        http_filter(r, &path.index(index), filter);
    }
    let once = [
        HttpFilterType::RequestHeaderModifier,
        HttpFilterType::ResponseHeaderModifier,
        HttpFilterType::RequestRedirect,
        HttpFilterType::UrlRewrite,
        HttpFilterType::Cors,
    ];
    let kinds: Vec<HttpFilterType> = filters.iter().map(|filter| filter.kind).collect();
    for kind in once {
        if let Some(second) = (0..kinds.len()).filter(|i| kinds[*i] == kind).nth(1) {
            let message = format!("a filter {} cannot be repeated", kind.name());
            r.error(&path.index(second), "duplicate", message);
        }
    }
    let has = |kind| kinds.contains(&kind);
    if has(HttpFilterType::RequestRedirect) && has(HttpFilterType::UrlRewrite) {
        let message = "RequestRedirect and URLRewrite exclude each other: a redirect is not forwarded";
        r.error(path, "exclusive-fields", message);
    }
}

pub(super) fn grpc(r: &mut Report, path: &FieldPath, filters: &[GrpcRouteFilter]) {
    for (index, filter) in filters.iter().enumerate() {
        let (at, kind) = (path.index(index), filter.kind.name());
        for (wanted, field, is_set) in [
            (
                "RequestHeaderModifier",
                "requestHeaderModifier",
                filter.request_header_modifier.is_some(),
            ),
            (
                "ResponseHeaderModifier",
                "responseHeaderModifier",
                filter.response_header_modifier.is_some(),
            ),
            ("RequestMirror", "requestMirror", filter.request_mirror.is_some()),
            ("ExtensionRef", "extensionRef", filter.extension_ref.is_some()),
        ] {
            goes_together(r, &at, kind, wanted, field, is_set);
        }
        if let Some(mirror) = &filter.request_mirror {
            self::mirror(r, &at.field("requestMirror"), mirror);
        }
    }
    for kind in [
        GrpcFilterType::RequestHeaderModifier,
        GrpcFilterType::ResponseHeaderModifier,
    ] {
        if let Some(second) = (0..filters.len()).filter(|i| filters[*i].kind == kind).nth(1) {
            let message = format!("a filter {} cannot be repeated", kind.name());
            r.error(&path.index(second), "duplicate", message);
        }
    }
}

fn http_filter(r: &mut Report, path: &FieldPath, filter: &HttpRouteFilter) {
    let kind = filter.kind.name();
    for (wanted, field, is_set) in [
        (
            "RequestHeaderModifier",
            "requestHeaderModifier",
            filter.request_header_modifier.is_some(),
        ),
        (
            "ResponseHeaderModifier",
            "responseHeaderModifier",
            filter.response_header_modifier.is_some(),
        ),
        ("RequestMirror", "requestMirror", filter.request_mirror.is_some()),
        ("RequestRedirect", "requestRedirect", filter.request_redirect.is_some()),
        ("URLRewrite", "urlRewrite", filter.url_rewrite.is_some()),
        ("CORS", "cors", filter.cors.is_some()),
        ("ExternalAuth", "externalAuth", filter.external_auth.is_some()),
        ("ExtensionRef", "extensionRef", filter.extension_ref.is_some()),
    ] {
        goes_together(r, path, kind, wanted, field, is_set);
    }
    if let Some(mirror) = &filter.request_mirror {
        self::mirror(r, &path.field("requestMirror"), mirror);
    }
    if let Some(redirect) = &filter.request_redirect {
        let at = path.field("requestRedirect");
        if !REDIRECTS.contains(&redirect.status_code) {
            let message = format!("{} is none of 301, 302, 303, 307 and 308", redirect.status_code);
            r.error(&at.field("statusCode"), "bad-value", message);
        }
        path_modifier(r, &at.field("path"), redirect.path.as_ref());
    }
    if let Some(rewrite) = &filter.url_rewrite {
        path_modifier(r, &path.field("urlRewrite").field("path"), rewrite.path.as_ref());
    }
    if let Some(cors) = &filter.cors {
        for (field, values) in [
            ("allowOrigins", &cors.allow_origins),
            ("allowMethods", &cors.allow_methods),
            ("allowHeaders", &cors.allow_headers),
        ] {
            if values.len() > 1 && values.iter().any(|value| &**value == "*") {
                let message = "* cannot be combined with other entries";
                r.error(&path.field("cors").field(field), "exclusive-fields", message);
            }
        }
    }
    if let Some(auth) = &filter.external_auth {
        let at = path.field("externalAuth");
        let protocol = auth.protocol.name();
        goes_together(r, &at, protocol, "GRPC", "grpc", auth.grpc.is_some());
        goes_together(r, &at, protocol, "HTTP", "http", auth.http.is_some());
        let backend = &auth.backend_ref;
        service_port(
            r,
            &at.field("backendRef"),
            &backend.group,
            &backend.kind,
            backend.port.is_some(),
        );
    }
}

fn mirror(r: &mut Report, path: &FieldPath, mirror: &RequestMirrorFilter) {
    let backend = &mirror.backend_ref;
    service_port(
        r,
        &path.field("backendRef"),
        &backend.group,
        &backend.kind,
        backend.port.is_some(),
    );
    if let Some(fraction) = &mirror.fraction {
        let at = path.field("fraction");
        if mirror.percent.is_some() {
            r.error(&at, "exclusive-fields", "percent and fraction exclude each other");
        }
        if fraction.numerator > fraction.denominator {
            let message = format!(
                "the numerator is greater than the denominator, {}",
                fraction.denominator
            );
            r.error(&at.field("numerator"), "out-of-range", message);
        }
    }
}

fn path_modifier(r: &mut Report, path: &FieldPath, modifier: Option<&HttpPathModifier>) {
    let Some(modifier) = modifier else {
        return;
    };
    let kind = modifier.kind.name();
    let full = modifier.replace_full_path.is_some();
    goes_together(r, path, kind, "ReplaceFullPath", "replaceFullPath", full);
    let prefix = modifier.replace_prefix_match.is_some();
    goes_together(r, path, kind, "ReplacePrefixMatch", "replacePrefixMatch", prefix);
}

/// Whether a filter replaces the prefix that a rule matched.
pub(super) fn replaces_prefix(filter: &HttpRouteFilter) -> bool {
    let redirect = filter
        .request_redirect
        .as_ref()
        .and_then(|redirect| redirect.path.as_ref());
    let rewrite = filter.url_rewrite.as_ref().and_then(|rewrite| rewrite.path.as_ref());
    let mut modifiers = redirect.into_iter().chain(rewrite);
    modifiers.any(|modifier| modifier.kind == PathModifierType::ReplacePrefixMatch)
}
