//! The HTTP routes of a VirtualService.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::*;
use crate::validate::virtual_service::weights;
use crate::validate::{Report, common, headers, hosts, regex};

pub(super) fn check(r: &mut Report, path: &FieldPath, route: &HttpRoute, in_delegate: bool) {
    conflicts(r, path, route, in_delegate);
    for (index, condition) in route.matches.iter().enumerate() {
        condition_of(r, &path.field("match").index(index), condition);
    }
    headers::operations(r, &path.field("headers"), route.headers.as_ref());
    for (index, destination) in route.route.iter().enumerate() {
        let at = path.field("route").index(index);
        common::destination(r, &at.field("destination"), &destination.destination);
        headers::operations(r, &at.field("headers"), destination.headers.as_ref());
    }
    weights(r, &path.field("route"), route.route.iter().map(|d| d.weight));
    if let Some(redirect) = &route.redirect {
        self::redirect(r, &path.field("redirect"), redirect, &route.matches);
    }
    if let Some(response) = &route.direct_response {
        direct_response(r, &path.field("directResponse"), response);
    }
    if let Some(rewrite) = &route.rewrite {
        self::rewrite(r, &path.field("rewrite"), rewrite);
    }
    authority(r, path, route);
    common::duration(r, &path.field("timeout"), route.timeout);
    retries(r, &path.field("retries"), route.retries.as_ref());
    fault(r, &path.field("fault"), route.fault.as_ref());
    mirrors(r, path, route);
    if let Some(policy) = &route.cors_policy {
        cors(r, &path.field("corsPolicy"), policy);
    }
}

/// A rule does exactly one thing.
fn conflicts(r: &mut Report, path: &FieldPath, route: &HttpRoute, in_delegate: bool) {
    let has = [
        ("route", !route.route.is_empty()),
        ("redirect", route.redirect.is_some()),
        ("directResponse", route.direct_response.is_some()),
        ("delegate", route.delegate.is_some()),
    ];
    let set: Vec<&str> = has.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    match set[..] {
        [] => r.error(
            path,
            "missing-field",
            "route, redirect, directResponse or delegate is needed",
        ),
        [_] => {}
        [first, second, ..] => {
            let message = format!("a rule has either {first} or {second}, not both");
            r.error(&path.field(second), "exclusive-fields", message);
        }
    }
    if in_delegate && route.delegate.is_some() {
        r.error(
            &path.field("delegate"),
            "exclusive-fields",
            "a delegate cannot delegate",
        );
    }
    let answers = set.iter().find(|name| matches!(**name, "redirect" | "directResponse"));
    if let Some(answer) = answers {
        for (name, set) in [("fault", route.fault.is_some()), ("rewrite", route.rewrite.is_some())] {
            if set {
                let message = format!("{name} does not go together with {answer}");
                r.error(&path.field(name), "exclusive-fields", message);
            }
        }
    }
}

fn condition_of(r: &mut Report, path: &FieldPath, condition: &HttpMatchRequest) {
    if let Some(StringMatch::Regex(text)) = &condition.uri {
        regex::check(r, &path.field("uri").field("regex"), text);
    }
    let texts = [
        ("scheme", &condition.scheme),
        ("method", &condition.method),
        ("authority", &condition.authority),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            string_match(r, &path.field(field), text);
        }
    }
    header_matches(r, &path.field("headers"), &condition.headers);
    header_matches(r, &path.field("withoutHeaders"), &condition.without_headers);
    for (name, text) in &condition.query_params {
        string_match(r, &path.field("queryParams").key(name.clone()), text);
    }
    if condition.port != 0 {
        common::port(r, &path.field("port"), condition.port);
    }
    common::labels(r, &path.field("sourceLabels"), &condition.source_labels);
    hosts::gateway_names(r, &path.field("gateways"), &condition.gateways);
    let namespace = &condition.source_namespace;
    if !namespace.is_empty() && !hosts::is_label(namespace) {
        r.error(
            &path.field("sourceNamespace"),
            "bad-value",
            format!("{namespace:?} is not a namespace"),
        );
    }
    if condition.ignore_uri_case && matches!(condition.uri, None | Some(StringMatch::Regex(_))) {
        let message = "ignoreUriCase applies to exact and prefix matches of the uri only";
        r.warning(&path.field("ignoreUriCase"), "no-effect", message);
    }
}

