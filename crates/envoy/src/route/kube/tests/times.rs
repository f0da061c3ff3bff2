//! Timeouts and retries.

use super::*;

fn of(fields: &str) -> Value {
    route(&format!("{fields}, {TO_A}"))["route"].clone()
}

#[test]
fn timeouts() {
    for (times, want) in [
        ("request: 10s", "10s"),
        ("request: 0s", "0s"),
        ("backendRequest: 500ms", "0.500s"),
        ("request: 10s, backendRequest: 1s", "1s"),
        ("request: 10s, backendRequest: 0s", "10s"),
    ] {
        let route = of(&format!("timeouts: {{{times}}}"));
        check(
            &route,
            &[
                ("timeout", json!(want)),
                ("maxGrpcTimeout", json!(want)),
                ("retryPolicy.perTryTimeout", Value::Null),
                ("retryPolicy.numRetries", json!(2)),
            ],
        );
    }
}

#[test]
fn retries() {
    let all =
        of("timeouts: {request: 10s, backendRequest: 1s}, retry: {codes: [503, 429], attempts: 5, backoff: 100ms}");
    check(
        &all,
        &[
            ("timeout", json!("10s")),
            ("retryPolicy.numRetries", json!(5)),
            ("retryPolicy.perTryTimeout", json!("1s")),
            (
                "retryPolicy.retryOn",
                json!("connect-failure,refused-stream,unavailable,cancelled,reset,retriable-status-codes"),
            ),
            ("retryPolicy.retriableStatusCodes", json!([503, 429])),
            ("retryPolicy.retryBackOff.baseInterval", json!("0.100s")),
        ],
    );
    check(
        &of("retry: {}"),
        &[
            ("timeout", json!("0s")),
            ("retryPolicy.numRetries", json!(2)),
            ("retryPolicy.retryOn", json!("connect-failure,refused-stream,unavailable,cancelled")),
            ("retryPolicy.retriableStatusCodes", Value::Null),
        ],
    );
}

#[test]
fn the_default_retries_of_the_mesh() {
    let rules = format!("[{{{TO_A}}}]");
    let all = matches_at(&rules, 80, false, "defaultHttpRetryPolicy: {attempts: 0}");
    assert_eq!(all[0].as_ref().unwrap()["route"]["retryPolicy"], Value::Null);
}
