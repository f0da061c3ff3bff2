//! CustomResourceDefinitions: reading them, and errors for writing.

use std::future;

use futures::{StreamExt as _, stream};
use http::StatusCode;
use store::Stored;
use tokio::time::Instant;

use super::Call;
use crate::answer::Answer;
use crate::api::stopped;
use crate::body::Body;
use crate::error::ApiError;
use crate::path::Verb;
use crate::view::ListMeta;

const FIXED: &str = "this server serves a fixed set of kinds with built-in definitions";
/// Default duration of a watch, in seconds.
const LASTS: u64 = 1800;

impl Call<'_> {
    pub(super) async fn crd(&self) -> Result<Answer, ApiError> {
        let name = self.target.name.as_deref();
        let found = name.and_then(|name| self.api.0.crds.iter().find(|crd| &*crd.key.name == name));
        match (self.verb, found) {
            (Verb::Get, Some(crd)) => Ok(self.show(StatusCode::OK, crd, &[])),
            (Verb::List, _) => self.list_crds().await,
            (Verb::Watch, _) => self.watch_crds().await,
            // Installing the built-in CRDs again succeeds with a warning.
            (Verb::Patch | Verb::Update, Some(crd)) => {
                let warning = format!("{}: not changed: {FIXED}", crd.key.name);
                Ok(self.show(StatusCode::OK, crd, &[warning]))
            }
            (Verb::Get, None) => Err(ApiError::not_found(self.about())),
            (Verb::Update, None) => Err(ApiError::not_found(self.about())),
            // Existing names get the usual error, so that `kubectl apply` continues with a patch.
            (Verb::Create, _) => {
                let sent = super::decode(self.api, self.request)?.object;
                let name = sent["metadata"]["name"].as_str().unwrap_or_default();
                let about = crate::error::About { name, ..self.about() };
                match self.api.0.crds.iter().any(|crd| &*crd.key.name == name) {
                    true => Err(ApiError::exists(about)),
                    false => Err(ApiError::forbidden(about, FIXED)),
                }
            }
            _ => Err(ApiError::forbidden(self.about(), FIXED)),
        }
    }

    fn selected_crds(&self) -> Result<Vec<Stored>, ApiError> {
        let query = self.query()?;
        Ok(self.api.0.crds.iter().filter(|crd| query.selects(crd)).cloned().collect())
    }

    async fn list_crds(&self) -> Result<Answer, ApiError> {
        self.list_query()?;
        let meta = ListMeta { revision: self.api.0.store.revision().await?, ..ListMeta::default() };
        Ok(Answer::json(StatusCode::OK, self.view.list(&self.selected_crds()?, &meta)))
    }

    /// CRDs never change: sends the existing ones if requested, then nothing until the timeout.
    async fn watch_crds(&self) -> Result<Answer, ApiError> {
        let initial = self.initial_events()?;
        let version = self.version()?.unwrap_or(0);
        let begins = initial == Some(true) || initial.is_none() && version == 0;
        let revision = self.api.0.store.revision().await?;
        let crds = if begins { self.selected_crds()? } else { Vec::new() };
        let mut lines: Vec<bytes::Bytes> = crds.iter().map(|crd| self.view.event("ADDED", crd)).collect();
        if initial == Some(true) {
            lines.push(self.view.bookmark(revision, true));
        }
        let lasts = self.params.number("timeoutSeconds")?.filter(|seconds| *seconds > 0).unwrap_or(LASTS).min(LASTS);
        let ends = Instant::now() + std::time::Duration::from_secs(lasts);
        // The final line, if the client requests bookmarks.
        let last = match self.params.flag("allowWatchBookmarks")? {
            true => Some(self.view.bookmark(revision, false)),
            false => None,
        };
        let mut stop = self.api.0.stop.subscribe();
        let end = stream::once(async move {
            tokio::select! {
                () = stopped(&mut stop) => {}
                () = tokio::time::sleep_until(ends) => {}
            }
            last
        });
        let lines = stream::iter(lines).chain(end.filter_map(future::ready));
        Ok(Answer::of("application/json", StatusCode::OK, Body::stream(lines)))
    }
}
