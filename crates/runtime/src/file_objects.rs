//! The objects of a directory, in a store in memory from which the API serves them with their statuses.
//!
//! The files are the only writer of objects, and the status writer of statuses. Objects have the same UID whenever they are
//! read, and no creation time unless the file sets it: without one, precedence is by name and not by age.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::Stamp;
use config::schema::Definition;
use config::{ChangeSet, ObjectKey, Observed, Timestamp};
use serde_json::{Map, Value};
use sources::ChangeSender;
use store::memory::Memory;
use store::{Error, Expect, GroupResource, Key, Operation, Store, Stored, Transaction};
use tokio::sync::mpsc;

use super::store_status::definition;

/// A store in memory whose revisions are higher than those of earlier processes, so that clients that reconnect list the
/// objects again instead of following another history.
pub(super) fn fresh_store() -> Arc<dyn Store> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let first = u64::try_from(now.as_millis()).unwrap_or(u64::MAX >> 1);
    Arc::new(Memory::starting_at(first, store::Limits::default()))
}

/// Writes the objects of each change set to the store and forwards the change set with their UIDs and generations, until
/// the source ends.
pub(super) async fn relay(store: Arc<dyn Store>, mut source: mpsc::Receiver<ChangeSet>, changes: ChangeSender) {
    while let Some(mut change) = source.recv().await {
        for (key, observed) in &mut change.observed {
            take(&*store, key, observed).await;
        }
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

/// Updates the stored object. Without one, nothing is observed: a status could not be written.
async fn take(store: &dyn Store, key: &ObjectKey, observed: &mut Option<Observed>) {
    let Some(kind) = definition(key) else { return };
    let place = Key::new(GroupResource::new(kind.group, kind.plural), key.namespace.clone(), key.name.clone());
    if let Some(seen) = observed {
        let original = seen.original.take();
        match put(store, kind, &place, original.as_deref().unwrap_or_default()).await {
            Ok(stored) => {
                let metadata = &stored.value()["metadata"];
                seen.uid = metadata["uid"].as_str().unwrap_or_default().into();
                seen.generation = metadata["generation"].as_i64().unwrap_or_default();
                return;
            }
            Err(Error::Closed) => return,
            Err(error) => tracing::warn!(object = %key, %error, "the API does not serve this object of a file"),
        }
    }
    *observed = None;
    // Fails only during shutdown.
    let _ = store.commit(Transaction::one(Operation::Delete { key: place, expect: Expect::Anything })).await;
}

/// Stores an object as its file defines it, with its status.
async fn put(store: &dyn Store, kind: &Definition, key: &Key, original: &str) -> Result<Stored, Error> {
    loop {
        let old = store.get(key).await?;
        let before = old.as_ref().map(Stored::value);
        let value = completed(kind, key, original, before.as_ref())?;
        let expect = match (&old, &before) {
            (Some(old), Some(before)) if !k8s_patch::differ(before, &value, &["resourceVersion"]) => {
                return Ok(old.clone());
            }
            (Some(old), _) => Expect::Revision(old.revision),
            (None, _) => Expect::Absent,
        };
        let put = Operation::Put { key: key.clone(), value, expect };
        match store.commit(Transaction::one(put)).await {
            Ok(committed) => {
                let written = committed.objects.into_iter().next().flatten();
                return written.ok_or_else(|| Error::Damaged("a write yielded nothing".into()));
            }
            // The status was written in between.
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The object of a file with the metadata that a server sets and the stored status.
fn completed(kind: &Definition, key: &Key, original: &str, before: Option<&Value>) -> Result<Value, Error> {
    let invalid = || Error::Invalid(format!("{key} is not an object"));
    let Ok(Value::Object(written)) = serde_json::from_str(original) else { return Err(invalid()) };
    // The type comes first, as in every stored object.
    let mut fields = Map::new();
    fields.insert("apiVersion".into(), kind.api_version().into());
    fields.insert("kind".into(), kind.kind.into());
    fields.extend(written.into_iter().filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str())));
    let metadata = fields.get_mut("metadata").and_then(Value::as_object_mut).ok_or_else(invalid)?;
    match kind.namespaced {
        true => metadata.insert("namespace".into(), (*key.namespace).into()),
        false => metadata.remove("namespace"),
    };
    metadata.remove("managedFields");
    let created = metadata.get("creationTimestamp").filter(|time| !time.is_null()).cloned();
    // The status of core kinds is input of the mesh. Others have the one that Rutter writes.
    if kind.mesh.is_some_and(|kind| kind.is_complete()) {
        fields.remove("status");
        let status = before.and_then(|before| before.get("status"));
        fields.extend(status.map(|status| ("status".to_owned(), status.clone())));
    }
    let mut object = Value::Object(fields);
    let stamp = Stamp { now: Timestamp::from_unix(0), uid: &uid(key) };
    admission::prepare(before, &mut object, &stamp);
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("creationTimestamp");
        metadata.remove("resourceVersion");
        metadata.extend(created.map(|created| ("creationTimestamp".to_owned(), created)));
        let managed = before.and_then(|before| before["metadata"].get("managedFields"));
        metadata.extend(managed.map(|managed| ("managedFields".to_owned(), managed.clone())));
    }
    Ok(object)
}

/// The UID of an object, which depends on its name only.
fn uid(key: &Key) -> String {
    let hash = xxhash_rust::xxh3::xxh3_128(key.to_string().as_bytes());
    uuid::Builder::from_random_bytes(hash.to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use config::Kind;
    use serde_json::json;

    use super::*;

    fn seen(text: &str) -> Option<Observed> {
        let options = config::ParseOptions { originals: true, ..config::ParseOptions::default() };
        let parsed = config::parse_documents(text.as_bytes(), "a.yaml", &options);
        let (key, original) = parsed.originals.into_iter().next().unwrap();
        let (uid, original) = (Arc::default(), Some(original));
        let (diagnostics, parents) = (Vec::new(), Vec::new());
        Some(Observed { key, uid, generation: 0, diagnostics, assigned: false, parents, status: None, original })
    }

    fn gateway(port: u16, more: &str) -> String {
        format!(
            "apiVersion: networking.istio.io/v1beta1\nkind: Gateway\nmetadata: {{ name: a, generation: 9{more} }}\nspec:\n  \
             servers: [{{ hosts: ['*'], port: {{ number: {port}, name: http, protocol: HTTP }} }}]\n\
             status: {{ conditions: [] }}\n"
        )
    }

    #[tokio::test]
    async fn an_object_keeps_its_uid_and_status_and_its_generation_counts() {
        let store = fresh_store();
        let first = store.revision().await.unwrap();
        assert!(first > 1_700_000_000_000, "{first}");
        let key = ObjectKey::new(Kind::Gateway, "default", "a");
        let place = Key::new(GroupResource::new("networking.istio.io", "gateways"), "default", "a");
        let mut observed = seen(&gateway(80, ""));
        take(&*store, &key, &mut observed).await;
        let one = observed.unwrap();
        assert_eq!((one.generation, one.original, one.uid.len()), (1, None, 36));
        let mut stored = store.get(&place).await.unwrap().unwrap().value();
        assert_eq!(stored["apiVersion"], "networking.istio.io/v1");
        let metadata = &stored["metadata"];
        assert!(metadata["creationTimestamp"].is_null() && stored["status"].is_null());
        assert_eq!(metadata["namespace"], "default");

        stored["status"] = json!({"observedGeneration": 1});
        let written = Operation::Put { key: place.clone(), value: stored, expect: Expect::Present };
        let revision = store.commit(Transaction::one(written)).await.unwrap().revision;
        take(&*store, &key, &mut seen(&gateway(80, ""))).await;
        assert_eq!(store.revision().await.unwrap(), revision, "nothing changed");

        let mut observed = seen(&gateway(81, ", creationTimestamp: '2026-01-01T00:00:00Z'"));
        take(&*store, &key, &mut observed).await;
        let two = observed.unwrap();
        assert_eq!((two.generation, &two.uid), (2, &one.uid));
        let stored = store.get(&place).await.unwrap().unwrap().value();
        assert_eq!(stored["status"], json!({"observedGeneration": 1}));
        assert_eq!(stored["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");

        take(&*store, &key, &mut None).await;
        assert!(store.get(&place).await.unwrap().is_none());
        let mut observed = seen(&gateway(80, ""));
        take(&*store, &key, &mut observed).await;
        assert_eq!(observed.unwrap().uid, one.uid);
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_stored_has_no_status() {
        let store = Memory::starting_at(7, store::Limits { object_bytes: 300, ..store::Limits::default() });
        let key = ObjectKey::new(Kind::Gateway, "default", "a");
        let mut observed = seen(&gateway(80, &format!(", labels: {{ a: {} }}", "x".repeat(300))));
        take(&store, &key, &mut observed).await;
        assert!(observed.is_none());
        assert_eq!(store.revision().await.unwrap(), 7);
    }
}
