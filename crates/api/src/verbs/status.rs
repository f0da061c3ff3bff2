//! Writing an object's status from inside the process.

use config::schema;
use k8s_patch::Writer;
use serde_json::{Map, Value};
use store::{Error, Expect, Key};

use super::commit::{ATTEMPTS, MANAGER, put};
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
    /// Makes an object's status what `change` makes of the one that is stored (null: there is none), as the manager
    /// `rutter`. It is asked again when the object is written meanwhile.
    ///
    /// # Errors
    /// The kind has no status, or the store cannot be written.
    pub async fn write_status(
        &self,
        target: &StatusTarget,
        change: impl Fn(&Value) -> Value,
    ) -> Result<StatusOutcome, Failure> {
        let resource = &target.key.resource;
        let kind = schema::find(&resource.group, &resource.plural).filter(|kind| kind.status);
        let kind = kind.ok_or_else(|| Failure::bad_request(format!("{resource} have no status")))?;
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
            // The content stays as it is: nobody needs two of it.
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
    /// Why the stored object is not the one that is meant, if it is not.
    fn misses(&self, metadata: &Value) -> Option<StatusOutcome> {
        if self
            .uid
            .as_deref()
            .is_some_and(|uid| metadata["uid"].as_str() != Some(uid))
        {
            return Some(StatusOutcome::Gone);
        }
        let stored = metadata["generation"].as_i64().unwrap_or_default();
        let stale = self.generation.is_some_and(|generation| stored > generation);
        stale.then_some(StatusOutcome::Stale)
    }
}

/// Takes out of an object what is neither its metadata nor its status nor says what it is.
fn set_aside(object: &mut Value) -> Map<String, Value> {
    let Some(fields) = object.as_object_mut() else {
        return Map::new();
    };
    let all = std::mem::take(fields);
    let (kept, aside) = all
        .into_iter()
        .partition(|(name, _)| ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()));
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
            let target = StatusTarget {
                key: key.clone(),
                uid: Some(uid.to_owned()),
                generation: Some(generation),
            };
            let change = |_: &Value| json!({"proxies": {"running": running}});
            api.write_status(&target, change).await.unwrap()
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
        assert_eq!(stored["spec"], json!({"servers": []}));
    }
}
