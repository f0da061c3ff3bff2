//! A client of a Kubernetes API, as simple as possible.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use config::schema::find_kind;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::task::JoinHandle;

/// The number of concurrent requests.
const WRITERS: usize = 16;

/// Counts the changes of a kind.
pub struct Counter {
    count: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Counter {
    /// Stops, and returns the number of changes.
    pub fn stop(self) -> u64 {
        self.task.abort();
        self.count.load(Ordering::Relaxed)
    }
}

/// A client of an API server.
pub struct Api {
    client: Client,
    witnesses: Arc<Mutex<BTreeMap<&'static str, Option<Instant>>>>,
}

impl Api {
    /// A client with the rights of this kubeconfig.
    ///
    /// # Errors
    /// The kubeconfig is not valid.
    pub async fn new(kubeconfig: &Path) -> Result<Api> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Api { client: Client::try_from(config)?, witnesses: Arc::default() })
    }

    /// Creates objects, several concurrently.
    ///
    /// # Errors
    /// The API refuses one.
    pub async fn create(&self, objects: Vec<Value>) -> Result<()> {
        self.send_all("POST", objects, false).await
    }

    /// Updates objects to these, several concurrently.
    ///
    /// # Errors
    /// The API refuses one.
    pub async fn change(&self, objects: Vec<Value>) -> Result<()> {
        self.send_all("PATCH", objects, true).await
    }

    /// Removes objects, several concurrently.
    ///
    /// # Errors
    /// The API refuses one.
    pub async fn remove(&self, objects: Vec<Value>) -> Result<()> {
        self.send_all("DELETE", objects, true).await
    }

    async fn send_all(&self, method: &str, objects: Vec<Value>, by_name: bool) -> Result<()> {
        let send = |object: Value| async move {
            let body = if method == "DELETE" { &Value::Null } else { &object };
            self.send(method, &path_of(&object, by_name)?, body).await.map(drop)
        };
        stream::iter(objects).map(send).buffer_unordered(WRITERS).try_collect().await
    }

    /// Sends a request; without a body if it is null.
    ///
    /// # Errors
    /// The API does not answer, or refuses the request.
    pub async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let answer = self.client.request_text(request.body(bytes)?).await;
        Ok(serde_json::from_str(&answer.with_context(|| format!("{method} {path}"))?)?)
    }

    /// Watches these kinds as any client of the API does, to measure when the API server reports a change.
    pub async fn witness(&self, paths: &[&'static str]) -> Result<()> {
        for path in paths {
            let mut body = self.watch(path).await?;
            let (witnesses, path) = (Arc::clone(&self.witnesses), *path);
            tokio::spawn(async move {
                while let Some(Ok(_)) = body.frame().await {
                    let mut witnesses = witnesses.lock().unwrap_or_else(PoisonError::into_inner);
                    witnesses.insert(path, Some(Instant::now()));
                }
            });
        }
        Ok(())
    }

    /// The events of a kind from now on, a line each.
    async fn watch(&self, path: &str) -> Result<Body> {
        let list: Value = self.send("GET", &format!("{path}?limit=1"), &Value::Null).await?;
        let revision = list["metadata"]["resourceVersion"].as_str().context("no revision")?;
        let watch = format!("{path}?watch=true&resourceVersion={revision}");
        let response = self.client.send(Request::get(watch).body(Body::empty())?).await?;
        if !response.status().is_success() {
            bail!("the API does not let {path} be watched: {}", response.status());
        }
        Ok(response.into_body())
    }

    /// Counts the changes of a kind until it is stopped.
    pub async fn count_changes(&self, path: &str) -> Result<Counter> {
        let mut body = self.watch(path).await?;
        let count: Arc<AtomicU64> = Arc::default();
        let counted = Arc::clone(&count);
        let task = tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                let lines = frame.data_ref().map_or(0, |data| data.iter().filter(|byte| **byte == b'\n').count());
                counted.fetch_add(lines as u64, Ordering::Relaxed);
            }
        });
        Ok(Counter { count, task })
    }

    /// The time of the last event of a watched kind since the previous call.
    pub fn told(&self) -> Option<Instant> {
        let mut witnesses = self.witnesses.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *witnesses).into_values().flatten().max()
    }
}

pub(crate) fn part<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The group, version and plural of an object.
pub(crate) fn kind_of(object: &Value) -> Result<(&str, &str, &'static str)> {
    let version = part(object, "/apiVersion");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let definition = find_kind(group, part(object, "/kind")).context("an unknown kind")?;
    Ok((group, version, definition.plural))
}

/// The path of an object in the API, or of its kind and namespace.
pub(crate) fn path_of(object: &Value, one: bool) -> Result<String> {
    let (group, version, plural) = kind_of(object)?;
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let namespace = match part(object, "/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let name = match one {
        true => format!("/{}", part(object, "/metadata/name")),
        false => String::new(),
    };
    Ok(format!("{root}{namespace}/{plural}{name}"))
}
