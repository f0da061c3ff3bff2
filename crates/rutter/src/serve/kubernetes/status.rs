//! Statuses, written to the `status` subresource of objects in Kubernetes.
//!
//! A status is written with what was read before it: the version goes along, so that whoever writes between is not
//! overwritten, and a conflict is tried again. Fields of a status that are not ours stay; our conditions replace those of
//! their type, and what we no longer say is taken away.

use http::{HeaderMap, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use plan::Intent;
use resources::ObjectKey;
use resources::schema::Definition;
use serde_json::{Value, json};
use sinks::{Outcome, Writer};

use crate::serve::status::{definition, keep_conditions};

/// No answer that is read is larger.
const LARGEST_ANSWER: usize = 16 << 20;
/// Who we say that we are as a writer.
const MANAGER: &str = "rutter";

/// Writes statuses through the Kubernetes API.
pub(in crate::serve) struct StatusWriter {
    client: Client,
}

impl StatusWriter {
    /// One that writes with this client.
    pub(in crate::serve) fn new(client: Client) -> StatusWriter {
        StatusWriter { client }
    }

    async fn ask(&self, request: http::Result<Request<Body>>) -> Result<(StatusCode, Value), Outcome> {
        let request = request.map_err(|error| retry(&error))?;
        let response = self.client.send(request).await.map_err(|error| retry(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = read(&headers, response.into_body()).await?;
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            let wait = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            wait_as_told(wait).await;
            return Err(Outcome::Retry(format!("the server answers {status}")));
        }
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }
}

impl Writer for StatusWriter {
    async fn write(&self, intent: &Intent) -> Outcome {
        let Some(definition) = definition(&intent.key) else {
            return Outcome::Gone;
        };
        let path = path(definition, &intent.key);
        let found = match self.ask(Request::get(&path).body(Body::empty())).await {
            Ok((StatusCode::OK, found)) => found,
            Ok((StatusCode::NOT_FOUND, _)) => return Outcome::Gone,
            Ok((status, answer)) => return refused(status, &answer),
            Err(outcome) => return outcome,
        };
        if let Some(outcome) = superseded(intent, &found) {
            return outcome;
        }
        let status = merged(&found["status"], intent.status.to_json());
        if !changes(&found["status"], &status) {
            return Outcome::Written;
        }
        let patch = json!({
            "metadata": { "resourceVersion": found["metadata"]["resourceVersion"], "uid": found["metadata"]["uid"] },
            "status": status,
        });
        let request = Request::patch(format!("{path}/status?fieldManager={MANAGER}"))
            .header(header::CONTENT_TYPE, "application/merge-patch+json")
            .body(Body::from(patch.to_string().into_bytes()));
        match self.ask(request).await {
            Ok((status, _)) if status.is_success() => Outcome::Written,
            Ok((StatusCode::NOT_FOUND, _)) => Outcome::Gone,
            Ok((status, answer)) => refused(status, &answer),
            Err(outcome) => outcome,
        }
    }
}

/// Whether another object has the name by now, or the object is newer than what the intent is about.
fn superseded(intent: &Intent, found: &Value) -> Option<Outcome> {
    let meta = &found["metadata"];
    if !intent.uid.is_empty() && meta["uid"].as_str() != Some(&*intent.uid) {
        return Some(Outcome::Gone);
    }
    let generation = meta["generation"].as_i64().unwrap_or_default();
    (generation > intent.generation && intent.generation > 0).then_some(Outcome::Stale)
}

fn refused(status: StatusCode, answer: &Value) -> Outcome {
    let message = answer["message"].as_str().unwrap_or("no reason given");
    Outcome::Retry(format!("{status}: {message}"))
}

fn retry(error: &dyn std::error::Error) -> Outcome {
    Outcome::Retry(error.to_string())
}

/// Waits for as long as the server asked for, up to a limit.
async fn wait_as_told(seconds: Option<&str>) {
    const MOST: u64 = 30;
    if let Some(seconds) = seconds.and_then(|text| text.parse::<u64>().ok()) {
        tokio::time::sleep(std::time::Duration::from_secs(seconds.min(MOST))).await;
    }
}

/// Reads an answer; one that is too large by its own account is not begun.
async fn read(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Outcome> {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    if length
        .and_then(|text| text.parse::<usize>().ok())
        .is_some_and(|length| length > LARGEST_ANSWER)
    {
        return Err(Outcome::Retry("the answer is too large".to_owned()));
    }
    let bytes = body.collect_bytes().await.map_err(|error| retry(&error))?;
    Ok(bytes.to_vec())
}

/// The object's path below the server.
fn path(definition: &Definition, key: &ObjectKey) -> String {
    let version = definition.api_version();
    let root = if definition.group.is_empty() { "api" } else { "apis" };
    let namespace = match definition.namespaced {
        true => format!("/namespaces/{}", key.namespace),
        false => String::new(),
    };
    format!("/{root}/{version}{namespace}/{}/{}", definition.plural, key.name)
}

/// Ours as a merge patch, with the conditions of others kept, and what we no longer say taken away.
fn merged(old: &Value, mut ours: Value) -> Value {
    keep_conditions(old, &mut ours);
    let over: Vec<String> = (old["proxies"].as_object().into_iter().flatten())
        .map(|(field, _)| field.clone())
        .filter(|field| ours["proxies"].get(field).is_none())
        .collect();
    for field in over {
        ours["proxies"][field] = Value::Null;
    }
    ours
}

/// Whether a merge patch changes anything.
fn changes(old: &Value, patch: &Value) -> bool {
    match (old, patch) {
        (_, Value::Object(fields)) => fields.iter().any(|(field, value)| match value {
            Value::Null => old.get(field).is_some(),
            value => changes(old.get(field).unwrap_or(&Value::Null), value),
        }),
        (old, patch) => old != patch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_others_stay_and_what_is_over_goes() {
        let old = json!({
            "conditions": [{"type": "Other", "status": "True"}, {"type": "Accepted", "status": "False"}],
            "proxies": {"running": 1, "refused": "no"},
            "addresses": [{"value": "240.0.0.1"}],
        });
        let ours = json!({"conditions": [{"type": "Accepted", "status": "True"}], "proxies": {"running": 2}});
        let patch = merged(&old, ours);
        let wanted = json!({
            "conditions": [{"type": "Accepted", "status": "True"}, {"type": "Other", "status": "True"}],
            "proxies": {"running": 2, "refused": null},
        });
        assert_eq!(patch, wanted);
        assert!(changes(&old, &patch));
        let after =
            json!({"conditions": wanted["conditions"], "proxies": {"running": 2}, "addresses": old["addresses"]});
        assert!(!changes(
            &after,
            &merged(
                &after,
                json!({"conditions": [{"type": "Accepted", "status": "True"}], "proxies": {"running": 2}})
            )
        ));
    }
}
