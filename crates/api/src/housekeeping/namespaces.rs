//! Creation and deletion of namespaces.

use serde_json::{Value, json};
use store::{Error, Expect, Key, Operation, Scope, Transaction};

use super::kind_of;
use crate::api::Api;
use crate::error::ApiError;
use crate::verbs::{Deletion, Policy, Removed, namespace_key, remove};

/// The default namespaces.
const USUAL: [&str; 3] = ["default", "istio-system", "kube-system"];

/// Sets finalizer and phase of a new namespace.
pub(crate) fn new_namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    object["spec"]["finalizers"] = json!(["kubernetes"]);
    object["status"] = json!({ "phase": "Active" });
}

/// Creates the default namespaces.
pub(super) async fn make_usual(api: &Api) -> Result<(), ApiError> {
    for name in USUAL {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": api.now().to_string(),
            },
        });
        new_namespace(&mut object);
        let put = Operation::Put { key: namespace_key(name), value: object, expect: Expect::Absent };
        match api.0.store.commit(Transaction::one(put)).await {
            Ok(_) | Err(Error::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Deletes the content of a deleted namespace, and then the namespace. Returns whether it is gone.
pub(super) async fn empty(api: &Api, key: &Key) -> Result<bool, ApiError> {
    let scope = Scope { namespace: Some(key.name.clone()), ..Scope::default() };
    let background = Deletion { policy: Some(Policy::Background), ..Deletion::default() };
    let mut held = false;
    for item in api.0.store.snapshot(&scope).await?.items {
        let Some(kind) = kind_of(&item.key) else {
            // Objects of kinds that are no longer served are removed without finalizers.
            let delete = Operation::Delete { key: item.key, expect: Expect::Anything };
            api.0.store.commit(Transaction::one(delete)).await?;
            continue;
        };
        match remove(api, kind, &item.key, &background).await {
            Ok(Removed::Gone(_)) => {}
            Ok(Removed::Marked(_)) => held = true,
            Err(failure) if failure.code == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    if held {
        return Ok(false);
    }
    finish(api, key).await
}

/// Removes the namespace unless it has finalizers. No object can have been created since it was marked.
async fn finish(api: &Api, key: &Key) -> Result<bool, ApiError> {
    let Some(stored) = api.0.store.get(key).await? else {
        return Ok(true);
    };
    let value = stored.value();
    let metadata = &value["metadata"];
    if !metadata["deletionTimestamp"].is_string() {
        return Ok(true);
    }
    if metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()) {
        return Ok(false);
    }
    let delete = Operation::Delete { key: key.clone(), expect: Expect::Revision(stored.revision) };
    match api.0.store.commit(Transaction::one(delete)).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
