//! Numbers and durations, as texts.

use crate::decode::parse_duration;
use crate::form::{Fault, good};

fn out_of_range(message: impl Into<String>) -> Result<(), Fault> {
    Err(Fault::new("out-of-range", message))
}

/// A duration of at least 1ms, in whole milliseconds.
pub(crate) fn duration(text: &str) -> Result<(), Fault> {
    match parse_duration(text) {
        Some(value) if value.as_millis() == 0 => out_of_range("the duration must be at least 1ms"),
        Some(value) if value.subsec_nanos() % 1_000_000 != 0 => out_of_range("the duration must be a multiple of 1ms"),
        _ => Ok(()),
    }
}

/// A duration of whole milliseconds. Zero disables a timeout.
pub(crate) fn duration_or_zero(text: &str) -> Result<(), Fault> {
    match parse_duration(text) {
        Some(value) if value.is_zero() => Ok(()),
        _ => duration(text),
    }
}

/// A duration of any length except zero.
pub(crate) fn delay(text: &str) -> Result<(), Fault> {
    match parse_duration(text) {
        Some(value) if value.is_zero() => out_of_range("the duration must be greater than 0"),
        _ => Ok(()),
    }
}

/// A duration of at least 1s, in whole seconds.
pub(crate) fn seconds(text: &str) -> Result<(), Fault> {
    duration(text)?;
    match parse_duration(text) {
        Some(value) if value.subsec_nanos() != 0 => out_of_range("the duration must be a whole number of seconds"),
        _ => Ok(()),
    }
}

/// A port number, written as a text.
pub(crate) fn port_number(text: &str) -> Result<(), Fault> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    good(digits, || format!("{text:?} is not a valid port number"))?;
    match text.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => out_of_range(format!("a port must be between 1 and 65535, not {text}")),
    }
}

/// A port number or 0, written as a text.
pub(crate) fn port_or_zero(text: &str) -> Result<(), Fault> {
    if text == "0" { Ok(()) } else { port_number(text) }
}

/// The status code of a redirect. 0 stands for the default.
pub(crate) fn redirect_code(text: &str) -> Result<(), Fault> {
    match text {
        "0" | "301" | "302" | "303" | "307" | "308" => Ok(()),
        text => out_of_range(format!("the status code {text} is not one of 301, 302, 303, 307 and 308")),
    }
}

/// A number greater than 0.
pub(crate) fn positive(text: &str) -> Result<(), Fault> {
    match text.parse::<f64>() {
        Ok(number) if number <= 0.0 => out_of_range("the number must be greater than 0"),
        _ => Ok(()),
    }
}

/// The size of a Maglev table.
pub(crate) fn prime(text: &str) -> Result<(), Fault> {
    let is_prime =
        |number: u64| number >= 2 && !(2..).take_while(|d| d * d <= number).any(|d| number.is_multiple_of(d));
    match text.parse::<u64>() {
        Ok(number) if !(number < 5_000_011 && is_prime(number)) => {
            out_of_range("tableSize must be a prime number below 5000011")
        }
        _ => Ok(()),
    }
}

/// An HTTP status code that Envoy can respond with.
pub(crate) fn status(text: &str) -> Result<(), Fault> {
    let known = |code: u16| is_registered(code) && !matches!(code, 101..=103 | 418 | 425 | 451);
    good(text.parse().is_ok_and(known), || format!("{text:?} is not an HTTP status code such as 403 or 503"))
}

/// Whether an HTTP status code is registered.
fn is_registered(code: u16) -> bool {
    matches!(code, 100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451)
        || matches!(code, 500..=508 | 510 | 511)
}

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

/// Retry policies and status codes, separated by commas.
pub(crate) fn retry_on(text: &str) -> Result<(), Fault> {
    let known = |policy: &str| RETRY_ON.contains(&policy) || policy.parse().is_ok_and(is_registered);
    let unknown: Vec<&str> = text.split(',').filter(|policy| !known(policy)).collect();
    good(unknown.is_empty(), || format!("unknown retry condition {:?}", unknown.join(",")))
}
