//! Validation of the HTTP policies of a VirtualService: retries, faults, mirrors and CORS.

use crate::diagnostic::FieldPath;
use crate::istio::*;
use crate::validate::{Report, common, headers, regex};

/// Envoy's retry policies.
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

/// Checks the retry policy of a route or of the mesh configuration.
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
            "attempts is 0, which disables retries, so no other retry setting may be set",
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
                format!("unknown retry condition {policy:?}"),
            );
        }
    }
}

/// Whether an HTTP status code is registered.
fn is_known_status(code: u16) -> bool {
    matches!(code, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451)
        || matches!(code, 500..=508 | 510 | 511)
}

pub(super) fn fault(r: &mut Report, path: &FieldPath, fault: Option<&HttpFaultInjection>) {
    let Some(fault) = fault else {
        return;
    };
    if fault.abort.is_none() && fault.delay.is_none() {
        r.error(path, "missing-field", "a fault requires a delay or an abort");
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
                let message = format!("a status code must be between 200 and 599, not {status}");
                r.error(&at.field("httpStatus"), "out-of-range", message);
            }
            Some(AbortType::GrpcStatus(status)) if GRPC_STATUS.contains(&&**status) => {}
            Some(AbortType::GrpcStatus(status)) => {
                r.error(
                    &at.field("grpcStatus"),
                    "bad-value",
                    format!("{status:?} is not a gRPC status code"),
                );
            }
            Some(AbortType::Http2Error(_)) => {
                r.error(&at.field("http2Error"), "unsupported", "http2Error is not supported");
            }
            None => r.warning(&at, "no-effect", "the abort has no status"),
        }
    }
}

/// Names of gRPC status codes.
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

/// Checks a percentage that is 0 or at least 0.0001, Envoy's resolution.
fn share(r: &mut Report, path: &FieldPath, percentage: Option<&Percent>) {
    let Some(Percent { value }) = percentage else {
        return;
    };
    common::percent(r, path, *value);
    if *value > 0.0 && *value < 0.0001 {
        r.error(path, "out-of-range", "percentages below 0.0001 are not supported");
    }
}

pub(super) fn mirrors(r: &mut Report, path: &FieldPath, route: &HttpRoute) {
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

pub(super) fn cors(r: &mut Report, path: &FieldPath, policy: &CorsPolicy) {
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
            _ => r.error(&at, "missing-field", "an origin requires exact, prefix or regex"),
        }
    }
    for (index, method) in policy.allow_methods.iter().enumerate() {
        if !METHODS.contains(&&**method) {
            r.error(
                &path.field("allowMethods").index(index),
                "bad-value",
                format!("unknown method {method:?}"),
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
                format!("{name:?} is not a valid header name"),
            );
        }
    }
    let max_age = path.field("maxAge");
    common::duration(r, &max_age, policy.max_age);
    if policy.max_age.is_some_and(|age| age.subsec_nanos() >= 1_000_000) {
        r.error(&max_age, "out-of-range", "maxAge must be a whole number of seconds");
    }
}
