//! Garbage collection of dependents.
//!
//! Differs from Kubernetes: `blockOwnerDeletion` is ignored (a foreground deletion waits for all dependents), and an
//! owner of a kind that is not served counts as existing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use store::{Error, Expect, Key, Operation, Stored, Transaction};

use super::{has_finalizer, kind_of};
use crate::api::Api;
use crate::error::ApiError;
use crate::verbs::{Deletion, FOREGROUND, ORPHAN, Policy, remove};

/// Owner references by UID, and pending work.
#[derive(Default)]
pub(super) struct Owners {
    /// The dependents of an owner.
    owned: BTreeMap<String, BTreeSet<Key>>,
    /// The owners of a dependent.
    owners: BTreeMap<Key, Vec<String>>,
    /// Objects that may have lost their owners.
    suspects: BTreeSet<Key>,
    /// Objects that wait for their dependents.
    waiting: BTreeSet<Key>,
}

impl Owners {
    /// Adds an existing object.
    pub(super) fn there(&mut self, stored: &Stored) {
        self.forget(&stored.key);
        // Few objects have owners or wait for dependents: the others are not parsed.
        let owned = mentions(stored, "\"ownerReferences\"");
        let waits = mentions(stored, FOREGROUND) || mentions(stored, ORPHAN);
        if !owned && !waits {
            return;
        }
        let value = stored.value();
        let deleted = value["metadata"]["deletionTimestamp"].is_string();
        if deleted && (has_finalizer(&value, FOREGROUND) || has_finalizer(&value, ORPHAN)) {
            self.waiting.insert(stored.key.clone());
        }
        let owners: Vec<String> =
            references(&value).filter_map(|owner| owner["uid"].as_str()).map(str::to_owned).collect();
        if owners.is_empty() {
            return;
        }
        for owner in &owners {
            self.owned.entry(owner.clone()).or_default().insert(stored.key.clone());
        }
        self.owners.insert(stored.key.clone(), owners);
        self.suspects.insert(stored.key.clone());
    }

    /// Removes a deleted object: its dependents may be orphaned, and its owners may stop waiting.
    pub(super) fn gone(&mut self, stored: &Stored) {
        self.forget(&stored.key);
        if self.owned.is_empty() {
            return;
        }
        if let Some(uid) = stored.value()["metadata"]["uid"].as_str() {
            self.suspects.extend(self.owned.get(uid).into_iter().flatten().cloned());
        }
    }

