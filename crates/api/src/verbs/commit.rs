//! Code shared by all writes.

use std::sync::Arc;

use admission::Rejection;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use store::{Error, Expect, Key, Operation, Stored, Transaction};

use super::Call;
use crate::api::Api;
use crate::cluster_ips::lost_race;
use crate::error::{About, ApiError, Cause, about_key};

/// The field manager of Rutter's own writes.
pub(super) const MANAGER: &str = "rutter";

/// Maximum number of attempts if the object or its namespace changes concurrently.
pub(super) const ATTEMPTS: usize = 10;

impl Call<'_> {
    /// Converts a rejection by admission.
    pub(super) fn rejected(&self, rejection: Rejection, name: &str) -> ApiError {
        let message = rejection.message(self.kind, name);
        match rejection {
            Rejection::BadRequest(_) => ApiError::bad_request(message),
            Rejection::Invalid(causes) => {
                let about = About { group: self.kind.group, kind: self.kind.kind, name };
                let causes = causes.into_iter().map(|cause| Cause {
                    reason: cause.reason.name().into(),
                    message: cause.message,
                    field: cause.field,
                });
                ApiError::new(422, "Invalid", message).about(about).causes(causes.collect())
            }
        }
    }

    /// Converts an error of a patch.
    pub(super) fn unpatched(&self, error: k8s_patch::Error) -> ApiError {
        let message = error.to_string();
        match error {
            k8s_patch::Error::Malformed(_) => ApiError::bad_request(message),
            k8s_patch::Error::Unprocessable(_) => {
                let about = About { kind: self.kind.kind, ..self.about() };
                ApiError::new(422, "Invalid", message).about(about)
            }
            k8s_patch::Error::Untyped(_) => ApiError::new(500, "", message),
            k8s_patch::Error::TooLarge(_) => ApiError::too_large(message),
            k8s_patch::Error::Conflict(conflicts) => {
                let causes = conflicts.conflicts.iter().map(|conflict| Cause {
                    reason: "FieldManagerConflict".into(),
                    message: conflict.message(),
                    field: conflict.path.clone(),
                });
                ApiError::new(409, "Conflict", message).causes(causes.collect())
            }
        }
    }

    /// The precondition on the namespace for creating an object; none for cluster-scoped kinds.
    pub(super) async fn namespace_check(&self, name: &str) -> Result<Option<Operation>, ApiError> {
        let Some(namespace) = &self.target.namespace else {
            return Ok(None);
        };
        let key = namespace_key(namespace);
        let Some(stored) = self.api.0.store.get(&key).await? else {
            return Err(ApiError::not_found(about_key(&key)));
        };
        if is_terminating(&stored) {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let about = About { name, ..self.about() };
            let cause = Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".into(),
            };
            return Err(ApiError::forbidden(about, &why).causes(vec![cause]));
        }
        Ok(Some(Operation::Check { key, expect: Expect::Revision(stored.revision) }))
    }

    /// A sent object, in the version of the request.
    pub(super) fn value_of(&self, stored: &Stored) -> Value {
        let mut value = stored.value();
        value["apiVersion"] = self.kind.api_version_of(self.view.version).into();
        value
    }
}

