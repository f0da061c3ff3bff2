//! Requests and responses.

use std::error::Error as _;
use std::io;

use anyhow::{Context, Result};
use futures::Stream;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::WatchEvent;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::Server;
use crate::failure::{StatusError, TimedOut, Unreachable};

/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 1 << 30;
/// Maximum size of an error response, in bytes.
const MAX_ERROR: usize = 4 << 20;

const JSON: &str = "application/json";
/// Prefers a `Table`.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Prefers metadata only.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: http::Method,
    path: String,
    query: Vec<(String, String)>,
    accept: &'static str,
    body: Option<(&'static str, Vec<u8>)>,
}

impl Request {
    /// GET of a path, optionally with a query.
    pub(crate) fn get(path: impl Into<String>) -> Request {
        Request { method: http::Method::GET, path: path.into(), query: Vec::new(), accept: JSON, body: None }
    }

    /// POST of an object.
    pub(crate) fn post(path: impl Into<String>, object: &Json) -> Request {
        Request::get(path).method(http::Method::POST).body(JSON, object.to_string())
    }

    /// PUT of an object.
    pub(crate) fn put(path: impl Into<String>, object: &Json) -> Request {
        Request::get(path).method(http::Method::PUT).body(JSON, object.to_string())
    }

    /// PATCH with a body of this content type.
    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, body: impl Into<Vec<u8>>) -> Request {
        Request::get(path).method(http::Method::PATCH).body(content_type, body)
    }

    /// DELETE with options.
    pub(crate) fn delete(path: impl Into<String>, options: &Json) -> Request {
        Request::get(path).method(http::Method::DELETE).body(JSON, options.to_string())
    }

    /// Adds a query parameter.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Request {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a query parameter if there is a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl Into<String>>) -> Request {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Asks for a `Table`.
    pub(crate) fn in_table(mut self) -> Request {
        self.accept = TABLE;
        self
    }

    /// Asks for metadata only.
    pub(crate) fn metadata_only(mut self) -> Request {
        self.accept = METADATA;
        self
    }

    /// Sets the `Accept` header.
    pub(crate) fn accept(mut self, accept: &'static str) -> Request {
        self.accept = accept;
        self
    }

    fn method(mut self, method: http::Method) -> Request {
        self.method = method;
        self
    }

    fn body(mut self, content_type: &'static str, body: impl Into<Vec<u8>>) -> Request {
        self.body = Some((content_type, body.into()));
        self
    }

    fn into_http(self) -> Result<http::Request<Vec<u8>>> {
        let mut uri = self.path;
        for (index, (name, value)) in self.query.iter().enumerate() {
            uri.push(if index == 0 && !uri.contains('?') { '?' } else { '&' });
            uri.push_str(&format!("{}={}", encode(name), encode(value)));
        }
        let request = http::Request::builder()
            .method(self.method)
            .uri(&uri)
            .header(http::header::ACCEPT, self.accept)
            .header(http::header::USER_AGENT, concat!("rutter/", env!("CARGO_PKG_VERSION")));
        let request = match self.body {
            Some((content_type, body)) => request.header(http::header::CONTENT_TYPE, content_type).body(body),
            None => request.body(Vec::new()),
        };
        request.with_context(|| format!("`{uri}` is not a valid path"))
    }
}

impl Server {
    /// Sends a request and parses the JSON response.
    pub(crate) async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        let path = request.path.clone();
        let whole = async {
            let response = self.exchange(request).await?;
            self.read(response.into_body(), MAX_RESPONSE).await
        };
        let bytes = match self.timeout {
            None => whole.await,
            Some(limit) => tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| {
                Err(TimedOut(format!("{} did not answer within --request-timeout", self.url)).into())
            }),
        };
        serde_json::from_slice(&bytes?).with_context(|| format!("unexpected response of {}{path}", self.url))
    }

    /// Opens a watch.
    pub(crate) async fn watch(
        &self,
        request: Request,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<Json>>> + use<>> {
        let request = request.with("watch", "true").with("allowWatchBookmarks", "true");
        let events = self.kube.request_events(request.into_http()?).await;
        events.map_err(|error| match error {
            kube::Error::Api(status) => StatusError { status }.into(),
            error => self.unreachable(error),
        })
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request and checks the status code.
    async fn exchange(&self, request: Request) -> Result<http::Response<Body>> {
        let response =
            self.kube.send(request.into_http()?.map(Body::from)).await.map_err(|error| self.unreachable(error))?;
        for warning in response.headers().get_all(http::header::WARNING) {
            if let Some(text) = warning.to_str().ok().and_then(warning_text) {
                self.warnings.add(text);
            }
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let body = self.read(response.into_body(), MAX_ERROR).await?;
        Err(StatusError::read(code, &body).into())
    }

    async fn read(&self, mut body: Body, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.unreachable(error))?;
            let Some(data) = frame.data_ref() else { continue };
            anyhow::ensure!(bytes.len() + data.len() <= limit, "the response is larger than {limit} bytes");
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    /// The error for a request without a response, with advice.
    fn unreachable(&self, error: kube::Error) -> anyhow::Error {
        let mut causes = vec![error.to_string()];
        let mut refused = false;
        let mut next = error.source();
        while let Some(cause) = next {
            let io = cause.downcast_ref::<io::Error>();
            refused |= io.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            causes.push(cause.to_string());
            next = cause.source();
        }
        let all = causes.join(": ");
        let deepest = causes.pop().unwrap_or_default();
        let has = |words: &[&str]| words.iter().any(|word| all.contains(word));
        let hint = if refused {
            "check that the server runs (`rutter serve` starts one); --kubeconfig, --context and --server select another"
        } else if has(&["UnknownIssuer", "invalid peer certificate", "NotValidForName", "certificate"]) {
            "the server's certificate is not trusted or is for another host: the server may have been set up again since the \
             kubeconfig was written; --certificate-authority sets the trusted authorities"
        } else if has(&["dns error", "failed to lookup"]) {
            "unknown host: check `server` in the kubeconfig"
        } else if has(&["InvalidMessage", "InvalidContentType", "corrupt message"]) {
            "the port does not use TLS: the URL may have to start with http://"
        } else if self.url.starts_with("http://") {
            "if the port uses TLS, the URL must start with https://"
        } else {
            "--kubeconfig, --context and --server select another server"
        };
        let (url, source) = (&self.url, &self.source);
        let message = format!("cannot reach {url} ({source}): {deepest}\nhint: {hint}");
        Unreachable { named: true, message }.into()
    }
}

/// The characters that are escaped in a part of a path or query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes a part of a path or query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The text of `299 - "text"`.
fn warning_text(header: &str) -> Option<String> {
    let rest = header.strip_prefix("299 ")?;
    let quoted = &rest[rest.find('"')? + 1..];
    let mut text = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(text),
            '\\' => text.extend(chars.next()),
            c => text.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded() {
        let request = Request::get("/api/v1/pods").with("labelSelector", "a in (b,c)").maybe("x", None::<String>);
        let uri = request.into_http().unwrap().uri().to_string();
        assert_eq!(uri, "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29");
        assert_eq!(encode("a/../b"), "a%2F..%2Fb");
    }

    #[test]
    fn warnings_are_parsed() {
        assert_eq!(warning_text(r#"299 - "v1 is \"old\"""#).as_deref(), Some("v1 is \"old\""));
        assert_eq!(warning_text(r#"299 - "open"#), None);
        assert_eq!(warning_text("199 - \"x\""), None);
    }
}
