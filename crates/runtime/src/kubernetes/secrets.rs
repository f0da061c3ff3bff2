//! Secrets of the control plane's namespace: the certificate authority and join tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::keeper::{Content, Found, Place};
use ca::self_signed::SECRET_TYPE;
use controllers::{Resource, Watched};
use http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use sources::kubernetes::Seen;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{ask, message};
use super::watched;
use crate::authority::storage::{Secrets, StorageError};

/// The timeout of a request.
const REQUEST: Duration = Duration::from_secs(15);

/// The Secrets of a namespace.
#[derive(Clone)]
pub(crate) struct NamespaceSecrets {
    client: Client,
    namespace: String,
}

impl NamespaceSecrets {
    pub(crate) fn new(client: Client, namespace: &str) -> NamespaceSecrets {
        NamespaceSecrets { client, namespace: namespace.to_owned() }
    }

    /// Reports a Secret at the start and after each change, until the receiver is dropped.
    pub(crate) async fn follow(self, name: &'static str, place: Place, events: mpsc::Sender<(Place, Content)>) {
        let (sender, mut seen) = mpsc::channel(4);
        let watched = Watched::all(Resource::SECRET).within(&self.namespace).named(name);
        let mut watch = JoinSet::new();
        watch.spawn(watched::follow(self.client, watched, sender, |seen| seen));
        let mut known = false;
        while let Some(event) = seen.recv().await {
            let content = match event {
                Seen::Applied(secret) => Content::Present(found(&secret)),
                Seen::Deleted(_) => Content::Absent,
                // The Secret comes before the end of the list, if it exists.
                Seen::Synced if !known => Content::Absent,
                Seen::Synced => continue,
                // The last content stays.
                Seen::Failing { .. } if known => continue,
                Seen::Failing { why, .. } => {
                    if events.send((place, Content::Unreadable(why))).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            known = true;
            if events.send((place, content)).await.is_err() {
                return;
            }
        }
    }

    fn path(&self, name: &str) -> String {
        let all = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        if name.is_empty() { all } else { format!("{all}/{name}") }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: &Value,
    ) -> Result<(StatusCode, Value), StorageError> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        match timeout(REQUEST, ask(&self.client, request.body(Body::from(bytes)))).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(outcome)) => Err(StorageError(format!("the API server failed: {outcome:?}"))),
            Err(_) => Err(StorageError("the API server does not answer".to_owned())),
        }
    }
}

impl Secrets for NamespaceSecrets {
    async fn read(&self, name: &str) -> Result<Option<Found>, StorageError> {
        let (status, answer) = self.call(Method::GET, &self.path(name), "application/json", &Value::Null).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(found(&answer))),
            status => Err(refused(status, &answer)),
        }
    }

    async fn write(
        &self,
        name: &str,
        data: &BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        let data: BTreeMap<&String, String> = data.iter().map(|(key, value)| (key, STANDARD.encode(value))).collect();
        let (status, answer) = match replaces {
            None => {
                let secret = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name},
                    "type": SECRET_TYPE,
                    "data": data,
                });
                let path = format!("{}?fieldManager=rutter", self.path(""));
                self.call(Method::POST, &path, "application/json", &secret).await?
            }
            Some(version) => {
                let patch = json!({"metadata": {"resourceVersion": version}, "data": data});
                let path = format!("{}?fieldManager=rutter", self.path(name));
                self.call(Method::PATCH, &path, "application/merge-patch+json", &patch).await?
            }
        };
        match status {
            StatusCode::CONFLICT | StatusCode::NOT_FOUND if replaces.is_some() => Ok(None),
            StatusCode::CONFLICT => Ok(None),
            status if status.is_success() => {
                Ok(Some(answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()))
            }
            status => Err(refused(status, &answer)),
        }
    }
}

fn refused(status: StatusCode, answer: &Value) -> StorageError {
    StorageError(format!("{status}: {}", message(answer)))
}

/// The data of a Secret. Values that are not base64 are left out.
fn found(secret: &Value) -> Found {
    let values = secret["data"].as_object().into_iter().flatten();
    let decoded = values.filter_map(|(key, value)| Some((key.clone(), STANDARD.decode(value.as_str()?).ok()?)));
    Found {
        data: decoded.collect(),
        version: secret["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    }
}

/// The Secrets of the authority. `cacerts` is beside the control plane, `istio-ca-secret` in the cluster with the configuration.
#[derive(Clone)]
pub(crate) struct AuthoritySecrets {
    pub(crate) own: NamespaceSecrets,
    pub(crate) home: NamespaceSecrets,
}

impl AuthoritySecrets {
    fn of(&self, name: &str) -> &NamespaceSecrets {
        if name == ca::self_signed::CACERTS { &self.own } else { &self.home }
    }
}

impl Secrets for AuthoritySecrets {
    async fn read(&self, name: &str) -> Result<Option<Found>, StorageError> {
        self.of(name).read(name).await
    }

    async fn write(
        &self,
        name: &str,
        data: &BTreeMap<String, Vec<u8>>,
        replaces: Option<&str>,
    ) -> Result<Option<String>, StorageError> {
        self.of(name).write(name, data, replaces).await
    }
}
