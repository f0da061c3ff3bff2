//! Responses: status, headers, body.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::error::ApiError;

/// Maximum number of warnings per response.
const WARNINGS: usize = 20;
/// Maximum length of a warning, in characters.
const WARNING_LENGTH: usize = 400;

/// A response.
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

impl Answer {
    /// A response with JSON text.
    pub fn json(status: StatusCode, pieces: Vec<Bytes>) -> Answer {
        Answer::of("application/json", status, Body::pieces(pieces))
    }

    /// A response with a JSON value.
    pub fn value(status: StatusCode, value: &Value, pretty: bool) -> Answer {
        Answer::json(status, vec![text(value, pretty)])
    }

    /// A plain-text response.
    pub fn plain(text: &'static str) -> Answer {
        Answer::of("text/plain; charset=utf-8", StatusCode::OK, Body::whole(text))
    }

    /// A response with this content type and body.
    pub fn of(media: &'static str, status: StatusCode, body: Body) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        Answer { status, headers, body }
    }

    /// Adds warnings as `Warning: 299 - "text"` headers.
    pub fn warn(mut self, warnings: &[String]) -> Answer {
        for warning in warnings.iter().take(WARNINGS) {
            let text: String = warning
                .chars()
                .take(WARNING_LENGTH)
                .filter(|c| !c.is_control())
                .flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] })
                .collect();
            if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
                self.headers.append(WARNING, value);
            }
        }
        self
    }
}

impl From<ApiError> for Answer {
    fn from(failure: ApiError) -> Answer {
        let status = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer::value(status, &failure.status(), false);
        if let Some(seconds) = failure.retry_after_seconds() {
            answer.headers.insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            answer.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// A value as text with a trailing line break, as in Kubernetes.
pub(crate) fn text(value: &Value, pretty: bool) -> Bytes {
    let mut text = if pretty { format!("{value:#}") } else { value.to_string() };
    text.push('\n');
    text.into()
}
