//! Requests to the API server: paged lists, watches, and error classification.

mod lines;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::timeout;

use super::event::{self, Page};
use super::slim::Keep;
use lines::gather;

pub(crate) use lines::Lines;

/// The page size of lists.
const PAGE: usize = 500;
/// The timeout for the start of a response, and for the next part of a list.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server cannot be reached, or the connection broke.
    #[error("{0}")]
    Unavailable(String),
    /// The server answered with an internal error.
    #[error("the server answers {0}")]
    ServerError(String),
    /// The server is overloaded, and may say for how long to wait.
    #[error("the server is busy: {1}")]
    Throttled(Option<Duration>, String),
    /// Access is denied.
    #[error("{0}")]
    Denied(String),
    /// The server does not serve the kind.
    #[error("the server does not have it")]
    NotFound,
    /// The resource version has expired, or is newer than the server's.
    #[error("too old: {0}")]
    Expired(String),
    /// The server rejected the request as invalid.
    #[error("the server refuses the request: {0}")]
    Invalid(String),
    /// The response is malformed.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
}

impl RequestError {
    pub(crate) fn malformed(error: serde_json::Error) -> RequestError {
        RequestError::Malformed(error.to_string())
    }
}

/// A kind, or a subset of its objects.
#[derive(Clone)]
pub struct Resource {
    client: Client,
    /// `/apis/GROUP/VERSION/PLURAL`, with the namespace if limited to one.
    path: String,
    /// `&fieldSelector=…&labelSelector=…`, or empty.
    selector: String,
    keep: Arc<Keep>,
}

impl Resource {
    /// Some objects of a kind, without their managed fields: those of a namespace (`None` for all), with a label
    /// selector and a field selector.
    pub fn selected(
        client: &Client,
        (group, version, plural): (&str, &str, &str),
        namespace: Option<&str>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Resource {
        let place = match namespace {
            Some(namespace) => format!("namespaces/{namespace}/{plural}"),
            None => plural.to_owned(),
        };
        let selector = |name: &str, text: &str| format!("&{name}={}", escaped(text));
        let labels = labels.map(|text| selector("labelSelector", text)).unwrap_or_default();
        let fields = fields.map(|text| selector("fieldSelector", text)).unwrap_or_default();
        Resource { selector: labels + &fields, ..Resource::all(client, group, version, &place, Keep::unmanaged()) }
    }

    /// All objects of a kind.
    pub(crate) fn all(client: &Client, group: &str, version: &str, plural: &str, keep: Keep) -> Resource {
        let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
        Resource {
            client: client.clone(),
            path: format!("{root}/{version}/{plural}"),
            selector: String::new(),
            keep: Arc::new(keep),
        }
    }

    /// The metadata of the objects of a kind that have a label.
    pub(crate) fn labelled(client: &Client, group: &str, plural: &str, label: &str) -> Resource {
        Resource {
            selector: format!("&labelSelector={}", escaped(label)),
            ..Resource::all(client, group, "v1", plural, Keep::only(&[]))
        }
    }

    /// A ConfigMap.
    pub(crate) fn config_map(client: &Client, namespace: &str, name: &str) -> Resource {
        let named = format!("metadata.name={name}");
        Resource {
            keep: Arc::new(Keep::only(&["data"])),
            ..Resource::selected(client, ("", "v1", "configmaps"), Some(namespace), None, Some(&named))
        }
    }

    /// Requests a page of the list: the first one, or the one after the continue token.
    pub(crate) async fn page(&self, next: &str) -> Result<Page, RequestError> {
        let next = escaped(next);
        let next = if next.is_empty() { next } else { format!("&continue={next}") };
        let bytes = self.read(&format!("limit={PAGE}{next}")).await?;
        event::page(&bytes, &self.keep).map_err(RequestError::malformed)
    }

    /// Requests the current resource version.
    pub(crate) async fn version(&self) -> Result<String, RequestError> {
        let bytes = self.read("limit=1").await?;
        let page = event::page(&bytes, &Keep::All).map_err(RequestError::malformed)?;
        Ok(page.version)
    }

    /// Starts a watch with an initial list.
    pub(crate) async fn watch_list(&self, lasts: Duration) -> Result<Lines, RequestError> {
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
        self.watch(query, lasts).await
    }

    /// Starts a watch after a resource version.
    pub(crate) async fn watch_from(&self, version: &str, lasts: Duration) -> Result<Lines, RequestError> {
        self.watch(&format!("resourceVersion={}", escaped(version)), lasts).await
    }

    async fn watch(&self, query: &str, lasts: Duration) -> Result<Lines, RequestError> {
        let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}&{query}", lasts.as_secs());
        let body = self.ask(&query).await?;
        Ok(Lines::new(body, lasts, Arc::clone(&self.keep)))
    }

    async fn read(&self, query: &str) -> Result<Vec<u8>, RequestError> {
        let body = self.ask(query).await?;
        gather(body).await
    }

    async fn ask(&self, query: &str) -> Result<Body, RequestError> {
        let request = http::Request::get(format!("{}?{query}{}", self.path, self.selector))
            .header(http::header::ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| RequestError::Invalid(error.to_string()))?;
        let response = timeout(ANSWER, self.client.send(request))
            .await
            .map_err(|_| RequestError::Unavailable("no answer in time".to_owned()))?
            .map_err(|error| RequestError::Unavailable(causes(&error)))?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        let wait = response.headers().get(http::header::RETRY_AFTER);
        let wait = wait.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
        let bytes = gather(response.into_body()).await.unwrap_or_default();
        let body: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = body["message"].as_str().unwrap_or("no reason given").to_owned();
        Err(classify(status.as_u16().into(), message, wait.map(Duration::from_secs)))
    }
}

/// Classifies an error response.
pub(crate) fn classify(code: u64, message: String, wait: Option<Duration>) -> RequestError {
    // The version is newer than the server's: it was restored from a backup.
    let ahead = message.contains("Too large resource version");
    match code {
        _ if ahead => RequestError::Expired(message),
        401 | 403 => RequestError::Denied(message),
        404 => RequestError::NotFound,
        410 => RequestError::Expired(message),
        429 => RequestError::Throttled(wait, message),
        400..500 => RequestError::Invalid(message),
        _ => RequestError::ServerError(format!("{code}: {message}")),
    }
}

/// All causes of an error in one line. kube's own text often only says that something failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// The characters that are escaped in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_responses_are_classified() {
        let of = |code| classify(code, "m".to_owned(), None);
        assert!(matches!(of(403), RequestError::Denied(_)) && matches!(of(401), RequestError::Denied(_)));
        assert!(matches!(of(404), RequestError::NotFound) && matches!(of(410), RequestError::Expired(_)));
        assert!(matches!(of(422), RequestError::Invalid(_)) && matches!(of(503), RequestError::ServerError(_)));
        let ahead = classify(504, "Timeout: Too large resource version: 9, current: 5".to_owned(), None);
        assert!(matches!(ahead, RequestError::Expired(_)), "{ahead:?}");
    }

    #[test]
    fn tokens_are_escaped() {
        assert_eq!(escaped("a+b/c=d e"), "a%2Bb%2Fc%3Dd%20e");
    }
}
