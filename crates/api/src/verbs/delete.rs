//! delete and deletecollection.

use config::schema::Definition;
use http::StatusCode;
use serde_json::{Value, json};
use store::{Error, Expect, Key, Operation, Stored, Transaction};

use super::commit::{ATTEMPTS, put};
use super::options::{Check, dry_run};
use super::{Call, decode};
use crate::answer::Answer;
use crate::api::Api;
use crate::error::{About, ApiError, about_key};
use crate::view::ListMeta;

/// Finalizer that keeps an owner until its dependents are deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer that keeps an owner until its dependents are released.
pub(crate) const ORPHAN: &str = "orphan";
/// Namespaces that cannot be deleted.
const LASTING: [&str; 3] = ["default", "kube-public", "kube-system"];
/// Kinds for which a deletion returns the object instead of a status.
const ANSWERED_WHOLE: [&str; 3] = ["Pod", "Service", "ServiceAccount"];

/// The handling of dependents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
    /// Dependents are kept.
    Orphan,
}

/// Options of a deletion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Deletion {
    pub policy: Option<Policy>,
    /// Precondition: the UID.
    pub uid: Option<String>,
    /// Precondition: the resource version.
    pub revision: Option<u64>,
    pub dry_run: bool,
}

/// The result of a deletion.
pub(crate) enum Removed {
    /// The object is deleted; its last state.
    Gone(Stored),
    /// The object is marked and waits for its finalizers.
    Marked(Stored),
}

impl Call<'_> {
    pub(super) async fn delete(&self) -> Result<Answer, ApiError> {
        let deletion = self.deletion()?;
        let removed = remove(self.api, self.kind, &self.key(), &deletion).await?;
        let stored = match removed {
            Removed::Gone(stored) if !ANSWERED_WHOLE.contains(&self.kind.kind) => {
                return Ok(Answer::value(StatusCode::OK, &success(self.kind, &stored), self.view.pretty));
            }
            Removed::Gone(stored) | Removed::Marked(stored) => stored,
        };
        Ok(self.show(StatusCode::OK, &stored, &[]))
    }

    /// Deletes all objects of a list.
    pub(super) async fn delete_collection(&self) -> Result<Answer, ApiError> {
        let deletion = self.deletion()?;
        let mut query = self.list_query()?;
        query.limit = 0;
        let list = self.api.0.store.list(&query).await?;
        let mut removed = Vec::with_capacity(list.items.len());
        for item in &list.items {
            match remove(self.api, self.kind, &item.key, &deletion).await {
                Ok(Removed::Gone(stored) | Removed::Marked(stored)) => removed.push(stored),
                // The object was deleted concurrently.
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        let meta = ListMeta { revision: self.api.0.store.revision().await?, ..ListMeta::default() };
        Ok(Answer::json(StatusCode::OK, self.view.list(&removed, &meta)))
    }

    /// Reads the options from body and query.
    fn deletion(&self) -> Result<Deletion, ApiError> {
        let body = match self.request.body.is_empty() {
            true => Value::Null,
            false => decode(self.api, self.request)?.object,
        };
        let sent = body["kind"].as_str().unwrap_or("DeleteOptions");
        if sent != "DeleteOptions" || !(body.is_null() || body.is_object()) {
            return Err(ApiError::bad_request("the body of a deletion must be DeleteOptions"));
        }
        let mut check = Check::new("DeleteOptions");
        let from_body = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let dry_run = dry_run(from_body.chain(self.params.all("dryRun")), &mut check);
        let policy = body["propagationPolicy"].as_str().or(self.params.get("propagationPolicy"));
        let orphan = match &body["orphanDependents"] {
            Value::Bool(orphan) => Some(*orphan),
            _ if self.params.get("orphanDependents").is_some() => Some(self.params.flag("orphanDependents")?),
            _ => None,
        };
        let policy = match (policy, orphan) {
            (Some(_), Some(_)) => {
                check.forbid("propagationPolicy", "orphanDependents and deletionPropagation cannot be both set");
                None
            }
            (Some("Background"), _) | (None, Some(false)) => Some(Policy::Background),
            (Some("Foreground"), _) => Some(Policy::Foreground),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Policy::Orphan),
            (Some(other), _) => {
                let possible = "\"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                check.unsupported("propagationPolicy", other, possible);
                None
            }
            (None, None) => None,
        };
        check.done()?;
        let preconditions = &body["preconditions"];
        let revision = preconditions["resourceVersion"].as_str().map(|text| {
            let wrong = || ApiError::bad_request(format!("preconditions.resourceVersion: Invalid value: {text:?}"));
            text.parse().map_err(|_| wrong())
        });
        Ok(Deletion {
            policy,
            uid: preconditions["uid"].as_str().map(str::to_owned),
            revision: revision.transpose()?,
            dry_run,
        })
    }
}

