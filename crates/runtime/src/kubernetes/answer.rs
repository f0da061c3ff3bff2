//! Helpers for requests to the Kubernetes API and their responses.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

/// The maximum wait for a server that sends `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The path of an object below the server. Cluster-scoped kinds have no namespace.
pub(super) fn object_path(group: &str, api_version: &str, namespace: &str, plural: &str, name: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    match namespace.is_empty() {
        true => format!("/{root}/{api_version}/{plural}/{name}"),
        false => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Waits for the time that an overloaded or failing server asks for (`Retry-After` in seconds), up to a limit.
pub(super) async fn wait_as_asked(status: StatusCode, headers: &HeaderMap) {
    let seconds = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = seconds.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    if let Some(wait) = seconds.filter(|_| is_overwhelmed(status)) {
        tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
    }
}

/// Whether the server is overloaded or failing.
pub(super) fn is_overwhelmed(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// The server's error message.
pub(super) fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or("no reason given")
}
