//! Requests: lists by pages, watches as lines, and what went wrong in a few words.

mod lines;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

use super::event::{self, Page};
use super::slim::Keep;
use lines::gather;

pub(crate) use lines::Lines;

/// Objects of one page of a list.
const PAGE: usize = 500;
/// How long the server may take to begin its answer, and then to send the next piece of a list.
const ANSWER: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The server cannot be reached, or cut the connection.
    #[error("{0}")]
    Away(String),
    /// The server answers that it cannot.
    #[error("the server answers {0}")]
    Failed(String),
    /// The server has too much to do, and says for how long.
    #[error("the server is busy: {1}")]
    Busy(Option<Duration>, String),
    /// We may not.
    #[error("{0}")]
    Denied(String),
    /// The server has no such kind.
    #[error("the server does not have it")]
    Missing,
    /// What we last saw is too old to go on from, or newer than what the server has.
    #[error("too old: {0}")]
    Gone(String),
    /// The request is not understood.
    #[error("the server refuses the request: {0}")]
    Refused(String),
    /// The answer is not what it should be.
    #[error("the answer cannot be read: {0}")]
    Garbled(String),
}

/// A kind, or a part of its objects, at the server.
#[derive(Clone)]
pub(crate) struct Resource {
    client: Client,
    /// `/apis/GROUP/VERSION/PLURAL`, with the namespace where it is limited to one.
    path: String,
    /// `&fieldSelector=…`, or nothing.
    selector: String,
    keep: Arc<Keep>,
}

impl Resource {
    /// All objects of a kind.
    pub(crate) fn all(client: &Client, group: &str, version: &str, plural: &str, keep: Keep) -> Resource {
        let root = if group.is_empty() {
            "/api".to_owned()
        } else {
            format!("/apis/{group}")
        };
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

    /// The ConfigMap of this name; the name and the namespace are those of Kubernetes objects, which need no escapes.
    pub(crate) fn config_map(client: &Client, namespace: &str, name: &str) -> Resource {
        Resource {
            client: client.clone(),
            path: format!("/api/v1/namespaces/{namespace}/configmaps"),
            selector: format!("&fieldSelector=metadata.name%3D{name}"),
            keep: Arc::new(Keep::only(&["data"])),
        }
    }

    /// A page of the list: the first one, or the one that `next` of the page before stands for.
    pub(crate) async fn page(&self, next: &str) -> Result<Page, Trouble> {
        let next = escaped(next);
        let next = if next.is_empty() {
            next
        } else {
            format!("&continue={next}")
        };
        let bytes = self.read(&format!("limit={PAGE}{next}")).await?;
        event::page(&bytes, &self.keep).map_err(Trouble::Garbled)
    }

    /// The version that the server is at now.
    pub(crate) async fn version(&self) -> Result<String, Trouble> {
        let bytes = self.read("limit=1").await?;
        let page = event::page(&bytes, &Keep::All).map_err(Trouble::Garbled)?;
        Ok(page.version)
    }

    /// A watch that begins with a list of everything.
    pub(crate) async fn watch_list(&self, lasts: Duration) -> Result<Lines, Trouble> {
        let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=";
        self.watch(query, lasts).await
    }

    /// A watch of what happens after a version.
    pub(crate) async fn watch_from(&self, version: &str, lasts: Duration) -> Result<Lines, Trouble> {
        self.watch(&format!("resourceVersion={}", escaped(version)), lasts)
            .await
    }

    async fn watch(&self, query: &str, lasts: Duration) -> Result<Lines, Trouble> {
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={}&{query}",
            lasts.as_secs()
        );
        let body = self.ask(&query).await?;
        Ok(Lines::new(body, lasts, Arc::clone(&self.keep)))
    }

    async fn read(&self, query: &str) -> Result<Vec<u8>, Trouble> {
        let body = self.ask(query).await?;
        gather(body).await
    }

    async fn ask(&self, query: &str) -> Result<Body, Trouble> {
        let request = http::Request::get(format!("{}?{query}{}", self.path, self.selector))
            .header(http::header::ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|error| Trouble::Refused(error.to_string()))?;
        let response = timeout(ANSWER, self.client.send(request))
            .await
            .map_err(|_| Trouble::Away("no answer in time".to_owned()))?
            .map_err(|error| Trouble::Away(told(&error)))?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        let wait = response.headers().get(http::header::RETRY_AFTER);
        let wait = wait
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.parse().ok());
        let bytes = gather(response.into_body()).await.unwrap_or_default();
        let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = said["message"].as_str().unwrap_or("no reason given").to_owned();
        Err(trouble(status.as_u16().into(), message, wait.map(Duration::from_secs)))
    }
}

/// What an answer other than success means.
pub(crate) fn trouble(code: u64, message: String, wait: Option<Duration>) -> Trouble {
    // A version that the server has not reached yet: it was put back.
    let ahead = message.contains("Too large resource version");
    match code {
        _ if ahead => Trouble::Gone(message),
        401 | 403 => Trouble::Denied(message),
        404 => Trouble::Missing,
        410 => Trouble::Gone(message),
        429 => Trouble::Busy(wait, message),
        400..500 => Trouble::Refused(message),
        _ => Trouble::Failed(format!("{code}: {message}")),
    }
}

/// All causes of an error, in one line: kube's own text often says only that something failed.
fn told(error: &dyn std::error::Error) -> String {
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

/// Everything that stands in a query must be escaped, but for letters, digits and a few signs.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let of = |code| trouble(code, "m".to_owned(), None);
        assert!(matches!(of(403), Trouble::Denied(_)) && matches!(of(401), Trouble::Denied(_)));
        assert!(matches!(of(404), Trouble::Missing) && matches!(of(410), Trouble::Gone(_)));
        assert!(matches!(of(422), Trouble::Refused(_)) && matches!(of(503), Trouble::Failed(_)));
        let ahead = trouble(
            504,
            "Timeout: Too large resource version: 9, current: 5".to_owned(),
            None,
        );
        assert!(matches!(ahead, Trouble::Gone(_)), "{ahead:?}");
    }

    #[test]
    fn tokens_are_escaped() {
        assert_eq!(escaped("a+b/c=d e"), "a%2Bb%2Fc%3Dd%20e");
    }
}
