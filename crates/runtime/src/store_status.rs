//! Writes statuses through the in-process API, and stores the lease of their writer.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::leadership::{Lease, Lock, LockError, Outcome, Writer};
use api::{Api, StatusOutcome, StatusTarget};
use config::schema::{Definition, definitions};
use config::{Kind, ObjectKey, Timestamp};
use serde_json::{Value, json};
use settings::Settings;
use status::Intent;
use store::{Error, Expect, GroupResource, Key, Operation, Store, Transaction};

/// The namespace and name of the lease.
const NAMESPACE: &str = "istio-system";
const NAME: &str = "rutter-status";

pub(super) fn planning(settings: &Settings) -> status::Settings {
    status::Settings { interval: settings.status_interval, ..status::Settings::default() }
}

/// The definition of an object's kind; `None` if the kind is not served.
pub(super) fn definition(key: &ObjectKey) -> Option<&'static Definition> {
    definitions().iter().find(|definition| definition.mesh == Some(key.kind))
}

/// Writes statuses through the API.
pub(super) struct StatusWriter(pub(super) Api);

impl Writer<Intent> for StatusWriter {
    async fn write(&self, intent: &Intent) -> Outcome {
        let Some(kind) = definition(&intent.key) else {
            return Outcome::Gone;
        };
        let resource = GroupResource::new(kind.group, kind.plural);
        let key = Key::new(resource, intent.key.namespace.clone(), intent.key.name.clone());
        let target = StatusTarget {
            key,
            uid: Some(intent.uid.to_string()).filter(|uid| !uid.is_empty()),
            generation: Some(intent.generation),
        };
        match self.0.write_status(&target, |old| merged(intent.key.kind, old, intent.status.to_json())).await {
            Ok(StatusOutcome::Written(_) | StatusOutcome::Unchanged) => Outcome::Written,
            Ok(StatusOutcome::Gone) => Outcome::Gone,
            Ok(StatusOutcome::Stale) => Outcome::Stale,
            Err(failure) => Outcome::Retry(failure.message),
        }
    }
}

/// Merges our status with the fields and conditions of others.
fn merged(kind: Kind, old: &Value, mut ours: Value) -> Value {
    keep_conditions(kind, old, &mut ours);
    keep_parents(old, &mut ours);
    if let Some(fields) = ours.as_object_mut() {
        for (name, value) in old.as_object().into_iter().flatten() {
            fields.entry(name).or_insert_with(|| value.clone());
        }
    }
    ours
}

/// Puts the parents and ancestors of other controllers before ours. An entry without a controller is replaced by one of ours for the
/// same Gateway.
pub(super) fn keep_parents(old: &Value, ours: &mut Value) {
    for list in ["parents", "ancestors"] {
        if let Some(entries) = ours.get_mut(list).and_then(Value::as_array_mut) {
            let others = old[list].as_array().into_iter().flatten();
            let is_replaced = |entry: &Value| {
                let same = |own: &Value| own["parentRef"] == entry["parentRef"];
                entry.get("controllerName").is_none() && entry.get("parentRef").is_some() && entries.iter().any(same)
            };
            let others = others.filter(|entry| !status::is_ours(entry) && !is_replaced(entry));
            let kept: Vec<Value> = others.cloned().collect();
            entries.splice(0..0, kept);
        }
    }
}

/// Adds conditions of other types from the old status.
pub(super) fn keep_conditions(kind: Kind, old: &Value, ours: &mut Value) {
    let is_ours = |condition: &&Value| status::own_conditions(kind).iter().any(|own| condition["type"] == **own);
    let others = old["conditions"].as_array().into_iter().flatten();
    let kept: Vec<Value> = others.filter(|condition| !is_ours(condition)).cloned().collect();
    if let Some(conditions) = ours.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.extend(kept);
    }
}

/// The lease as an object of the store.
pub(super) struct StoreLock(pub(super) Arc<dyn Store>);

impl StoreLock {
    fn key() -> Key {
        Key::new(GroupResource::new("coordination.k8s.io", "leases"), NAMESPACE, NAME)
    }
}

impl Lock for StoreLock {
    async fn read(&self) -> Result<Option<(Lease, String)>, LockError> {
        let stored = self.0.get(&Self::key()).await?;
        Ok(stored.map(|stored| {
            let lease = Lease::from_json(&stored.value()["spec"]);
            (lease, stored.revision.to_string())
        }))
    }

    async fn write(&self, lease: &Lease, version: Option<&str>) -> Result<bool, LockError> {
        let expect = match version.map(str::parse) {
            None => Expect::Absent,
            Some(Ok(revision)) => Expect::Revision(revision),
            Some(Err(_)) => return Ok(false),
        };
        let stored = self.0.get(&Self::key()).await?;
        let mut value = stored.map_or_else(fresh, |stored| stored.value());
        value["spec"] = lease.to_json();
        let put = Operation::Put { key: Self::key(), value, expect };
        match self.0.commit(Transaction::one(put)).await {
            Ok(_) => Ok(true),
            Err(Error::Conflict { .. } | Error::Exists { .. } | Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn fresh() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_unix(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_others_are_preserved_and_obsolete_rejections_removed() {
        let old = json!({
            "addresses": [{"value": "240.240.0.1"}],
            "conditions": [{"type": "Accepted", "status": "False"}, {"type": "Theirs", "status": "True"}],
            "proxies": {"running": 1, "rejection": {"proxy": "a"}},
        });
        let ours = json!({"conditions": [{"type": "Accepted", "status": "True"}], "proxies": {"running": 2}});
        let merged = merged(Kind::VirtualService, &old, ours);
        let expected = json!({
            "addresses": [{"value": "240.240.0.1"}],
            "conditions": [{"type": "Accepted", "status": "True"}, {"type": "Theirs", "status": "True"}],
            "proxies": {"running": 2},
        });
        assert_eq!(merged, expected);
        let merged = |old: &Value, ours| super::merged(Kind::HttpRoute, old, ours);
        assert_eq!(merged(&Value::Null, json!({"proxies": {}})), json!({"proxies": {}}));
    }

    #[test]
    fn parents_of_other_controllers_are_preserved() {
        let parent = |controller: &str, name: &str| json!({"controllerName": controller, "parentRef": {"name": name}});
        let theirs = parent("example.com/gateways", "theirs");
        let old = json!({"parents": [parent("istio.io/gateway-controller", "old"), theirs]});
        let ours = json!({"parents": [parent("istio.io/gateway-controller", "new")]});
        let expected = json!({"parents": [theirs, ours["parents"][0]]});
        assert_eq!(merged(Kind::HttpRoute, &old, ours.clone()), expected);
        assert_eq!(merged(Kind::HttpRoute, &old, json!({"parents": []})), json!({"parents": [theirs]}));
        // A CRD without the field removes it.
        let unnamed = |name: &str| json!({"parentRef": {"name": name}});
        let old = json!({"parents": [unnamed("new"), unnamed("theirs")]});
        let expected = json!({"parents": [unnamed("theirs"), ours["parents"][0]]});
        assert_eq!(merged(Kind::InferencePool, &old, ours), expected);
    }
}
