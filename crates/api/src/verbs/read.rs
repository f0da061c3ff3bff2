//! get, list, history.

use bytes::Bytes;
use http::StatusCode;
use store::Error;

use super::Call;
use crate::answer::{Answer, text};
use crate::error::ApiError;
use crate::view::ListMeta;

/// Default number of versions in a history.
const HISTORY: u64 = 100;
/// Maximum number of versions in a history.
const HISTORY_LIMIT: u64 = 10_000;

const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You must \
                            start a new list without the continue parameter.";

impl Call<'_> {
    pub(super) async fn get(&self) -> Result<Answer, ApiError> {
        let version = self.version()?;
        let store = &self.api.0.store;
        let stored = store.get(&self.key()).await?;
        if let Some(version) = version
            && version > stored.as_ref().map_or(0, |stored| stored.revision)
        {
            let newest = store.revision().await?;
            if version > newest {
                return Err(ApiError::too_large_version(version, newest));
            }
        }
        let stored = stored.ok_or_else(|| ApiError::not_found(self.about()))?;
        Ok(self.show(StatusCode::OK, &stored, &[]))
    }

    pub(super) async fn list(&self) -> Result<Answer, ApiError> {
        let query = self.list_query()?;
        let goes_on = query.after.is_some();
        let list = self.api.0.store.list(&query).await.map_err(|error| match error {
            Error::Compacted { .. } if goes_on => ApiError::expired(INCONSISTENT),
            error => error.into(),
        })?;
        let meta =
            ListMeta { revision: list.revision, token: list.next.map(|next| next.encode()), remaining: list.remaining };
        Ok(Answer::json(StatusCode::OK, self.view.list(&list.items, &meta)))
    }

    /// The stored versions of the object.
    pub(super) async fn history(&self) -> Result<Answer, ApiError> {
        let limit = self.params.number("limit")?.unwrap_or(HISTORY).clamp(1, HISTORY_LIMIT);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let versions = self.api.0.store.history(&self.key(), limit).await.map_err(|error| match error {
            Error::Unsupported(_) => ApiError::new(501, "NotImplemented", error.to_string()),
            error => error.into(),
        })?;
        if versions.is_empty() {
            return Err(ApiError::not_found(self.about()));
        }
        let head = "{\"kind\":\"History\",\"apiVersion\":\"rutter.io/v1\",\"metadata\":{},\"versions\":[";
        let mut pieces = vec![Bytes::from_static(head.as_bytes())];
        for (n, version) in versions.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let mut entry = format!("{comma}{{\"resourceVersion\":\"{}\"", version.revision);
            if let Some(time) = version.time {
                entry.push_str(&format!(",\"time\":\"{}\"", crate::api::timestamp(time)));
            }
            entry.push_str(&format!(",\"deleted\":{}", version.object.is_none()));
            match &version.object {
                None => pieces.push((entry + "}").into()),
                Some(object) => {
                    pieces.push((entry + ",\"object\":").into());
                    pieces.extend(self.view.whole(object));
                    pieces.push(Bytes::from_static(b"}"));
                }
            }
        }
        pieces.push(Bytes::from_static(b"]}\n"));
        if self.view.pretty {
            let all: Vec<u8> = pieces.concat();
            let value = serde_json::from_slice(&all).map_err(|error| ApiError::internal(error.to_string()))?;
            pieces = vec![text(&value, true)];
        }
        Ok(Answer::json(StatusCode::OK, pieces))
    }
}
