//! An API server in this process, with faults that tests control.

// A helper that fails is a failure of the test.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tonic::codegen::Service;

type Piece = Result<Frame<Bytes>, std::io::Error>;
type Stream = Pin<Box<dyn futures::Stream<Item = Piece> + Send>>;

/// The server. Clones share its state.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

/// The state, which tests may change.
#[derive(Default)]
pub(crate) struct State {
    version: u64,
    /// By plural, namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    /// Version, plural, type and object of each event.
    history: Vec<(u64, String, &'static str, Value)>,
    /// The plural, the only requested name, and the sender of each watch.
    watches: Vec<(String, Option<String>, mpsc::UnboundedSender<Piece>)>,
    /// Whether connections are refused.
    pub(crate) down: bool,
    /// Whether streamed lists are unsupported.
    pub(crate) pages_only: bool,
    /// Whether streamed lists fail, as on an old etcd.
    pub(crate) no_progress: bool,
    /// Plurals that are answered with 403.
    pub(crate) denied: BTreeSet<String>,
    /// Plurals whose requests are answered with 500.
    pub(crate) failing: BTreeSet<String>,
    /// Plurals that are answered with 404.
    pub(crate) missing: BTreeSet<String>,
    /// The number of requests to answer with 429.
    pub(crate) busy: usize,
    /// The page size of lists.
    pub(crate) page: usize,
    /// The plurals of requested lists and watches.
    pub(crate) asked: Vec<String>,
}

impl Fake {
    /// An empty server.
    pub(crate) fn new() -> Fake {
        Fake::default()
    }

    /// A client of the server.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Creates or changes an object.
    pub(crate) fn put(&self, plural: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let key = key(plural, &object);
        let what = match state.objects.insert(key, object.clone()) {
            None => "ADDED",
            Some(_) => "MODIFIED",
        };
        state.notify(plural, what, object);
    }

    /// Deletes an object if it exists.
    pub(crate) fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        if let Some(mut object) = state.objects.remove(&key) {
            state.version += 1;
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.notify(plural, "DELETED", object);
        }
    }

    /// Creates the established definition of a kind.
    pub(crate) fn define(&self, group: &str, plural: &str, versions: &[&str]) {
        let versions: Vec<Value> = versions.iter().map(|name| json!({"name": name, "served": true})).collect();
        self.put(
            "customresourcedefinitions",
            json!({
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {"group": group, "names": {"plural": plural}, "versions": versions},
                "status": {"conditions": [{"type": "Established", "status": "True"}]},
            }),
        );
    }

    /// Ends all watches.
    pub(crate) fn cut(&self) {
        self.state().watches.clear();
    }

    /// Expires the position of every watch and drops the history.
    pub(crate) fn expire(&self) {
        let mut state = self.state();
        state.history.clear();
        state.version += 1;
        let status =
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}});
        for (_, _, watch) in std::mem::take(&mut state.watches) {
            let _ = watch.send(Ok(line(&status)));
        }
    }

    /// Restores the objects and their versions, as from a backup. The server is unavailable meanwhile.
    pub(crate) fn restore(&self, backup: &Backup) {
        let mut state = self.state();
        state.watches.clear();
        state.history.clear();
        (state.version, state.objects) = backup.0.clone();
    }

    /// A copy of the objects.
    pub(crate) fn backup(&self) -> Backup {
        let state = self.state();
        Backup((state.version, state.objects.clone()))
    }

    /// The names of all objects with this plural: `NAMESPACE/NAME`.
    pub(crate) fn names(&self, plural: &str) -> BTreeSet<String> {
        let state = self.state();
        let of = state.objects.keys().filter(|key| key.0 == plural);
        of.map(|(_, namespace, name)| format!("{namespace}/{name}")).collect()
    }
}

/// The objects of a server at one time.
pub(crate) struct Backup((u64, BTreeMap<(String, String, String), Value>));

impl Backup {
    /// The text of a field of an object in the namespace `x`.
    pub(crate) fn field(&self, plural: &str, name: &str, pointer: &str) -> Option<String> {
        let object = self.0.1.get(&(plural.to_owned(), "x".to_owned(), name.to_owned()))?;
        Some(object.pointer(pointer)?.as_str()?.to_owned())
    }
}

fn key(plural: &str, object: &Value) -> (String, String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (plural.to_owned(), text("namespace"), text("name"))
}

fn line(value: &Value) -> Frame<Bytes> {
    Frame::data(format!("{value}\n").into())
}

impl State {
    /// Drops the history; watches that start in it get 410.
    pub(crate) fn forget(&mut self) {
        self.history = Vec::new();
    }