fn header_matches(r: &mut Report, path: &FieldPath, matches: &BTreeMap<Arc<str>, StringMatch>) {
    for (name, text) in matches {
        let at = path.key(name.clone());
        headers::match_name(r, &at, name);
        // Istio reads this regular expression, which is none, as "present".
        if !matches!(text, StringMatch::Regex(star) if &**star == "*") {
            string_match(r, &at, text);
        }
    }
}

fn string_match(r: &mut Report, path: &FieldPath, text: &StringMatch) {
    match text {
        StringMatch::Prefix(prefix) if prefix.is_empty() => {
            r.error(&path.field("prefix"), "bad-value", "the prefix is empty");
        }
        StringMatch::Regex(text) => regex::check(r, &path.field("regex"), text),
        _ => {}
    }
}

fn redirect(r: &mut Report, path: &FieldPath, redirect: &HttpRedirect, matches: &[HttpMatchRequest]) {
    if !redirect.uri.is_empty() && !redirect.prefix_rewrite.is_empty() {
        r.error(
            &path.field("prefixRewrite"),
            "exclusive-fields",
            "only one of uri and prefixRewrite may be set",
        );
    }
    let by_prefix = |m: &HttpMatchRequest| matches!(m.uri, None | Some(StringMatch::Prefix(_)));
    if !redirect.prefix_rewrite.is_empty() && !matches.iter().all(by_prefix) {
        let message = "prefixRewrite needs matches of the uri by prefix";
        r.error(&path.field("prefixRewrite"), "exclusive-fields", message);
    }
    let texts = [
        &redirect.uri,
        &redirect.prefix_rewrite,
        &redirect.authority,
        &redirect.scheme,
    ];
    if texts.iter().all(|text| text.is_empty()) && redirect.port.is_none() {
        r.error(
            path,
            "missing-field",
            "a redirect needs uri, prefixRewrite, authority, scheme, or a port",
        );
    }
    if !matches!(redirect.redirect_code, 0 | 301 | 302 | 303 | 307 | 308) {
        let message = format!("{} is not one of 301, 302, 303, 307, 308", redirect.redirect_code);
        r.error(&path.field("redirectCode"), "out-of-range", message);
    }
    if !matches!(&*redirect.scheme, "" | "http" | "https") {
        r.error(&path.field("scheme"), "bad-value", "the scheme must be http or https");
    }
    if let Some(RedirectPort::Port(number)) = redirect.port {
        common::port(r, &path.field("port"), number);
    }
}

/// From this size on a body is refused, and from that on it is warned about.
const REFUSED_BODY: usize = 1 << 20;
const LARGE_BODY: usize = 100 << 10;

fn direct_response(r: &mut Report, path: &FieldPath, response: &HttpDirectResponse) {
    if !(200..600).contains(&response.status) {
        let message = format!("a status is a number from 200 to 599, not {}", response.status);
        r.error(&path.field("status"), "out-of-range", message);
    }
    let size = match &response.body {
        Some(HttpBody::Text(text)) => text.len(),
        Some(HttpBody::Bytes(bytes)) => bytes.len(),
        _ => 0,
    };
    if size > REFUSED_BODY {
        r.error(
            &path.field("body"),
            "out-of-range",
            "a body must be at most 1 MiB large",
        );
    } else if size > LARGE_BODY {
        r.warning(
            &path.field("body"),
            "costly",
            "bodies of more than 100 KiB make configuration slow",
        );
    }
}

