//! One request and its answer.

use std::error::Error as _;
use std::io;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::{Server, Watch};
use crate::failure::{NoServer, Refusal, TimedOut};

/// The largest answer that is read, in bytes: some hundred thousand objects, or a page of a list many times over.
const MAX_ANSWER: usize = 1 << 30;
/// The largest answer to a refused request.
const MAX_REFUSAL: usize = 4 << 20;

const JSON: &str = "application/json";
/// What asks for a table, or else for objects.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// What asks for metadata alone, or else for objects.
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
    /// GET of a path, which may have a query.
    pub(crate) fn get(path: impl Into<String>) -> Request {
        Request {
            method: http::Method::GET,
            path: path.into(),
            query: Vec::new(),
            accept: JSON,
            body: None,
        }
    }

    /// POST of an object.
    pub(crate) fn post(path: impl Into<String>, object: &Json) -> Request {
        Request::get(path)
            .method(http::Method::POST)
            .body(JSON, object.to_string())
    }

    /// PUT of an object.
    pub(crate) fn put(path: impl Into<String>, object: &Json) -> Request {
        Request::get(path)
            .method(http::Method::PUT)
            .body(JSON, object.to_string())
    }

    /// PATCH with a body of this type.
    pub(crate) fn patch(path: impl Into<String>, content_type: &'static str, body: impl Into<Vec<u8>>) -> Request {
        Request::get(path).method(http::Method::PATCH).body(content_type, body)
    }

    /// DELETE with options.
    pub(crate) fn delete(path: impl Into<String>, options: &Json) -> Request {
        Request::get(path)
            .method(http::Method::DELETE)
            .body(JSON, options.to_string())
    }

    /// With a parameter.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Request {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    /// With a parameter, if there is a value.
    pub(crate) fn maybe(self, name: &str, value: Option<impl Into<String>>) -> Request {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// As a table.
    pub(crate) fn in_table(mut self) -> Request {
        self.accept = TABLE;
        self
    }

    /// A list with nothing but metadata.
    pub(crate) fn in_short(mut self) -> Request {
        self.accept = METADATA;
        self
    }

    /// With this `Accept` header.
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

    fn into_http(self) -> Result<http::Request<Body>> {
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
            Some((content_type, body)) => request
                .header(http::header::CONTENT_TYPE, content_type)
                .body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        request.with_context(|| format!("`{uri}` is no path"))
    }
}

impl Server {
    /// Sends a request; the answer is JSON.
    pub(crate) async fn send<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        Ok(self.answer(request).await?.1)
    }

    /// Sends a request; returns the status code and the answer.
    pub(crate) async fn answer<T: DeserializeOwned>(&self, request: Request) -> Result<(u16, T)> {
        let path = request.path.clone();
        let (code, bytes) = self.bytes(request).await?;
        let value = serde_json::from_slice(&bytes)
            .with_context(|| format!("the answer of {}{path} is not what was expected", self.place.url))?;
        Ok((code, value))
    }

    /// Sends a request; returns the status code, which says success, and the body.
    pub(crate) async fn bytes(&self, request: Request) -> Result<(u16, Vec<u8>)> {
        let whole = async {
            let response = self.exchange(request).await?;
            let code = response.status().as_u16();
            let body = self.read(response.into_body(), MAX_ANSWER).await?;
            Ok((code, body))
        };
        match self.timeout {
            None => whole.await,
            Some(limit) => tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| {
                Err(TimedOut(format!("{} did not answer within --request-timeout", self.place.url)).into())
            }),
        }
    }

    /// Opens a watch.
    pub(crate) async fn watch(&self, request: Request) -> Result<Watch> {
        let request = request.with("watch", "true").with("allowWatchBookmarks", "true");
        Ok(Watch::of(self.exchange(request).await?.into_body()))
    }

    /// The URL, for messages.
    pub(crate) fn url(&self) -> &str {
        &self.place.url
    }

    /// Sends a request and checks that the answer says success.
    async fn exchange(&self, request: Request) -> Result<http::Response<Body>> {
        let response = self
            .kube
            .send(request.into_http()?)
            .await
            .map_err(|error| self.unreachable(error))?;
        for warning in response.headers().get_all(http::header::WARNING) {
            if let Some(text) = warning.to_str().ok().and_then(warning_text) {
                self.warnings.add(text);
            }
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let body = self.read(response.into_body(), MAX_REFUSAL).await?;
        Err(Refusal::read(code, &body).into())
    }

    async fn read(&self, mut body: Body, limit: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.unreachable(error))?;
            let Some(data) = frame.data_ref() else { continue };
            anyhow::ensure!(
                bytes.len() + data.len() <= limit,
                "the answer is larger than {limit} bytes"
            );
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    /// Why no answer came, and what to do about it.
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
            "is it running? `rutter serve` starts one; --kubeconfig, --context and --server choose another"
        } else if has(&[
            "UnknownIssuer",
            "invalid peer certificate",
            "NotValidForName",
            "certificate",
        ]) {
            "the server's certificate is not signed by who is trusted, or names another host: has the server been set up \
             anew since the kubeconfig was written? --certificate-authority names whom to trust"
        } else if has(&["dns error", "failed to lookup"]) {
            "no such host: check the kubeconfig's `server`"
        } else if has(&["InvalidMessage", "InvalidContentType", "corrupt message"]) {
            "it does not speak TLS there: is the URL http:// instead of https://?"
        } else if self.place.url.starts_with("http://") {
            "does it speak TLS there? then the URL is https:// and not http://"
        } else {
            "--kubeconfig, --context and --server choose another server"
        };
        let (url, from) = (&self.place.url, &self.place.from);
        let what = format!("cannot reach {url} ({from}): {deepest}\nhint: {hint}");
        NoServer { named: true, what }.into()
    }
}

/// A text as part of a path or query, percent-encoded.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
        let request = Request::get("/api/v1/pods")
            .with("labelSelector", "a in (b,c)")
            .maybe("x", None::<String>);
        let uri = request.into_http().unwrap().uri().to_string();
        assert_eq!(uri, "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29");
        assert_eq!(encode("a/../b"), "a%2F..%2Fb");
    }

    #[test]
    fn warnings_are_read() {
        assert_eq!(
            warning_text(r#"299 - "v1 is \"old\"""#).as_deref(),
            Some("v1 is \"old\"")
        );
        assert_eq!(warning_text(r#"299 - "open"#), None);
        assert_eq!(warning_text("199 - \"x\""), None);
    }
}