    fn notify(&mut self, plural: &str, what: &'static str, object: Value) {
        self.history.push((self.version, plural.to_owned(), what, object.clone()));
        let event = json!({"type": what, "object": object});
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        self.watches.retain(|(of, only, watch)| {
            let others = of != plural || only.as_ref().is_some_and(|only| only != name);
            others || watch.send(Ok(line(&event))).is_ok()
        });
    }

    fn answer(&mut self, path: &str, query: &str) -> Response<StreamBody<Stream>> {
        let plural = path.rsplit('/').next().unwrap_or_default().to_owned();
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
        };
        self.asked.push(plural.clone());
        if self.busy > 0 {
            self.busy -= 1;
            return status(429, "too many requests", Some("1"));
        }
        if self.denied.contains(&plural) {
            return status(403, "forbidden: no such right", None);
        }
        if self.failing.contains(&plural) {
            return status(500, "conversion webhook failed", None);
        }
        if self.missing.contains(&plural) {
            return status(404, "not found", None);
        }
        let name = parameter("fieldSelector").and_then(|text| text.strip_prefix("metadata.name%3D").map(str::to_owned));
        let objects: Vec<&Value> = (self.objects.iter())
            .filter(|(key, _)| key.0 == plural && name.as_ref().is_none_or(|name| key.2 == *name))
            .map(|(_, object)| object)
            .collect();
        if parameter("watch").is_none() {
            return self.list(&objects, parameter("limit"), parameter("continue"));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        if parameter("sendInitialEvents").is_some() {
            if self.pages_only {
                return status(
                    422,
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
                    None,
                );
            }
            if self.no_progress {
                return status(500, "the required storage feature RequestWatchProgress is disabled", None);
            }
            for object in objects {
                let _ = sender.send(Ok(line(&json!({"type": "ADDED", "object": object}))));
            }
            let end = json!({"type": "BOOKMARK", "object": {"metadata": {
                "resourceVersion": self.version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
            }}});
            let _ = sender.send(Ok(line(&end)));
        } else {
            let from: u64 = parameter("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default();
            let oldest = self.history.first().map_or(self.version, |event| event.0 - 1);
            if from < oldest {
                let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}});
                let _ = sender.send(Ok(line(&gone)));
                return streamed(200, receiver, None);
            }
            let wanted = |object: &Value| name.as_ref().is_none_or(|name| object["metadata"]["name"] == **name);
            let later = (self.history.iter()).filter(|event| event.0 > from && event.1 == plural && wanted(&event.3));
            for (_, _, what, object) in later {
                let _ = sender.send(Ok(line(&json!({"type": what, "object": object}))));
            }
        }
        self.watches.push((plural, name, sender));
        streamed(200, receiver, None)
    }

    fn list(&self, objects: &[&Value], limit: Option<String>, next: Option<String>) -> Response<StreamBody<Stream>> {
        let start: usize = next.and_then(|text| text.parse().ok()).unwrap_or_default();
        let most = if self.page > 0 { self.page } else { limit.and_then(|text| text.parse().ok()).unwrap_or(500) };
        let end = (start + most).min(objects.len());
        let mut meta = json!({"resourceVersion": self.version.to_string()});
        if end < objects.len() {
            meta["continue"] = end.to_string().into();
        }
        let list = json!({"kind": "List", "metadata": meta, "items": objects[start..end]});
        let (sender, receiver) = mpsc::unbounded_channel();
        let _ = sender.send(Ok(line(&list)));
        streamed(200, receiver, None)
    }
}

fn status(code: u16, message: &str, retry: Option<&str>) -> Response<StreamBody<Stream>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Ok(line(&json!({"kind": "Status", "code": code, "message": message}))));
    streamed(code, receiver, retry)
}

fn streamed(
    code: u16,
    mut receiver: mpsc::UnboundedReceiver<Piece>,
    retry: Option<&str>,
) -> Response<StreamBody<Stream>> {
    let stream: Stream = Box::pin(futures::stream::poll_fn(move |cx| receiver.poll_recv(cx)));
    let mut builder = Response::builder().status(code);
    if let Some(seconds) = retry {
        builder = builder.header("retry-after", seconds);
    }
    builder.body(StreamBody::new(stream)).unwrap()
}

impl Service<Request<Body>> for Fake {
    type Response = Response<StreamBody<Stream>>;
    type Error = std::io::Error;
    type Future = Ready<Result<Self::Response, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut state = self.state();
        ready(match state.down {
            true => Err(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused")),
            false => Ok(state.answer(request.uri().path(), request.uri().query().unwrap_or_default())),
        })
    }
}

/// The timeout of anything that a test waits for, by the paused clock.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);
