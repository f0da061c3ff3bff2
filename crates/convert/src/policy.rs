//! Converts timeouts, retries and CORS policies.

use std::collections::BTreeSet;
use std::time::Duration;

use config::FieldPath;
use config::gateway_api::GatewayDuration;
use config::gateway_api::filter::{CorsFilter, HttpFilterType, HttpRouteFilter};
use config::gateway_api::http_route::{HttpRouteRetry, HttpRouteRule, HttpRouteTimeouts};
use config::istio::{HttpRetry, HttpRoute, StringMatch, UnmatchedPreflights};

use crate::rule::Rules;

/// The conditions for a retry that each retry policy of an HTTPRoute has.
const RETRY_ON: [&str; 4] = ["connect-failure", "refused-stream", "unavailable", "cancelled"];
/// The condition that a timeout of attempts adds to them.
const RESET: &str = "reset";
/// The condition that the codes imply.
const STATUS_CODES: &str = "retriable-status-codes";

/// Reports faults, which routes do not inject.
pub(crate) fn report_faults(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath) {
    if rule.fault.is_some() {
        let message = "a route injects no faults; requests are served without";
        rules.lost(at.field("fault"), message, "Keep the VirtualService while faults are tested");
    }
}

/// Sets the timeouts and retries of a rule.
pub(crate) fn set_times(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath, out: &mut HttpRouteRule) {
    let request = rule.timeout.filter(|time| !time.is_zero());
    let request = request.and_then(|time| duration(rules, time, at.field("timeout")));
    let mut attempt = None;
    if let Some(retries) = &rule.retries {
        let at = at.field("retries");
        out.retry = retry(rules, retries, &at);
        if out.retry.is_some() {
            let time = retries.per_try_timeout.filter(|time| !time.is_zero());
            attempt = time.and_then(|time| duration(rules, time, at.field("perTryTimeout")));
            if let (Some(of_attempt), Some(whole)) = (attempt, request)
                && of_attempt.get() > whole.get()
            {
                let message = "the timeout of an attempt cannot exceed that of the request, which ends it first";
                rules.note(at.field("perTryTimeout"), message, "");
                attempt = None;
            }
        }
    }
    if request.is_some() || attempt.is_some() {
        out.timeouts = Some(HttpRouteTimeouts { request, backend_request: attempt });
    }
}

/// A duration in whole milliseconds.
fn duration(rules: &mut Rules<'_, '_>, time: Duration, at: FieldPath) -> Option<GatewayDuration> {
    let millis = time.as_millis();
    let (seconds, rest) = (millis / 1000, millis % 1000);
    let text = format!("{}h{}m{}s{rest}ms", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let whole = time.subsec_nanos().is_multiple_of(1_000_000);
    let found = GatewayDuration::parse(&text).filter(|found| whole && !found.get().is_zero());
    if found.is_none() {
        rules.lost(at, "a duration has whole milliseconds, and at most 99999 hours", "Round the duration");
    }
    found
}

/// The retry policy. None if it cannot be expressed, with a remark.
fn retry(rules: &mut Rules<'_, '_>, found: &HttpRetry, at: &FieldPath) -> Option<HttpRouteRetry> {
    if found.attempts <= 0 {
        let message = "retries cannot be disabled; requests that reached no application are retried";
        rules.lost(at.field("attempts"), message, "Set defaultHttpRetryPolicy of the mesh configuration");
        return None;
    }
    let mut codes = Vec::new();
    let mut named: BTreeSet<&str> = BTreeSet::new();
    for part in found.retry_on.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.parse() {
            Ok(code @ 400..600) => codes.push(code),
            _ => drop(named.insert(part)),
        }
    }
    named.remove(STATUS_CODES);
    let mut known: BTreeSet<&str> = RETRY_ON.into();
    if found.retry_on.is_empty() {
        named.clone_from(&known);
    }
    if found.per_try_timeout.is_some_and(|time| !time.is_zero()) {
        known.insert(RESET);
    }
    if known.difference(&named).eq([&RESET]) && named.is_subset(&known) {
        rules.note(at.field("retryOn"), "attempts that time out or are reset are also retried", "");
    } else if named != known {
        let list = |set: Vec<&&str>| set.into_iter().copied().collect::<Vec<_>>().join(", ");
        let (gone, more) = (list(named.difference(&known).collect()), list(known.difference(&named).collect()));
        let mut message = "a retry policy names status codes only".to_owned();
        if !gone.is_empty() {
            message.push_str(&format!("; not retried: {gone}"));
        }
        if !more.is_empty() {
            message.push_str(&format!("; also retried: {more}"));
        }
        rules.lost(at.field("retryOn"), message, "Name status codes, such as 502,503,504");
    }
    if found.retry_remote_localities == Some(true) {
        let message = "a retry policy does not choose localities";
        rules.lost(at.field("retryRemoteLocalities"), message, "Use localityLbSetting of a DestinationRule");
    }
    if found.retry_ignore_previous_hosts == Some(false) {
        let message = "retries avoid endpoints that were tried before";
        rules.lost(at.field("retryIgnorePreviousHosts"), message, "Remove the field");
    }
    codes.sort_unstable();
    codes.dedup();
    let backoff = found.backoff.filter(|time| !time.is_zero());
    let backoff = backoff.and_then(|time| duration(rules, time, at.field("backoff")));
    Some(HttpRouteRetry { codes, attempts: u32::try_from(found.attempts).ok(), backoff })
}

/// The filter of a CORS policy.
pub(crate) fn cors(rules: &mut Rules<'_, '_>, rule: &HttpRoute, at: &FieldPath) -> Option<HttpRouteFilter> {
    let policy = rule.cors_policy.as_ref()?;
    let at = at.field("corsPolicy");
    let mut cors = CorsFilter {
        allow_credentials: policy.allow_credentials,
        allow_methods: policy.allow_methods.clone(),
        allow_headers: policy.allow_headers.clone(),
        expose_headers: policy.expose_headers.clone(),
        ..CorsFilter::default()
    };
    let old = policy.allow_origin.iter().filter(|_| policy.allow_origins.is_empty());
    let old = old.map(|origin| StringMatch::Exact(origin.clone()));
    for (index, origin) in policy.allow_origins.iter().cloned().chain(old).enumerate() {
        match origin {
            StringMatch::Exact(origin) => cors.allow_origins.push(origin),
            StringMatch::Regex(regex) if &*regex == ".*" => cors.allow_origins.push("*".into()),
            _ => rules.lost(
                at.field("allowOrigins").index(index),
                "an origin is a scheme and a host, whose first label may be *; this one is left out",
                "Name the origins",
            ),
        }
    }
    if cors.allow_origins.iter().any(|origin| &**origin == "*") {
        cors.allow_origins = vec!["*".into()];
    }
    match policy.max_age.map(|age| u32::try_from(age.as_secs()).unwrap_or(u32::MAX)) {
        // Browsers keep the answer for 5 s if the response does not say how long.
        None => {}
        Some(0) => rules.lost(at.field("maxAge"), "the maximum age is at least one second", "Use 1s"),
        Some(age) => cors.max_age = age,
    }
    if policy.unmatched_preflights != UnmatchedPreflights::Ignore {
        let message = "preflight requests of other origins are answered here, and not forwarded";
        let hint = "Set it to IGNORE, unless the application answers them";
        rules.lost(at.field("unmatchedPreflights"), message, hint);
    }
    Some(HttpRouteFilter { kind: HttpFilterType::Cors, cors: Some(cors), ..HttpRouteFilter::default() })
}