fn rewrite(r: &mut Report, path: &FieldPath, rewrite: &HttpRewrite) {
    if let Some(by_regex) = &rewrite.uri_regex_rewrite {
        let at = path.field("uriRegexRewrite");
        if !rewrite.uri.is_empty() {
            r.error(
                &at,
                "exclusive-fields",
                "only one of uri and uriRegexRewrite may be set",
            );
        }
        regex::check(r, &at.field("match"), &by_regex.regex);
        if by_regex.rewrite.is_empty() {
            r.error(&at.field("rewrite"), "missing-field", "the replacement is needed");
        }
    } else if rewrite.uri.is_empty() && rewrite.authority.is_empty() {
        r.error(
            path,
            "missing-field",
            "a rewrite needs uri, uriRegexRewrite or authority",
        );
    }
}

/// The authority is set once at most: by a rewrite or by a header.
fn authority(r: &mut Report, path: &FieldPath, route: &HttpRoute) {
    let mut known = route
        .rewrite
        .as_ref()
        .is_some_and(|rewrite| !rewrite.authority.is_empty());
    let Some(request) = route.headers.as_ref().and_then(|headers| headers.request.as_ref()) else {
        return;
    };
    for (field, values) in [("set", &request.set), ("add", &request.add)] {
        for name in values.keys().filter(|name| headers::is_authority(name)) {
            if std::mem::replace(&mut known, true) {
                let at = path.field("headers").field("request").field(field).key(name.clone());
                r.error(&at, "duplicate", "the authority is set more than once");
            }
        }
    }
}

/// Envoy's conditions for a retry.
const RETRY_ON: [&str; 16] = [
    "5xx",
    "gateway-error",
    "reset",
    "reset-before-request",
    "connect-failure",
    "retriable-4xx",
    "refused-stream",
    "retriable-status-codes",
    "retriable-headers",
    "envoy-ratelimited",
    "http3-post-connect-failure",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "resource-exhausted",
    "unavailable",
];

/// A retry policy, of a route or of the mesh.
pub(super) fn retries(r: &mut Report, path: &FieldPath, retries: Option<&HttpRetry>) {
    let Some(retries) = retries else {
        return;
    };
    common::not_negative(r, &path.field("attempts"), retries.attempts);
    let more =
        retries.per_try_timeout.is_some() || !retries.retry_on.is_empty() || retries.retry_remote_localities.is_some();
    if retries.attempts == 0 && more {
        r.error(
            path,
            "exclusive-fields",
            "attempts is 0, which means no retries, but more is said about retries",
        );
    }
    common::duration(r, &path.field("perTryTimeout"), retries.per_try_timeout);
    common::duration(r, &path.field("backoff"), retries.backoff);
    for policy in retries.retry_on.split(',').filter(|_| !retries.retry_on.is_empty()) {
        let status = policy.parse().is_ok_and(is_known_status);
        if !status && !RETRY_ON.contains(&policy) {
            r.error(
                &path.field("retryOn"),
                "bad-value",
                format!("{policy:?} is nothing to retry on"),
            );
        }
    }
}

/// Whether a status code is registered.
fn is_known_status(code: u16) -> bool {
    matches!(code, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451)
        || matches!(code, 500..=508 | 510 | 511)
}

fn fault(r: &mut Report, path: &FieldPath, fault: Option<&HttpFaultInjection>) {
    let Some(fault) = fault else {
        return;
    };
    if fault.abort.is_none() && fault.delay.is_none() {
        r.error(path, "missing-field", "a fault needs a delay or an abort");
    }
    if let Some(delay) = &fault.delay {
        let at = path.field("delay");
        share(r, &at.field("percentage"), delay.percentage.as_ref());
        common::percent(r, &at.field("percent"), f64::from(delay.percent));
        match &delay.kind {
            Some(DelayType::Fixed(fixed)) => common::duration(r, &at.field("fixedDelay"), Some(*fixed)),
            Some(DelayType::Exponential(_)) => {
                r.error(
                    &at.field("exponentialDelay"),
                    "unsupported",
                    "exponentialDelay is not supported",
                );
            }
            None => {}
        }
    }
    if let Some(abort) = &fault.abort {
        let at = path.field("abort");
        share(r, &at.field("percentage"), abort.percentage.as_ref());
        match &abort.kind {
            Some(AbortType::HttpStatus(200..=599)) => {}
            Some(AbortType::HttpStatus(status)) => {
                let message = format!("a status is a number from 200 to 599, not {status}");
                r.error(&at.field("httpStatus"), "out-of-range", message);
            }
            Some(AbortType::GrpcStatus(status)) if GRPC_STATUS.contains(&&**status) => {}
            Some(AbortType::GrpcStatus(status)) => {
                r.error(
                    &at.field("grpcStatus"),
                    "bad-value",
                    format!("{status:?} is not a gRPC status"),
                );
            }
            Some(AbortType::Http2Error(_)) => {
                r.error(&at.field("http2Error"), "unsupported", "http2Error is not supported");
            }
            None => r.warning(&at, "no-effect", "the abort says no status"),
        }
    }
}

