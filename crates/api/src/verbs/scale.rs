//! The `scale` subresource of Deployments.

use http::StatusCode;
use serde_json::{Value, json};
use store::{Error, Stored};

use super::commit::{ATTEMPTS, PutError};
use super::{Call, decode};
use crate::answer::Answer;
use crate::error::{About, ApiError, Cause};
use crate::media::{self, PatchType};
use crate::path::Verb;

impl Call<'_> {
    pub(super) async fn scale(&self) -> Result<Answer, ApiError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let old = self.api.0.store.get(&self.key()).await?;
            let old = old.ok_or_else(|| ApiError::not_found(self.about()))?;
            if self.verb == Verb::Get {
                return Ok(self.show_scale(&old));
            }
            match self.rescale(&old).await {
                Err(PutError::Store(Error::Conflict { .. })) if attempt < ATTEMPTS => {}
                stored => return Ok(self.show_scale(&stored?)),
            }
        }
    }

    async fn rescale(&self, old: &Stored) -> Result<Stored, PutError> {
        let scale = scale_of(old);
        let (options, wanted) = match self.verb {
            Verb::Update => {
                media::object(&self.request.headers, self.kind.builtin)?;
                (self.write_options(false)?, decode(self.api, self.request)?.object)
            }
            _ => {
                let sort = self.patch_type()?;
                let options = self.write_options(sort == PatchType::Apply)?;
                let sent = decode(self.api, self.request)?.object;
                let limits = k8s_patch::Limits::default();
                let patched = match sort {
                    PatchType::Json => k8s_patch::json_patch(&scale, &sent, &limits),
                    // A scale has no lists, so all other patch types are equivalent.
                    _ => k8s_patch::merge_patch(&scale, &sent, &limits),
                };
                (options, patched.map_err(|error| self.unpatched(error))?)
            }
        };
        let version = wanted["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
        if version.is_some_and(|version| version != old.revision.to_string()) {
            return Err(ApiError::modified(self.about()).into());
        }
        let replicas = &wanted["spec"]["replicas"];
        let replicas = match replicas.as_i64() {
            _ if replicas.is_null() => 0,
            Some(replicas) if (0..=i64::from(i32::MAX)).contains(&replicas) => replicas,
            _ => {
                let about = About { group: "autoscaling", kind: "Scale", ..self.about() };
                let cause = Cause {
                    reason: "FieldValueInvalid".into(),
                    message: format!("Invalid value: {replicas}: must be greater than or equal to 0"),
                    field: "spec.replicas".into(),
                };
                return Err(ApiError::invalid(about, vec![cause]).into());
            }
        };
        let before = old.value();
        let mut object = before.clone();
        object["spec"]["replicas"] = replicas.into();
        let now = self.api.now();
        admission::prepare(Some(&before), &mut object, &admission::Stamp { now, uid: "" });
        k8s_patch::track(Some(&before), &mut object, &self.writer(&options.manager));
        self.put_changed(old, &before, object, options.dry_run).await
    }

    fn show_scale(&self, stored: &Stored) -> Answer {
        let scale = scale_of(stored);
        let shown = self.view.scale(&scale).unwrap_or(scale);
        Answer::value(StatusCode::OK, &shown, self.view.pretty)
    }
}

fn scale_of(stored: &Stored) -> Value {
    let value = stored.value();
    let labels = value["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let selector: Vec<String> =
        labels.map(|(label, value)| format!("{label}={}", value.as_str().unwrap_or_default())).collect();
    let metadata = &value["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": { "replicas": value["spec"]["replicas"].as_i64().unwrap_or(0) },
        "status": { "replicas": value["status"]["replicas"].as_i64().unwrap_or(0), "selector": selector.join(",") },
    })
}