/// Deletes an object, or marks it for deletion if it has finalizers.
pub(crate) async fn remove(api: &Api, kind: &Definition, key: &Key, deletion: &Deletion) -> Result<Removed, ApiError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let stored = api.0.store.get(key).await?.ok_or_else(|| ApiError::not_found(about_key(key)))?;
        let value = stored.value();
        check(kind, &stored, &value, deletion)?;
        let marked = mark(api, kind, &value, deletion.policy);
        if deletion.dry_run {
            return Ok(match marked {
                Some(_) => Removed::Marked(stored),
                None => Removed::Gone(stored),
            });
        }
        let expect = Expect::Revision(stored.revision);
        let result = match marked {
            Some(marked) if marked == value => return Ok(Removed::Marked(stored)),
            Some(marked) => put(api, key, marked, expect, None).await.map(Removed::Marked),
            None => {
                let mut operations = vec![Operation::Delete { key: key.clone(), expect }];
                operations.extend(api.release_cluster_ips(key, &value));
                let committed = api.0.store.commit(Transaction { operations }).await;
                committed.map(|committed| {
                    let was = committed.objects.into_iter().next().flatten();
                    Removed::Gone(was.unwrap_or(stored))
                })
            }
        };
        match result {
            // The object changed concurrently: try again.
            Err(Error::Conflict { .. }) if attempt < ATTEMPTS => {}
            result => return Ok(result?),
        }
    }
}

/// Checks the preconditions and whether the namespace may be deleted.
fn check(kind: &Definition, stored: &Stored, value: &Value, deletion: &Deletion) -> Result<(), ApiError> {
    if kind.builtin && kind.kind == "Namespace" && LASTING.contains(&&*stored.key.name) {
        let why = "this namespace may not be deleted";
        return Err(ApiError::forbidden(about_key(&stored.key), why));
    }
    let about = About { group: kind.group, kind: kind.kind, name: &stored.key.name };
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
    if let Some(wanted) = deletion.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(ApiError::conflict(about, &why));
    }
    if let Some(wanted) = deletion.revision.filter(|wanted| *wanted != stored.revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
            stored.revision
        );
        return Err(ApiError::conflict(about, &why));
    }
    Ok(())
}

/// The object marked for deletion; none if it can be deleted at once.
fn mark(api: &Api, kind: &Definition, value: &Value, policy: Option<Policy>) -> Option<Value> {
    let mut marked = value.clone();
    let mut finalizers: Vec<Value> = value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let wanted = match policy {
        Some(Policy::Foreground) => Some(FOREGROUND),
        Some(Policy::Orphan) => Some(ORPHAN),
        Some(Policy::Background) | None => None,
    };
    if policy.is_some() {
        finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
    }
    finalizers.extend(wanted.map(Value::from));
    let namespace = kind.builtin && kind.kind == "Namespace";
    if finalizers.is_empty() && !namespace {
        return None;
    }
    if let Some(metadata) = marked["metadata"].as_object_mut() {
        match finalizers.is_empty() {
            true => metadata.remove("finalizers"),
            false => metadata.insert("finalizers".into(), finalizers.into()),
        };
    }
    admission::mark_deleted(&mut marked, api.now(), 0);
    if namespace {
        // Namespaces are kept until they are empty.
        if marked["metadata"]["deletionTimestamp"].is_null() {
            marked["metadata"]["deletionTimestamp"] = api.now().to_string().into();
        }
        marked["status"]["phase"] = "Terminating".into();
    }
    Some(marked)
}

fn success(kind: &Definition, stored: &Stored) -> Value {
    let value = stored.value();
    let mut details = json!({ "name": &*stored.key.name, "kind": kind.plural, "uid": value["metadata"]["uid"] });
    if !kind.group.is_empty() {
        details["group"] = kind.group.into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}
