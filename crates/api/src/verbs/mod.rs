//! The verbs for objects, one file each.

mod change;
mod commit;
mod crd;
mod create;
mod delete;
mod options;
mod read;
mod references;
mod scale;
mod status;
mod watch;

pub use status::{StatusOutcome, StatusTarget};

pub(crate) use commit::namespace_key;
pub(crate) use delete::{Deletion, FOREGROUND, ORPHAN, Policy, Removed, remove};

use config::schema::Definition;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use store::{GroupResource, Key};

use crate::answer::Answer;
use crate::api::Api;
use crate::error::{About, ApiError};
use crate::kinds;
use crate::media::{self, PatchType};
use crate::params::Params;
use crate::path::{Target, Verb};
use crate::request::Request;
use crate::view::View;

/// An authorized request for objects.
pub(crate) struct Call<'a> {
    pub api: &'a Api,
    pub request: &'a Request,
    pub params: Params,
    pub target: Target,
    pub verb: Verb,
    pub kind: &'static Definition,
    pub view: View,
}

impl Call<'_> {
    /// Executes the request.
    pub(crate) async fn answer(&self) -> Result<Answer, ApiError> {
        self.check_place()?;
        if kinds::is_crd(self.kind) {
            return self.crd().await;
        }
        match (self.target.subresource.as_deref(), self.verb) {
            (None, Verb::Get) => self.get().await,
            (None, Verb::List) => self.list().await,
            (None, Verb::Watch) => self.watch().await,
            (None, Verb::Create) => self.create().await,
            (None, Verb::Delete) => self.delete().await,
            // Namespaces cannot be deleted as a collection.
            (None, Verb::DeleteCollection) if self.kind.kind == "Namespace" && self.kind.builtin => {
                Err(ApiError::method_not_allowed())
            }
            (None, Verb::DeleteCollection) => self.delete_collection().await,
            (None | Some("status"), Verb::Update) => self.update().await,
            (None | Some("status"), Verb::Patch) => self.patch().await,
            (Some("status"), Verb::Get) => self.get().await,
            (Some("history"), Verb::Get) => self.history().await,
            (Some("scale"), Verb::Get | Verb::Update | Verb::Patch) => self.scale().await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Checks that the kind's scope matches the path.
    fn check_place(&self) -> Result<(), ApiError> {
        let named = self.target.name.is_some();
        let fits = match (self.kind.namespaced, &self.target.namespace) {
            (true, None) => !named,
            (false, Some(_)) => false,
            _ => true,
        };
        let sub = match self.target.subresource.as_deref() {
            None => true,
            Some("status") => self.kind.status,
            Some("scale") => self.kind.kind == "Deployment",
            Some("history") => !kinds::is_crd(self.kind),
            Some(_) => false,
        };
        if !fits || !sub {
            return Err(ApiError::no_such_path());
        }
        let everywhere = self.kind.namespaced && self.target.namespace.is_none();
        if everywhere && matches!(self.verb, Verb::Create | Verb::DeleteCollection) {
            return Err(ApiError::method_not_allowed());
        }
        Ok(())
    }

    /// The type in the store.
    pub(crate) fn resource(&self) -> GroupResource {
        resource(self.kind)
    }

    /// The key of the object in the path.
    pub(crate) fn key(&self) -> Key {
        self.key_of(self.target.name.as_deref().unwrap_or_default())
    }

    /// The key of an object with this name in the namespace of the path.
    pub(crate) fn key_of(&self, name: &str) -> Key {
        Key::new(self.resource(), self.target.namespace.as_deref().unwrap_or_default(), name)
    }

    /// The subject of errors: the object in the path.
    pub(crate) fn about(&self) -> About<'_> {
        About { group: self.kind.group, kind: self.kind.plural, name: self.target.name.as_deref().unwrap_or_default() }
    }

    /// A response with one object.
    pub(crate) fn show(&self, status: StatusCode, stored: &store::Stored, warnings: &[String]) -> Answer {
        Answer::json(status, self.view.one(stored)).warn(warnings)
    }

    /// The type of the patch, if the kind supports it.
    fn patch_type(&self) -> Result<PatchType, ApiError> {
        let sort = media::patch(&self.request.headers)?;
        if sort == PatchType::Strategic && !self.kind.builtin {
            return Err(ApiError::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        Ok(sort)
    }
}

/// The type of a kind in the store.
pub(crate) fn resource(kind: &Definition) -> GroupResource {
    GroupResource::new(kind.group, kind.plural)
}

/// The body of a request as a JSON value.
pub(crate) fn decode(api: &Api, request: &Request) -> Result<admission::Decoded, ApiError> {
    let media = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let limits = admission::Limits { bytes: api.0.options.limits.body, ..admission::Limits::default() };
    admission::decode(&request.body, media, &limits).map_err(|error| match error {
        admission::DecodeError::UnsupportedMediaType(_) => ApiError::unsupported_media_type(media::objects(true)),
        admission::DecodeError::TooLarge(_) => ApiError::too_large(error.to_string()),
        error => ApiError::bad_request(error.to_string()),
    })
}