/// The names of gRPC's status codes.
const GRPC_STATUS: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// A percentage that is 0 or at least as fine as Envoy can count, one in a million.
fn share(r: &mut Report, path: &FieldPath, percentage: Option<&Percent>) {
    let Some(Percent { value }) = percentage else {
        return;
    };
    common::percent(r, path, *value);
    if *value > 0.0 && *value < 0.0001 {
        r.error(path, "out-of-range", "percentages below 0.0001 are not supported");
    }
}

fn mirrors(r: &mut Report, path: &FieldPath, route: &HttpRoute) {
    if let Some(mirror) = &route.mirror {
        common::destination(r, &path.field("mirror"), mirror);
        if !route.mirrors.is_empty() {
            r.error(
                &path.field("mirrors"),
                "exclusive-fields",
                "only one of mirror and mirrors may be set",
            );
        }
    }
    for (index, mirror) in route.mirrors.iter().enumerate() {
        let at = path.field("mirrors").index(index);
        common::destination(r, &at.field("destination"), &mirror.destination);
        if let Some(percentage) = &mirror.percentage {
            common::percent(r, &at.field("percentage"), percentage.value);
        }
    }
    if let Some(percent) = route.mirror_percent {
        let at = path.field("mirrorPercent");
        common::percent(r, &at, f64::from(percent));
        r.warning(&at, "deprecated", "mirrorPercent is deprecated; use mirrorPercentage");
    }
    if let Some(percentage) = &route.mirror_percentage {
        common::percent(r, &path.field("mirrorPercentage"), percentage.value);
    }
}

fn cors(r: &mut Report, path: &FieldPath, policy: &CorsPolicy) {
    const METHODS: [&str; 10] = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*",
    ];
    if !policy.allow_origin.is_empty() {
        r.warning(
            &path.field("allowOrigin"),
            "deprecated",
            "allowOrigin is deprecated; use allowOrigins",
        );
    }
    for (index, origin) in policy.allow_origins.iter().enumerate() {
        let at = path.field("allowOrigins").index(index);
        match origin {
            StringMatch::Regex(text) => regex::check(r, &at.field("regex"), text),
            StringMatch::Exact(text) | StringMatch::Prefix(text) if !text.is_empty() => {}
            _ => r.error(&at, "missing-field", "an origin needs exact, prefix or regex"),
        }
    }
    for (index, method) in policy.allow_methods.iter().enumerate() {
        if !METHODS.contains(&&**method) {
            r.error(
                &path.field("allowMethods").index(index),
                "bad-value",
                format!("{method:?} is not a method"),
            );
        }
    }
    for (field, names) in [
        ("allowHeaders", &policy.allow_headers),
        ("exposeHeaders", &policy.expose_headers),
    ] {
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !headers::is_name(name)) {
            r.error(
                &path.field(field).index(index),
                "bad-header",
                format!("{name:?} is not the name of a header"),
            );
        }
    }
    let max_age = path.field("maxAge");
    common::duration(r, &max_age, policy.max_age);
    if policy.max_age.is_some_and(|age| age.subsec_nanos() >= 1_000_000) {
        r.error(&max_age, "out-of-range", "maxAge is counted in whole seconds");
    }
}
