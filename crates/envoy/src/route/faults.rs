//! Fault injection and CORS: options of a route for HTTP filters.

use std::collections::BTreeMap;

use config::istio::{Abort, AbortType, CorsPolicy, Delay, DelayType, HttpRoute, UnmatchedPreflights};
use protos::Any;
use protos::envoy::extensions::filters::common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier};
use protos::envoy::extensions::filters::http::cors::v3::CorsPolicy as CorsOptions;
use protos::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType};

use super::matching;
use crate::parts::{any, duration, exact, fraction, hundredths, millionths};

/// The names of gRPC's status codes, by code.
const GRPC_CODES: [&str; 17] = [
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

pub(crate) fn filter_options(route: &HttpRoute) -> BTreeMap<String, Any> {
    let mut options = BTreeMap::new();
    if let Some(fault) = &route.fault {
        let (delay, abort) = (fault.delay.as_ref().and_then(delay), fault.abort.as_ref().and_then(abort));
        if delay.is_some() || abort.is_some() {
            let fault = HttpFault { delay, abort, ..Default::default() };
            options.insert("envoy.filters.http.fault".to_owned(), any(&fault));
        }
    }
    if let Some(policy) = &route.cors_policy {
        options.insert("envoy.filters.http.cors".to_owned(), any(&cors(policy)));
    }
    options
}

/// A delay for a percentage of requests. Envoy does not support exponential delays.
fn delay(delay: &Delay) -> Option<FaultDelay> {
    let Some(DelayType::Fixed(time)) = &delay.kind else {
        return None;
    };
    let percentage = match &delay.percentage {
        Some(percentage) => millionths(percentage.value),
        None => hundredths(u32::try_from(delay.percent).unwrap_or(0)),
    };
    if time.is_zero() {
        return None;
    }
    Some(FaultDelay {
        percentage: Some(percentage),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(*time))),
    })
}

/// An error for a percentage of requests; none without a percentage, as in Istio.
fn abort(abort: &Abort) -> Option<FaultAbort> {
    let error = match abort.kind.as_ref()? {
        AbortType::HttpStatus(status) => {
            ErrorType::HttpStatus(u32::try_from(*status).ok().filter(|status| (200..600).contains(status))?)
        }
        AbortType::GrpcStatus(status) => ErrorType::GrpcStatus(grpc_code(status)?),
        AbortType::Http2Error(_) => return None,
    };
    let percentage = abort.percentage.as_ref().map(|percentage| millionths(percentage.value));
    Some(FaultAbort { percentage, error_type: Some(error), ..Default::default() })
}

/// The code of a gRPC status, from its name or number.
fn grpc_code(text: &str) -> Option<u32> {
    let number = text.parse().ok().or_else(|| GRPC_CODES.iter().position(|name| *name == text))?;
    u32::try_from(number).ok().filter(|_| number < GRPC_CODES.len())
}

fn cors(policy: &CorsPolicy) -> CorsOptions {
    let join = |names: &[std::sync::Arc<str>]| names.join(",");
    let origins = match &policy.allow_origins[..] {
        [] => policy.allow_origin.iter().map(|origin| exact(origin)).collect(),
        origins => origins.iter().filter_map(matching::string_matcher).collect(),
    };
    CorsOptions {
        allow_origin_string_match: origins,
        allow_methods: join(&policy.allow_methods),
        allow_headers: join(&policy.allow_headers),
        expose_headers: join(&policy.expose_headers),
        max_age: policy.max_age.map(|age| age.as_secs().to_string()).unwrap_or_default(),
        allow_credentials: policy.allow_credentials,
        filter_enabled: Some(fraction(hundredths(100))),
        forward_not_matching_preflights: Some(policy.unmatched_preflights != UnmatchedPreflights::Ignore),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::grpc_code;

    #[test]
    fn grpc_codes() {
        for (text, want) in
            [("OK", Some(0)), ("UNAVAILABLE", Some(14)), ("16", Some(16)), ("17", None), ("unavailable", None)]
        {
            assert_eq!(grpc_code(text), want, "{text}");
        }
    }
}
