//! Retries.

use config::istio::HttpRetry;
use protos::envoy::config::route::v3::RetryPolicy;
use protos::envoy::config::route::v3::retry_policy::{
    RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority,
};
use protos::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use protos::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;

use crate::parts::{any, duration};

/// The default retry conditions: requests that did not reach an application.
const DEFAULT_RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
/// The retry conditions of inbound routes.
const INBOUND_RETRY_ON: &str = "reset-before-request";
const DEFAULT_RETRIES: u32 = 2;
/// The number of attempts to find a host that was not tried yet.
const HOST_SELECTION_ATTEMPTS: i64 = 5;
/// The number of attempts after which other priorities are considered.
const PRIORITY_UPDATE_FREQUENCY: i32 = 2;
/// The retry condition that enables `retriable_status_codes`.
const STATUS_CODES: &str = "retriable-status-codes";

/// The retry policy of a route: the configured one, or the default. If endpoints are selected by a hash (`hashed`),
/// retries go to the same one.
pub(crate) fn policy(asked: Option<&HttpRetry>, hashed: bool) -> Option<RetryPolicy> {
    let mut policy = RetryPolicy {
        num_retries: Some(DEFAULT_RETRIES),
        retry_on: DEFAULT_RETRY_ON.to_owned(),
        host_selection_retry_max_attempts: HOST_SELECTION_ATTEMPTS,
        retry_host_predicate: if hashed { Vec::new() } else { vec![previous_hosts()] },
        ..Default::default()
    };
    let Some(asked) = asked else { return Some(policy) };
    policy.num_retries = Some(u32::try_from(asked.attempts).ok().filter(|n| *n > 0)?);
    if !asked.retry_on.is_empty() {
        (policy.retry_on, policy.retriable_status_codes) = conditions(&asked.retry_on);
    }
    policy.per_try_timeout = asked.per_try_timeout.map(duration);
    if let Some(ignore) = asked.retry_ignore_previous_hosts {
        policy.retry_host_predicate = if ignore { vec![previous_hosts()] } else { Vec::new() };
    }
    policy.retry_priority = asked.retry_remote_localities.unwrap_or(false).then(previous_priorities);
    policy.retry_back_off = back_off(asked);
    Some(policy)
}

/// The retry policy of a sidecar for its own application: the configured one, or the default. There is one destination, so
/// hosts are not selected.
pub(crate) fn inbound(asked: Option<&HttpRetry>) -> Option<RetryPolicy> {
    let default =
        RetryPolicy { num_retries: Some(DEFAULT_RETRIES), retry_on: INBOUND_RETRY_ON.to_owned(), ..Default::default() };
    let Some(asked) = asked else { return Some(default) };
    let (retry_on, retriable_status_codes) = match &*asked.retry_on {
        "" => (default.retry_on, Vec::new()),
        conditions_of => conditions(conditions_of),
    };
    Some(RetryPolicy {
        num_retries: Some(u32::try_from(asked.attempts).ok().filter(|n| *n > 0)?),
        retry_on,
        retriable_status_codes,
        retry_back_off: back_off(asked),
        ..Default::default()
    })
}

fn back_off(asked: &HttpRetry) -> Option<RetryBackOff> {
    let wait = asked.backoff.filter(|wait| !wait.is_zero())?;
    Some(RetryBackOff { base_interval: Some(duration(wait)), max_interval: None })
}

/// Splits `retryOn` into Envoy's conditions and status codes.
fn conditions(text: &str) -> (String, Vec<u32>) {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (mut names, mut codes) = (Vec::new(), Vec::new());
    for part in parts {
        match part.parse() {
            Ok(code @ 100..600) => codes.push(code),
            _ => names.push(part),
        }
    }
    if !codes.is_empty() && !names.contains(&STATUS_CODES) {
        names.push(STATUS_CODES);
    }
    (names.join(","), codes)
}

/// Retries on a host that was not tried yet.
fn previous_hosts() -> RetryHostPredicate {
    let config = any(&PreviousHostsPredicate {});
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(config)),
    }
}

/// Allows retries in other priorities (localities).
fn previous_priorities() -> RetryPriority {
    let config = any(&PreviousPrioritiesConfig { update_frequency: PRIORITY_UPDATE_FREQUENCY });
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".to_owned(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(config)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asked(attempts: i32, retry_on: &str) -> HttpRetry {
        HttpRetry { attempts, retry_on: retry_on.into(), ..Default::default() }
    }

    #[test]
    fn default_retries() {
        let default = policy(None, false).unwrap();
        assert_eq!((default.num_retries, &*default.retry_on), (Some(2), DEFAULT_RETRY_ON));
        assert_eq!(default.retry_host_predicate[0].name, "envoy.retry_host_predicates.previous_hosts");
        assert!(default.retriable_status_codes.is_empty());
        assert!(policy(None, true).unwrap().retry_host_predicate.is_empty());
    }

    #[test]
    fn zero_attempts_disable_retries() {
        assert_eq!(policy(Some(&asked(0, "5xx")), false), None);
        assert_eq!(policy(Some(&asked(-1, "5xx")), false), None);
    }

    #[test]
    fn inbound_retries() {
        let default = inbound(None).unwrap();
        assert_eq!((default.num_retries, &*default.retry_on), (Some(2), INBOUND_RETRY_ON));
        assert_eq!(inbound(Some(&asked(0, ""))), None);
        let retry = HttpRetry {
            per_try_timeout: Some(Duration::from_secs(1)),
            backoff: Some(Duration::from_millis(25)),
            ..asked(3, "reset,503")
        };
        let own = inbound(Some(&retry)).unwrap();
        assert_eq!((own.num_retries, &*own.retry_on), (Some(3), "reset,retriable-status-codes"));
        assert_eq!((own.retriable_status_codes, own.per_try_timeout), (vec![503], None));
        assert!(own.retry_back_off.is_some() && own.retry_host_predicate.is_empty());
    }

    #[test]
    fn status_codes_are_separated_from_conditions() {
        let of = |text: &str| {
            let policy = policy(Some(&asked(3, text)), false).unwrap();
            (policy.retry_on, policy.retriable_status_codes)
        };
        assert_eq!(of("5xx, reset"), ("5xx,reset".to_owned(), vec![]));
        assert_eq!(of("503,gateway-error,,429"), ("gateway-error,retriable-status-codes".to_owned(), vec![503, 429]));
        assert_eq!(of("retriable-status-codes,503"), (STATUS_CODES.to_owned(), vec![503]));
        assert_eq!(of("9999"), ("9999".to_owned(), vec![]));
    }

    #[test]
    fn every_field() {
        let retry = HttpRetry {
            per_try_timeout: Some(Duration::from_millis(1500)),
            retry_remote_localities: Some(true),
            retry_ignore_previous_hosts: Some(false),
            backoff: Some(Duration::from_millis(25)),
            ..asked(5, "")
        };
        let policy = policy(Some(&retry), false).unwrap();
        assert_eq!(policy.num_retries, Some(5));
        assert_eq!(policy.retry_on, DEFAULT_RETRY_ON);
        assert_eq!(policy.per_try_timeout.map(|d| (d.seconds, d.nanos)), Some((1, 500_000_000)));
        assert!(policy.retry_host_predicate.is_empty());
        assert_eq!(
            policy.retry_priority.map(|p| p.name),
            Some("envoy.retry_priorities.previous_priorities".to_owned())
        );
        assert_eq!(policy.retry_back_off.and_then(|b| b.base_interval).map(|d| d.nanos), Some(25_000_000));
    }
}