/// The error of a write attempt.
#[derive(Debug, thiserror::Error)]
pub(super) enum PutError {
    /// The store rejected the write; a retry may succeed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The request is rejected.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

impl PutError {
    /// Whether another object was written at the same time, so that another attempt may succeed.
    pub(super) fn is_race(&self) -> bool {
        match self {
            PutError::Store(Error::Conflict { .. } | Error::NotFound { .. }) => true,
            PutError::Store(error) => lost_race(error),
            PutError::Refused(_) => false,
        }
    }
}

impl From<PutError> for ApiError {
    fn from(error: PutError) -> ApiError {
        match error {
            PutError::Store(error) if lost_race(&error) => {
                ApiError::unavailable("other Services claimed the same cluster IPs at the same time: try again")
            }
            PutError::Store(error) => error.into(),
            PutError::Refused(failure) => failure,
        }
    }
}

/// Writes one object with a precondition, together with more operations. Returns the store's error so that callers can
/// retry.
pub(super) async fn put(
    api: &Api,
    key: &Key,
    value: Value,
    expect: Expect,
    more: impl IntoIterator<Item = Operation>,
) -> Result<Stored, Error> {
    let limit = api.0.options.limits.object;
    if at_most(&value) > limit {
        let bytes = size(&value);
        if bytes > limit {
            let key = key.clone();
            return Err(Error::TooLarge { key, bytes, limit });
        }
    }
    let put = Operation::Put { key: key.clone(), value, expect };
    let operations = [put].into_iter().chain(more).collect();
    let committed = api.0.store.commit(Transaction { operations }).await?;
    let written = committed.objects.into_iter().next().flatten();
    written.ok_or_else(|| Error::Damaged("a write yielded nothing".into()))
}

/// The result of a dry run.
pub(super) fn imagined(key: &Key, mut value: Value, old: Option<&Stored>) -> Stored {
    let Some(old) = old else {
        let mut stored = Stored::new(key.clone(), 0, value.clone());
        // An object that was never written has no resource version.
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        stored.json = value.to_string().into();
        return stored;
    };
    Stored::new(key.clone(), old.revision, value)
}

/// Whether two states differ in more than resource version and API version.
pub(super) fn differ(old: &Value, new: &Value) -> bool {
    k8s_patch::differ(old, new, &["resourceVersion"])
}

/// Whether an object is being deleted.
fn is_terminating(stored: &Stored) -> bool {
    #[derive(Deserialize)]
    struct Outline {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default, rename = "deletionTimestamp")]
        deletion: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Outline>(&stored.json).is_ok_and(|outline| outline.metadata.deletion.is_some())
}

/// The key of a namespace.
pub(crate) fn namespace_key(name: &str) -> Key {
    Key::new(store::GroupResource::new("", "namespaces"), "", Arc::<str>::from(name))
}

/// An upper bound of the length of a value's compact JSON, cheap to compute.
fn at_most(value: &Value) -> usize {
    /// The longest encoding of a byte in a string: `\u001f`.
    const ESCAPED: usize = 6;
    /// An upper bound for a number, or for two quotes or brackets with a colon and a comma.
    const AROUND: usize = 32;
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() * ESCAPED,
        Value::Array(items) => items.iter().map(at_most).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() * ESCAPED + AROUND + at_most(value)).sum()
        }
    };
    inside + AROUND
}

/// The length of a value's compact JSON, without writing it.
fn size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and every value can be serialized.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_resource_version_is_no_difference() {
        let one = json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"x": [1]}});
        let mut two = one.clone();
        two["metadata"]["resourceVersion"] = "2".into();
        assert!(!differ(&one, &two));
        two["metadata"]["labels"] = json!({});
        assert!(differ(&one, &two));
        let other = json!({"metadata": {"name": "a"}, "spec": {"x": [2]}});
        assert!(differ(&one, &other) && differ(&one, &Value::Null));
        assert!(differ(&one, &json!({"spec": {"x": [1]}})));
    }

    #[test]
    fn the_upper_bound_holds() {
        for value in [
            json!("\u{1}\u{1f}\"\\"),
            json!({"\u{1}": {"\u{2}": [[], {}, null, true, -1.2345678901234567e-300, u64::MAX]}}),
            json!(["", [""], {"": ""}]),
        ] {
            assert!(size(&value) <= at_most(&value), "{value}");
        }
    }

    #[test]
    fn a_namespace_is_terminating_once_it_has_a_time_of_deletion() {
        let namespace = |metadata| Stored::new(namespace_key("a"), 1, json!({ "metadata": metadata }));
        assert!(!is_terminating(&namespace(json!({"name": "a"}))));
        assert!(!is_terminating(&namespace(json!({"deletionTimestamp": null}))));
        assert!(is_terminating(&namespace(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))));
    }
}
