//! create.

use admission::{Decoded, Operation as Writing, Review, Stamp, Subresource};
use http::StatusCode;
use k8s_patch::Writer;
use serde_json::Value;
use store::{Error, Expect, Operation};

use super::commit::{ATTEMPTS, PutError, imagined, put};
use super::options::WriteOptions;
use super::{Call, decode};
use crate::answer::Answer;
use crate::cluster_ips::is_service;
use crate::error::ApiError;
use crate::housekeeping::new_namespace;
use crate::media;

impl Call<'_> {
    pub(super) async fn create(&self) -> Result<Answer, ApiError> {
        media::object(&self.request.headers, self.kind.builtin)?;
        let options = self.write_options(false)?;
        let decoded = decode(self.api, self.request)?;
        self.check_types(&decoded.object)?;
        self.create_from(decoded, &options).await
    }

    /// Creates the sent object.
    pub(super) async fn create_from(&self, mut decoded: Decoded, options: &WriteOptions) -> Result<Answer, ApiError> {
        let generated = decoded.object["metadata"]["name"].as_str().is_none_or(str::is_empty);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let (mut object, warnings) = self.admit_new(decoded, options)?;
            k8s_patch::track(None, &mut object, &self.writer(&options.manager));
            match self.put_new(object, options.dry_run).await {
                Ok(stored) => {
                    let warnings = self.with_references(None, &stored, warnings).await;
                    return Ok(self.show(StatusCode::CREATED, &stored, &warnings));
                }
                // A generated name is generated again if it is taken; a changed namespace is checked again.
                Err(PutError::Store(Error::Exists { .. })) if generated && attempt < ATTEMPTS => {}
                Err(error) if error.is_race() && attempt < ATTEMPTS => {}
                Err(error) => return Err(error.into()),
            }
            // Retries are rare: parsing again is cheaper than copying each time.
            decoded = decode(self.api, self.request)?;
        }
    }

    /// Checks that the body is an object of the kind.
    pub(super) fn check_types(&self, sent: &Value) -> Result<(), ApiError> {
        admission::check_types(self.kind, self.view.version, sent).map_err(|rejection| self.rejected(rejection, ""))
    }

    /// The object to create, without managed fields, and warnings.
    pub(super) fn admit_new(
        &self,
        mut decoded: Decoded,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), ApiError> {
        if !decoded.object.is_object() {
            return Err(ApiError::bad_request("the body of the request must be an object"));
        }
        if decoded.object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !matches!(version, "" | "0")) {
            // Without a reason and with status 500, as in Kubernetes.
            let text = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "", text));
        }
        let (entropy, _) = uuid::Uuid::new_v4().as_u64_pair();
        admission::fill_name(&mut decoded.object, entropy);
        let name = decoded.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if is_service(&self.key()) {
            self.api.fill_family(&mut decoded.object);
        }
        let review = self.review(Writing::Create, options, self.target.name.as_deref());
        let admitted = admission::admit(&review, decoded, None);
        let admitted = admitted.map_err(|rejection| self.rejected(rejection, &name))?;
        let mut object = admitted.object;
        let uid = uuid::Uuid::new_v4().to_string();
        let now = self.api.now();
        admission::prepare(None, &mut object, &Stamp { now, uid: &uid });
        if self.kind.kind == "Namespace" && self.kind.builtin {
            new_namespace(&mut object);
        }
        Ok((object, admitted.warnings))
    }

    /// Writes an object that must not exist.
    pub(super) async fn put_new(&self, mut object: Value, dry_run: bool) -> Result<store::Stored, PutError> {
        let key = self.key_of(object["metadata"]["name"].as_str().unwrap_or_default());
        let mut more: Vec<Operation> = self.namespace_check(&key.name).await?.into_iter().collect();
        if is_service(&key) {
            more.extend(self.api.assign_cluster_ips(&key, None, &mut object).await?);
        }
        if dry_run {
            if self.api.0.store.get(&key).await?.is_some() {
                return Err(Error::Exists { key }.into());
            }
            return Ok(imagined(&key, object, None));
        }
        Ok(put(self.api, &key, object, Expect::Absent, more).await?)
    }

    pub(super) fn review<'b>(
        &'b self,
        operation: Writing,
        options: &WriteOptions,
        name: Option<&'b str>,
    ) -> Review<'b> {
        let status = self.target.subresource.as_deref() == Some("status");
        Review {
            definition: self.kind,
            version: self.view.version,
            operation,
            subresource: if status { Subresource::Status } else { Subresource::None },
            field_validation: options.validation,
            namespace: self.target.namespace.as_deref(),
            name,
        }
    }

    pub(super) fn writer<'b>(&'b self, manager: &'b str) -> Writer<'b> {
        Writer {
            definition: self.kind,
            version: self.view.version,
            manager,
            subresource: self.target.subresource.as_deref(),
            now: self.api.now(),
        }
    }
}
