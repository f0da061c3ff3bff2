//! Writing an object's status from inside the process.

use patch::Writer;
use resources::schema;
use serde_json::Value;
use store::{Error, Expect, Key};

use super::commit::{ATTEMPTS, MANAGER, differ, put};
use crate::api::Api;
use crate::failure::Failure;

/// The object whose status is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusTarget {
    /// The object.
    pub key: Key,
    /// Its UID; none: whichever object has the name.
    pub uid: Option<String>,
    /// The generation that the status is about: it is not written to an object of a newer one. None: to any.
    pub generation: Option<i64>,
}

/// What became of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusOutcome {
    /// It was written, at this revision.
    Written(u64),
    /// It was so already.
    Unchanged,
    /// The object is not there any more, or another one of its name is.
    Gone,
    /// The object has a newer generation now.
    Stale,
}

impl Api {
    /// Merges a status (RFC 7386: null removes a field, lists are replaced) into an object's, as the manager `rutter`.
    ///
    /// # Errors
    /// The kind has no status, or the store cannot be written.
    pub async fn patch_status(&self, target: &StatusTarget, status: &Value) -> Result<StatusOutcome, Failure> {
        let resource = &target.key.resource;
        let kind = schema::find(&resource.group, &resource.plural).filter(|kind| kind.status);
        let kind = kind.ok_or_else(|| Failure::bad_request(format!("{resource} have no status")))?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some(stored) = self.0.store.get(&target.key).await? else {
                return Ok(StatusOutcome::Gone);
            };
            let old = stored.value();
            let metadata = &old["metadata"];
            if target
                .uid
                .as_deref()
                .is_some_and(|uid| metadata["uid"].as_str() != Some(uid))
            {
                return Ok(StatusOutcome::Gone);
            }
            let stored_generation = metadata["generation"].as_i64().unwrap_or_default();
            if target
                .generation
                .is_some_and(|generation| stored_generation > generation)
            {
                return Ok(StatusOutcome::Stale);
            }
            let mut new = old.clone();
            let merged = patch::merge_patch(&old["status"], status, &patch::Limits::default());
            new["status"] = merged.map_err(|error| Failure::bad_request(error.to_string()))?;
            if !differ(&old, &new) {
                return Ok(StatusOutcome::Unchanged);
            }
            let writer = Writer {
                definition: kind,
                version: kind.versions[0].version,
                manager: MANAGER,
                subresource: Some("status"),
                now: self.now(),
            };
            patch::track(Some(&old), &mut new, &writer);
            match put(self, &target.key, new, Expect::Revision(stored.revision), None).await {
                Ok(written) => return Ok(StatusOutcome::Written(written.revision)),
                Err(Error::Conflict { .. } | Error::NotFound { .. }) if attempt < ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
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
                "spec": {},
            }),
            expect: Expect::Absent,
        };
        store.commit(Transaction::one(put)).await.unwrap();
        let api = Api::new(store, Options::default());
        let write = async |uid: &str, generation: i64, running: u64| {
            let target = StatusTarget {
                key: key.clone(),
                uid: Some(uid.to_owned()),
                generation: Some(generation),
            };
            api.patch_status(&target, &json!({"proxies": {"running": running}}))
                .await
                .unwrap()
        };
        assert!(matches!(write("u", 3, 1).await, StatusOutcome::Written(_)));
        assert_eq!(write("u", 3, 1).await, StatusOutcome::Unchanged);
        assert_eq!(write("other", 3, 2).await, StatusOutcome::Gone);
        assert_eq!(write("u", 2, 2).await, StatusOutcome::Stale);
        // An older copy of the store was put back: what is told now is true of it, too.
        assert!(matches!(write("u", 4, 2).await, StatusOutcome::Written(_)));
        let stored = api.store().get(&key).await.unwrap().unwrap().value();
        assert_eq!(stored["status"]["proxies"]["running"], 2);
        assert_eq!(stored["metadata"]["generation"], 3);
    }
}
