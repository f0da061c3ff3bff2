//! Writes statuses to the `status` subresource of Kubernetes objects, by server-side apply.
//!
//! Fields that Rutter applied before and no longer applies are removed; fields of other writers are preserved. If the
//! schema treats the conditions as one atomic value, as Istio's CRDs do, the conditions of others are included.
//!
//! A status is written with the resource version that was read before it, so that a delayed write, perhaps from a
//! former leader, overwrites nothing. A conflict is retried.

use crate::leadership::{Outcome, Writer};
use config::schema::Definition;
use config::{Kind, ObjectKey};
use http::{Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use status::Intent;

use super::answer::{ask, object_path, refused};
use crate::store_status::{definition, keep_conditions, keep_parents};

const MANAGER: &str = "rutter";

/// Writes statuses through the Kubernetes API.
pub(crate) struct StatusWriter {
    client: Client,
}

impl StatusWriter {
    pub(crate) fn new(client: Client) -> StatusWriter {
        StatusWriter { client }
    }
}

impl Writer<Intent> for StatusWriter {
    async fn write(&self, intent: &Intent) -> Outcome {
        let Some(definition) = definition(&intent.key) else {
            return Outcome::Gone;
        };
        let path = path(definition, &intent.key);
        let found = match ask(&self.client, Request::get(&path).body(Body::empty())).await {
            Ok((StatusCode::OK, found)) => found,
            Ok((StatusCode::NOT_FOUND, _)) => return Outcome::Gone,
            Ok((status, answer)) => return refused(status, &answer),
            Err(outcome) => return outcome,
        };
        if let Some(outcome) = superseded(intent, &found) {
            return outcome;
        }
        let mut ours = intent.status.to_json();
        // The list has no keys, so that it has one owner.
        keep_parents(&found["status"], &mut ours);
        if says(intent.key.kind, &found["status"], &ours) {
            return Outcome::Written;
        }
        let applied = applied((intent.key.kind, definition), &found, ours);
        // Another control plane, such as istiod, may own these fields.
        let request = Request::patch(format!("{path}/status?fieldManager={MANAGER}&force=true"))
            .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(Body::from(applied.to_string().into_bytes()));
        match ask(&self.client, request).await {
            Ok((status, _)) if status.is_success() => Outcome::Written,
            Ok((StatusCode::NOT_FOUND, _)) => Outcome::Gone,
            Ok((status, answer)) => refused(status, &answer),
            Err(outcome) => outcome,
        }
    }
}

/// Whether another object has the name now, or the object is newer than the intent.
fn superseded(intent: &Intent, found: &Value) -> Option<Outcome> {
    let meta = &found["metadata"];
    if !intent.uid.is_empty() && meta["uid"].as_str() != Some(&*intent.uid) {
        return Some(Outcome::Gone);
    }
    let generation = meta["generation"].as_i64().unwrap_or_default();
    (generation > intent.generation && intent.generation > 0).then_some(Outcome::Stale)
}

/// The object's path below the server.
fn path(definition: &Definition, key: &ObjectKey) -> String {
    let namespace = if definition.namespaced { &*key.namespace } else { "" };
    object_path(definition.group, &definition.api_version(), namespace, definition.plural, &key.name)
}

/// The object to apply, for an object as it was read.
fn applied((kind, definition): (Kind, &Definition), found: &Value, mut ours: Value) -> Value {
    if !merges_conditions(found) {
        keep_conditions(kind, &found["status"], &mut ours);
    }
    let meta = &found["metadata"];
    let mut metadata = json!({ "name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"] });
    if definition.namespaced {
        metadata["namespace"] = meta["namespace"].clone();
    }
    json!({
        "apiVersion": definition.api_version(),
        "kind": definition.kind,
        "metadata": metadata,
        "status": ours,
    })
}

/// Whether the server merges conditions by type. Then at least one condition has an owner of its own.
fn merges_conditions(found: &Value) -> bool {
    let managed = found["metadata"]["managedFields"].as_array();
    let mut owned =
        managed.into_iter().flatten().filter_map(|one| one["fieldsV1"]["f:status"]["f:conditions"].as_object());
    owned.any(|conditions| conditions.keys().any(|key| key.starts_with("k:")))
}

/// Whether a status already contains ours.
fn says(kind: Kind, status: &Value, ours: &Value) -> bool {
    let condition = |ours: &Value| {
        let there = status["conditions"].as_array();
        there.is_some_and(|there| there.contains(ours))
    };
    let field = |(name, value): (&String, &Value)| match (name.as_str(), value.as_array()) {
        ("conditions", Some(list)) => list.iter().all(condition) && !is_over(kind, &status["conditions"], list),
        _ => status[name] == *value,
    };
    ours.as_object().is_some_and(|ours| ours.iter().all(field))
}

/// Whether an obsolete condition of ours is present.
fn is_over(kind: Kind, there: &Value, ours: &[Value]) -> bool {
    let has = |list: &[Value], name: &str| list.iter().any(|condition| condition["type"] == name);
    let there = there.as_array().map_or(&[][..], |there| there);
    status::own_conditions(kind).iter().any(|name| has(there, name) && !has(ours, name))
}

#[cfg(test)]
mod tests {
    use config::schema::find;

    use super::*;

    fn found(fields: &Value) -> Value {
        let theirs = json!({"type": "Other", "status": "True"});
        json!({
            "metadata": {
                "name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7",
                "managedFields": [{"manager": "other", "fieldsV1": {"f:status": {"f:conditions": fields}}}],
            },
            "status": {
                "conditions": [theirs, {"type": "Accepted", "status": "False"}],
                "proxies": {"running": 1, "rejected": 1},
                "addresses": [{"value": "240.0.0.1"}],
            },
        })
    }

    #[test]
    fn conditions_of_others_are_preserved_in_map_and_atomic_lists() {
        let definition = find("networking.istio.io", "sidecars").unwrap();
        let own = json!({"type": "Accepted", "status": "True"});
        let ours = json!({"conditions": [own], "proxies": {"running": 2}});
        let by_type = found(&json!({"k:{\"type\":\"Other\"}": {}}));
        let wanted = json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "Sidecar",
            "metadata": {"name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7"},
            "status": ours,
        });
        assert_eq!(applied((Kind::Sidecar, definition), &by_type, ours.clone()), wanted);
        let whole = applied((Kind::Sidecar, definition), &found(&json!({})), ours.clone());
        assert_eq!(whole["status"]["conditions"], json!([own, {"type": "Other", "status": "True"}]));
        assert_eq!(whole["status"].get("addresses"), None, "addresses have another writer");
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let status = &found(&json!({}))["status"];
        let ours =
            json!({"conditions": [{"type": "Accepted", "status": "False"}], "proxies": {"running": 1, "rejected": 1}});
        assert!(says(Kind::Sidecar, status, &ours));
        for (field, value) in [
            ("conditions", json!([{"type": "Accepted", "status": "True"}])),
            ("proxies", json!({"running": 1})),
            ("observedGeneration", json!(2)),
        ] {
            let mut other = ours.clone();
            other[field] = value;
            assert!(!says(Kind::Sidecar, status, &other), "{field}");
        }
        assert!(!says(Kind::Sidecar, &Value::Null, &ours));
        let mut over = status.clone();
        over["conditions"].as_array_mut().unwrap().push(json!({"type": "Conflicted", "status": "True"}));
        assert!(!says(Kind::Sidecar, &over, &ours), "an obsolete condition of ours must be removed");
    }
}
