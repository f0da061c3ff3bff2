//! Helpers for requests to the Kubernetes API and their responses.

use std::time::Duration;

use api::{Api, User};
use controllers::Target;
use http::{HeaderMap, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::leadership::Outcome;

/// No larger answer is read, in bytes.
const LARGEST_ANSWER: u64 = 16 << 20;

/// The maximum wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// An API of objects. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// A Kubernetes API server.
    Kubernetes(Client),
    /// The API of a store in this process.
    Store(Api),
}

impl Endpoint {
    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&self, request: http::Result<Request<Body>>) -> Result<(StatusCode, Value), Outcome> {
        let api = match self {
            Endpoint::Kubernetes(client) => return ask(client, request).await,
            Endpoint::Store(api) => api,
        };
        let (head, body) = request.map_err(|error| Outcome::Refused(error.to_string()))?.into_parts();
        let body = body.collect_bytes().await.map_err(|error| Outcome::Refused(error.to_string()))?;
        let (method, uri, headers) = (head.method, head.uri, head.headers);
        let answer = api.call(api::Request { method, uri, headers, body, user: User::system() }).await;
        let status = answer.status;
        let value = serde_json::from_slice(&answer.body.bytes().await).unwrap_or(Value::Null);
        match status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            true => Err(refused(status, &value)),
            false => Ok((status, value)),
        }
    }

    /// Reads an object; `None` if it does not exist.
    ///
    /// # Errors
    /// The reason for which it cannot be read.
    pub(crate) async fn get(&self, target: &Target) -> Result<Option<Value>, String> {
        let (resource, version) = (&target.resource, target.resource.api_version());
        let path = object_path(resource.group, &version, &target.namespace, resource.plural, &target.name);
        match self.ask(Request::get(path).body(Body::empty())).await {
            Ok((StatusCode::OK, object)) => Ok(Some(object)),
            Ok((StatusCode::NOT_FOUND, _)) => Ok(None),
            Ok((status, answer)) => Err(format!("{status}: {}", message(&answer))),
            Err(Outcome::Retry(reason) | Outcome::Refused(reason)) => Err(reason),
            Err(_) => Err("no reason given".to_owned()),
        }
    }
}

/// The path of an object below the server. Cluster-scoped kinds have no namespace.
pub(super) fn object_path(group: &str, api_version: &str, namespace: &str, plural: &str, name: &str) -> String {
    let root = if group.is_empty() { "api" } else { "apis" };
    match namespace.is_empty() {
        true => format!("/{root}/{api_version}/{plural}/{name}"),
        false => format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}"),
    }
}

/// Sends a request and reads the answer. If the server is busy or failing, waits for as long as it asks for.
pub(crate) async fn ask(client: &Client, request: http::Result<Request<Body>>) -> Result<(StatusCode, Value), Outcome> {
    let retry = |error: &dyn std::error::Error| Outcome::Retry(error.to_string());
    let request = request.map_err(|error| Outcome::Refused(error.to_string()))?;
    let response = client.send(request).await.map_err(|error| retry(&error))?;
    let (status, headers) = (response.status(), response.headers().clone());
    if number(&headers, header::CONTENT_LENGTH).is_some_and(|length| length > LARGEST_ANSWER) {
        return Err(Outcome::Retry("the answer is too large".to_owned()));
    }
    let bytes = response.into_body().collect_bytes().await;
    let bytes = bytes.map_err(|error| retry(&error))?;
    let answer = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return Ok((status, answer));
    }
    if let Some(seconds) = number(&headers, header::RETRY_AFTER) {
        tokio::time::sleep(Duration::from_secs(seconds).min(LONGEST_WAIT)).await;
    }
    Err(refused(status, &answer))
}

fn number(headers: &HeaderMap, name: header::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// The outcome of a write that the server rejected for now.
pub(super) fn refused(status: StatusCode, answer: &Value) -> Outcome {
    Outcome::Retry(format!("{status}: {}", message(answer)))
}

/// The server's error message.
pub(crate) fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or("no reason given")
}
