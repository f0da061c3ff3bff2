//! update and patch.

use admission::{Decoded, FieldValidation, Operation as Writing, Stamp};
use http::StatusCode;
use serde_json::Value;
use store::{Error, Expect, Operation, Stored, Transaction};

use super::commit::{ATTEMPTS, PutError, differ, imagined, put};
use super::options::WriteOptions;
use super::{Call, decode};
use crate::answer::Answer;
use crate::cluster_ips::is_service;
use crate::error::{ApiError, Cause};
use crate::media::{self, PatchType};

/// Core kinds that PUT creates if the object does not exist.
const MADE_BY_UPDATE: [&str; 3] = ["Event", "Lease", "Service"];

impl Call<'_> {
    pub(super) async fn update(&self) -> Result<Answer, ApiError> {
        media::object(&self.request.headers, self.kind.builtin)?;
        let options = self.write_options(false)?;
        let mut decoded = decode(self.api, self.request)?;
        self.check_types(&decoded.object)?;
        self.check_name(&decoded.object)?;
        let unconditional = expected(&decoded.object).is_none();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let Some(old) = self.api.0.store.get(&self.key()).await? else {
                let made = self.kind.builtin && MADE_BY_UPDATE.contains(&self.kind.kind);
                if made && self.target.subresource.is_none() && unconditional {
                    return self.create_from(decoded, &options).await;
                }
                return Err(ApiError::not_found(self.about()));
            };
            self.check_identity(&decoded.object, &old)?;
            if unconditional {
                self.check_unconditional()?;
            }
            match self.replace(&old, decoded, &options, true).await {
                Err(error) if error.is_race() && attempt < ATTEMPTS && unconditional => {}
                answer => return Ok(answer?),
            }
            decoded = decode(self.api, self.request)?;
        }
    }

    pub(super) async fn patch(&self) -> Result<Answer, ApiError> {
        let sort = self.patch_type()?;
        if sort == PatchType::Apply {
            return self.apply().await;
        }
        let options = self.write_options(false)?;
        let sent = decode(self.api, self.request)?;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let old = self.api.0.store.get(&self.key()).await?;
            let old = old.ok_or_else(|| ApiError::not_found(self.about()))?;
            let object = self.patched(sort, &self.value_of(&old), &sent.object)?;
            self.check_identity(&object, &old)?;
            let decoded = Decoded { object, duplicates: sent.duplicates.clone() };
            match self.replace(&old, decoded, &options, true).await {
                // If the patch names a version, the next attempt reports the conflict.
                Err(error) if error.is_race() && attempt < ATTEMPTS => {}
                answer => return Ok(answer?),
            }
        }
    }

    /// Server-side apply.
    async fn apply(&self) -> Result<Answer, ApiError> {
        let mut options = self.write_options(true)?;
        let decoded = decode(self.api, self.request)?;
        let name = self.target.name.as_deref();
        let typed = |name: &str| decoded.object[name].as_str().unwrap_or_default();
        if typed("apiVersion").is_empty() || typed("kind").is_empty() {
            let version = Some(typed("apiVersion")).filter(|version| !version.is_empty()).unwrap_or("/");
            let text = format!("invalid object type: {version}, Kind={}", typed("kind"));
            return Err(ApiError::bad_request(text));
        }
        self.check_name(&decoded.object)?;
        k8s_patch::check_declared(&decoded.object, &self.writer(&options.manager)).map_err(|e| self.unpatched(e))?;
        let review = self.review(Writing::Update, &options, name);
        let checked = admission::check_apply(&review, decoded);
        let (config, warnings) = checked.map_err(|rejection| self.rejected(rejection, name.unwrap_or_default()))?;
        // Unknown fields of the sent object are already reported; the result is not checked again.
        options.validation = FieldValidation::Ignore;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let old = self.api.0.store.get(&self.key()).await?;
            match self.apply_to(old, &config, &options).await {
                Err(PutError::Store(Error::Conflict { .. } | Error::NotFound { .. } | Error::Exists { .. }))
                    if attempt < ATTEMPTS => {}
                answer => return Ok(answer?.warn(&warnings)),
            }
        }
    }

    async fn apply_to(&self, old: Option<Stored>, config: &Value, options: &WriteOptions) -> Result<Answer, PutError> {
        let live = old.as_ref().map(|old| self.value_of(old));
        if let Some(old) = &old {
            self.check_identity(config, old)?;
        } else if self.target.subresource.is_some() {
            return Err(ApiError::not_found(self.about()).into());
        } else if config["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
            let uid = config["metadata"]["uid"].as_str().unwrap_or_default();
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(self.about(), &why).into());
        }
        let writer = self.writer(&options.manager);
        let object = k8s_patch::apply(live.as_ref(), config, &writer, options.force).map_err(|e| self.unpatched(e))?;
        let decoded = Decoded { object, duplicates: Vec::new() };
        match old {
            Some(old) => self.replace(&old, decoded, options, false).await,
            None => {
                let (object, warnings) = self.admit_new(decoded, options)?;
                let stored = self.put_new(object, options.dry_run).await?;
                let warnings = self.with_references(None, &stored, warnings).await;
                Ok(self.show(StatusCode::CREATED, &stored, &warnings))
            }
        }
    }

    fn patched(&self, sort: PatchType, old: &Value, sent: &Value) -> Result<Value, ApiError> {
        let limits = k8s_patch::Limits::default();
        let patched = match sort {
            PatchType::Json => k8s_patch::json_patch(old, sent, &limits),
            PatchType::Merge => k8s_patch::merge_patch(old, sent, &limits),
            PatchType::Strategic | PatchType::Apply => {
                k8s_patch::strategic_merge_patch(old, sent, &self.kind.schema, &limits)
            }
        };
        patched.map_err(|error| self.unpatched(error))
    }

    /// Replaces an object if the content differs.
    async fn replace(
        &self,
        old: &Stored,
        decoded: Decoded,
        options: &WriteOptions,
        track: bool,
    ) -> Result<Answer, PutError> {
        let name = self.target.name.as_deref();
        let before = self.value_of(old);
        let review = self.review(Writing::Update, options, name);
        let admitted = admission::admit(&review, decoded, Some(&before));
        let admitted = admitted.map_err(|rejection| self.rejected(rejection, name.unwrap_or_default()))?;
        let mut object = admitted.object;
        let now = self.api.now();
        admission::prepare(Some(&before), &mut object, &Stamp { now, uid: "" });
        if track {
            k8s_patch::track(Some(&before), &mut object, &self.writer(&options.manager));
        }
        let stored = self.put_changed(old, &before, object, options.dry_run).await?;
        let warnings = self.with_references(Some(&before), &stored, admitted.warnings).await;
        Ok(self.show(StatusCode::OK, &stored, &warnings))
    }

    /// Writes a changed object. Removes it if it is deleted and has no finalizers left.
    pub(super) async fn put_changed(
        &self,
        old: &Stored,
        before: &Value,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Stored, PutError> {
        let key = &old.key;
        let more = match is_service(key) {
            true => self.api.assign_cluster_ips(key, Some(before), &mut object).await?,
            false => Vec::new(),
        };
        if !differ(before, &object) {
            return Ok(old.clone());
        }
        if dry_run {
            return Ok(imagined(key, object, Some(old)));
        }
        let expect = Expect::Revision(old.revision);
        if self.is_released(&object) {
            let mut operations = vec![Operation::Delete { key: key.clone(), expect }];
            operations.extend(self.api.release_cluster_ips(key, before));
            let committed = self.api.0.store.commit(Transaction { operations }).await?;
            return Ok(Stored::new(key.clone(), committed.revision, object));
        }
        Ok(put(self.api, key, object, expect, more).await?)
    }

    /// Whether the object is deleted and has no finalizers. Namespaces stay until they are empty.
    fn is_released(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        let namespace = self.kind.builtin && self.kind.kind == "Namespace";
        !metadata["deletionTimestamp"].is_null() && !held && !namespace
    }

    /// Checks UID and resource version of the sent object, if it has them.
    fn check_identity(&self, sent: &Value, old: &Stored) -> Result<(), ApiError> {
        if let Some(version) = expected(sent) {
            let wrong = || {
                let text = format!("{version:?} is not a resource version of this server");
                ApiError::bad_request(format!("metadata.resourceVersion: Invalid value: {text}"))
            };
            if version.parse::<u64>().map_err(|_| wrong())? != old.revision {
                return Err(ApiError::modified(self.about()));
            }
        }
        let Some(uid) = sent["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) else {
            return Ok(());
        };
        let value = old.value();
        let is = value["metadata"]["uid"].as_str().unwrap_or_default();
        if uid != is {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
            return Err(ApiError::conflict(self.about(), &why));
        }
        Ok(())
    }

    /// Checks that the sent name, if any, is the name in the path.
    fn check_name(&self, sent: &Value) -> Result<(), ApiError> {
        let name = self.target.name.as_deref().unwrap_or_default();
        match sent["metadata"]["name"].as_str().filter(|sent| !sent.is_empty()) {
            Some(sent) if sent != name => Err(ApiError::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            ))),
            _ => Ok(()),
        }
    }

    /// Checks whether the kind allows updates without a resource version.
    fn check_unconditional(&self) -> Result<(), ApiError> {
        if self.kind.builtin && self.kind.kind != "Lease" {
            return Ok(());
        }
        let cause = Cause {
            reason: "FieldValueInvalid".into(),
            message: "Invalid value: 0: must be specified for an update".into(),
            field: "metadata.resourceVersion".into(),
        };
        // The plural name, unlike in other validation errors: the same as in Kubernetes.
        Err(ApiError::invalid(self.about(), vec![cause]))
    }
}

/// The resource version that was sent; none allows any.
fn expected(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|version| !matches!(*version, "" | "0"))
}
