//! Status updates from this process.

use config::schema;
use k8s_patch::Writer;
use serde_json::{Map, Value};
use store::{Error, Expect, Key};

use super::commit::{ATTEMPTS, MANAGER, put};
use crate::api::Api;
use crate::error::ApiError;

/// The object to update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusTarget {
    /// The object.
    pub key: Key,
    /// Its UID; none matches any object of the name.
    pub uid: Option<String>,
    /// The generation that the status describes. The status is not written if the object has a newer one. None matches
    /// any.
    pub generation: Option<i64>,
}

/// The result of a status update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusOutcome {
    /// Written at this revision.
    Written(u64),
    /// The status was already up to date.
    Unchanged,
    /// The object is gone or was replaced by another one of the same name.
    Gone,
    /// The object has a newer generation.
    Stale,
}

impl Api {
    /// Replaces an object's status by the result of `change`, as the field manager `rutter`. `change` receives the stored
    /// status (null if there is none) and is called again if the object changes concurrently.
    ///
    /// # Errors
    /// The kind has no status, or the store cannot be written.
    pub async fn write_status(
        &self,
        target: &StatusTarget,
        change: impl Fn(&Value) -> Value,
    ) -> Result<StatusOutcome, ApiError> {
        let resource = &target.key.resource;
        let kind = schema::find(&resource.group, &resource.plural).filter(|kind| kind.status);
        let kind = kind.ok_or_else(|| ApiError::bad_request(format!("{resource} have no status")))?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some(stored) = self.0.store.get(&target.key).await? else {
                return Ok(StatusOutcome::Gone);
            };
            let mut old = stored.value();
            if let Some(outcome) = target.misses(&old["metadata"]) {
                return Ok(outcome);
            }
            let status = change(&old["status"]);
            if status == old["status"] {
                return Ok(StatusOutcome::Unchanged);
            }
            // The content is unchanged and not copied.
            let content = set_aside(&mut old);
            let mut new = old.clone();
            new["status"] = status;
            let writer = Writer {
                definition: kind,
                version: kind.versions[0].version,
                manager: MANAGER,
                subresource: Some("status"),
                now: self.now(),
            };
            k8s_patch::track(Some(&old), &mut new, &writer);
            if let Some(new) = new.as_object_mut() {
                new.extend(content);
            }
            match put(self, &target.key, new, Expect::Revision(stored.revision), None).await {
                Ok(written) => return Ok(StatusOutcome::Written(written.revision)),
                Err(Error::Conflict { .. } | Error::NotFound { .. }) if attempt < ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl StatusTarget {
    /// The reason why the stored object is not the requested one, if so.
    fn misses(&self, metadata: &Value) -> Option<StatusOutcome> {
        if self.uid.as_deref().is_some_and(|uid| metadata["uid"].as_str() != Some(uid)) {
            return Some(StatusOutcome::Gone);
        }
        let stored = metadata["generation"].as_i64().unwrap_or_default();
        let stale = self.generation.is_some_and(|generation| stored > generation);
        stale.then_some(StatusOutcome::Stale)
    }
}

/// Removes everything except the metadata, the status and the type.
fn set_aside(object: &mut Value) -> Map<String, Value> {
    let Some(fields) = object.as_object_mut() else {
        return Map::new();
    };
    let all = std::mem::take(fields);
    let (kept, aside) =
        all.into_iter().partition(|(name, _)| ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
    *fields = kept;
    aside
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use store::{GroupResource, Operation, Store, Transaction};

    use super::*;
    use crate::Options;

    #[tokio::test]
    async fn a_status_goes_to_the_object_that_it_is_about_and_to_no_newer_one() {
        let store: Arc<dyn Store> = Arc::new(store::memory::Memory::new(store::Limits::default()));
        let key = Key::new(GroupResource::new("networking.istio.io", "gateways"), "default", "a");
        let put = Operation::Put {
            key: key.clone(),
            value: json!({
                "apiVersion": "networking.istio.io/v1",
                "kind": "Gateway",
                "metadata": {"name": "a", "namespace": "default", "uid": "u", "generation": 3},
                "spec": {"servers": []},
            }),
            expect: Expect::Absent,
        };
        store.commit(Transaction::one(put)).await.unwrap();
        let api = Api::new(store, Options::default());
        let write = async |uid: &str, generation: i64, running: u64| {
            let target = StatusTarget { key: key.clone(), uid: Some(uid.to_owned()), generation: Some(generation) };
            let change = |_: &Value| json!({"proxies": {"running": running}});
            api.write_status(&target, change).await.unwrap()
        };
        assert!(matches!(write("u", 3, 1).await, StatusOutcome::Written(_)));
        assert_eq!(write("u", 3, 1).await, StatusOutcome::Unchanged);
        assert_eq!(write("other", 3, 2).await, StatusOutcome::Gone);
        assert_eq!(write("u", 2, 2).await, StatusOutcome::Stale);
        // After a restore of an older store, the status applies to the older object, too.
        assert!(matches!(write("u", 4, 2).await, StatusOutcome::Written(_)));
        let stored = api.store().get(&key).await.unwrap().unwrap().value();
        assert_eq!(stored["status"]["proxies"]["running"], 2);
        assert_eq!(stored["metadata"]["generation"], 3);
        assert_eq!(stored["spec"], json!({"servers": []}));
    }
}