    /// Does the pending work.
    pub(super) async fn work(&mut self, api: &Api) {
        for key in std::mem::take(&mut self.suspects) {
            if let Err(failure) = check(api, &key).await {
                tracing::warn!(object = %key, failure = %failure.message, "cannot check the owners of an object, retrying");
            }
        }
        for key in self.waiting.clone() {
            match self.serve(api, &key).await {
                Ok(true) => {
                    self.waiting.remove(&key);
                }
                Ok(false) => {}
                Err(failure) => {
                    tracing::warn!(object = %key, failure = %failure.message, "cannot delete the dependents of an object, retrying");
                }
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        self.waiting.remove(key);
        for owner in self.owners.remove(key).unwrap_or_default() {
            if let Some(owned) = self.owned.get_mut(&owner) {
                owned.remove(key);
                if owned.is_empty() {
                    self.owned.remove(&owner);
                }
            }
        }
    }

    /// Deletes or releases the dependents of an object that waits for them. Returns whether it can stop waiting.
    async fn serve(&self, api: &Api, key: &Key) -> Result<bool, ApiError> {
        let Some(stored) = api.0.store.get(key).await? else {
            return Ok(true);
        };
        let value = stored.value();
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        let owned: Vec<&Key> = self.owned.get(uid).into_iter().flatten().collect();
        if has_finalizer(&value, ORPHAN) {
            for key in owned {
                let_go(api, key, uid).await?;
            }
            return release(api, &stored, value.clone(), ORPHAN).await;
        }
        let foreground = Deletion { policy: Some(Policy::Foreground), ..Deletion::default() };
        let background = Deletion { policy: Some(Policy::Background), ..Deletion::default() };
        for &key in &owned {
            let Some(kind) = kind_of(key) else { continue };
            // Dependents with dependents of their own are deleted in the foreground, too.
            let owner = match api.0.store.get(key).await? {
                Some(owned) => {
                    owned.value()["metadata"]["uid"].as_str().is_some_and(|uid| self.owned.contains_key(uid))
                }
                None => false,
            };
            match remove(api, kind, key, if owner { &foreground } else { &background }).await {
                Ok(_) => {}
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        match owned.is_empty() {
            true => release(api, &stored, value, FOREGROUND).await,
            // Each deletion is a change that triggers another attempt.
            false => Ok(false),
        }
    }
}

/// Deletes an object if none of its owners exists.
async fn check(api: &Api, key: &Key) -> Result<(), ApiError> {
    let Some(stored) = api.0.store.get(key).await? else {
        return Ok(());
    };
    let value = stored.value();
    for owner in references(&value) {
        if is_there(api, key, owner).await? {
            return Ok(());
        }
    }
    let Some(kind) = kind_of(key).filter(|_| references(&value).next().is_some()) else {
        return Ok(());
    };
    let deletion =
        Deletion { policy: Some(Policy::Background), revision: Some(stored.revision), ..Deletion::default() };
    match remove(api, kind, key, &deletion).await {
        Ok(_) => Ok(()),
        // A concurrent change triggers another attempt.
        Err(failure) if matches!(failure.code, 404 | 409) => Ok(()),
        Err(failure) => Err(failure),
    }
}

async fn is_there(api: &Api, owned: &Key, owner: &Value) -> Result<bool, ApiError> {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let Some(kind) = config::schema::find_kind(group, text("kind")) else {
        return Ok(true);
    };
    let namespace = if kind.namespaced { &*owned.namespace } else { "" };
    let key = Key::new(crate::verbs::resource(kind), namespace, text("name"));
    let found = api.0.store.get(&key).await?;
    Ok(found.is_some_and(|found| found.value()["metadata"]["uid"].as_str() == Some(text("uid"))))
}

/// Removes an owner reference.
async fn let_go(api: &Api, key: &Key, owner: &str) -> Result<(), ApiError> {
    let Some(stored) = api.0.store.get(key).await? else {
        return Ok(());
    };
    let mut value = stored.value();
    if let Some(metadata) = value["metadata"].as_object_mut()
        && let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences")
    {
        owners.retain(|reference| reference["uid"] != owner);
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        }
    }
    rewrite(api, &stored, value).await.map(|_| ())
}

/// Removes a finalizer, and the object if it was the last one.
async fn release(api: &Api, stored: &Stored, mut value: Value, finalizer: &str) -> Result<bool, ApiError> {
    let mut left = 0;
    if let Some(metadata) = value["metadata"].as_object_mut()
        && let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers")
    {
        finalizers.retain(|name| name != finalizer);
        left = finalizers.len();
        if left == 0 {
            metadata.remove("finalizers");
        }
    }
    if left > 0 || super::is_namespace(&stored.key) {
        return rewrite(api, stored, value).await;
    }
    let delete = Operation::Delete { key: stored.key.clone(), expect: Expect::Revision(stored.revision) };
    commit(api, delete).await
}

async fn rewrite(api: &Api, stored: &Stored, value: Value) -> Result<bool, ApiError> {
    let put = Operation::Put { key: stored.key.clone(), value, expect: Expect::Revision(stored.revision) };
    commit(api, put).await
}

/// Returns false after a concurrent change, which triggers another attempt.
async fn commit(api: &Api, operation: Operation) -> Result<bool, ApiError> {
    match api.0.store.commit(Transaction::one(operation)).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(true),
        Err(Error::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn references(value: &Value) -> impl Iterator<Item = &Value> {
    value["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

fn mentions(stored: &Stored, text: &str) -> bool {
    std::str::from_utf8(&stored.json).is_ok_and(|json| json.contains(text))
}
