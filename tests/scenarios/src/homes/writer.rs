//! Writes objects through an API as a user's client does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use config::schema::{Definition, definitions};
use config::{Kind, ObjectKey};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use super::Document;

/// Writes objects and records them.
pub(super) struct Writer {
    client: Client,
    /// The written objects that exist, as the API returns them.
    there: BTreeMap<ObjectKey, Value>,
}

/// A response: its status and body.
type Answer = (u16, Value);

impl Writer {
    pub(super) fn new(client: Client) -> Writer {
        Writer { client, there: BTreeMap::new() }
    }

    /// The written objects that exist.
    pub(super) fn there(&self) -> impl Iterator<Item = &ObjectKey> {
        self.there.keys()
    }

    /// Creates or replaces an object, with its status.
    pub(super) async fn put(&mut self, document: &Document) -> Result<()> {
        self.put_json(&document.key, &document.json).await.with_context(|| document.key.to_string())
    }

    async fn put_json(&mut self, key: &ObjectKey, json: &Value) -> Result<()> {
        let (definition, version) = served(key.kind, json)?;
        let body = complete(key, json);
        let mut now = self.create_or_replace(key, definition, version, &body).await?;
        let before = self.there.get(key).map_or(&Value::Null, |before| &before["scenario"]);
        if definition.status && (!json["status"].is_null() || !before.is_null()) {
            let path = format!("{}/status", path(key, definition, version, true));
            let mut body = now.clone();
            body["status"] = json.get("status").cloned().unwrap_or_else(|| json!({}));
            now = done(self.send(Method::PUT, &path, &body).await?)?;
        }
        // Whether it has a status that the scenario sets.
        now["scenario"] = json["status"].clone();
        self.there.insert(key.clone(), now);
        Ok(())
    }

    async fn create_or_replace(
        &self,
        key: &ObjectKey,
        definition: &Definition,
        version: &str,
        body: &Value,
    ) -> Result<Value> {
        let (all, one) = (path(key, definition, version, false), path(key, definition, version, true));
        let known = self.there.get(key).map(|there| there["metadata"]["resourceVersion"].clone());
        let revision = match known {
            Some(revision) => revision,
            None => match self.send(Method::POST, &all, body).await? {
                // An object that every server has, such as the namespace `default`.
                (409, _) => {
                    done(self.send(Method::GET, &one, &Value::Null).await?)?["metadata"]["resourceVersion"].clone()
                }
                answer => return done(answer),
            },
        };
        let mut replacement = body.clone();
        replacement["metadata"]["resourceVersion"] = revision;
        match self.send(Method::PUT, &one, &replacement).await? {
            // Some fields are immutable, such as the node of a pod: the object is created again.
            (422, _) => {
                done(self.send(Method::DELETE, &at_once(&one), &Value::Null).await?)?;
                done(self.send(Method::POST, &all, body).await?)
            }
            answer => done(answer),
        }
    }

    /// Stops recording an object.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.there.remove(key);
    }

    /// Deletes an object that was written.
    pub(super) async fn delete(&mut self, key: &ObjectKey) -> Result<()> {
        let there = self.there.remove(key).with_context(|| format!("{key} was not written"))?;
        let (definition, version) = served(key.kind, &there)?;
        let path = path(key, definition, version, true);
        done(self.send(Method::DELETE, &at_once(&path), &Value::Null).await?).with_context(|| key.to_string())?;
        if key.kind == Kind::Namespace {
            // As a controller does when nothing is left in it; there is none, or it was faster.
            let metadata = json!({"name": &*key.name});
            let body =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": {"finalizers": []}});
            self.send(Method::PUT, &format!("{path}/finalize"), &body).await?;
        }
        Ok(())
    }

    /// Sends one request. Error responses are returned, too.
    pub(super) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Answer> {
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes)?;
        match self.client.request_text(request).await {
            Ok(text) => Ok((200, serde_json::from_str(&text)?)),
            Err(kube::Error::Api(status)) => Ok((status.code, Value::from(status.message.clone()))),
            Err(error) => Err(error.into()),
        }
    }
}

/// The body of a successful response.
pub(super) fn done((code, body): Answer) -> Result<Value> {
    match code {
        200 => Ok(body),
        code => bail!("{code}: {body}"),
    }
}

/// The definition of the kind, and the version in which the object is written.
fn served(kind: Kind, json: &Value) -> Result<(&'static Definition, &str)> {
    let definition = definitions().iter().find(|definition| definition.mesh == Some(kind));
    let definition = definition.with_context(|| format!("{kind} is no kind of an API"))?;
    let version = json["apiVersion"].as_str().unwrap_or(definition.versions[0].version);
    Ok((definition, version.split_once('/').map_or(version, |(_, version)| version)))
}

fn path(key: &ObjectKey, definition: &Definition, version: &str, one: bool) -> String {
    let mut path = match definition.group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    if definition.namespaced {
        path += &format!("/namespaces/{}", key.namespace);
    }
    path += &format!("/{}", definition.plural);
    if one {
        path += &format!("/{}", key.name);
    }
    path
}

fn at_once(path: &str) -> String {
    format!("{path}?gracePeriodSeconds=0")
}

/// The object with the fields that an API requires and the mesh does not read.
fn complete(key: &ObjectKey, json: &Value) -> Value {
    let mut json = json.clone();
    if key.kind.is_namespaced() {
        json["metadata"]["namespace"] = Value::from(&*key.namespace);
    }
    if key.kind == Kind::Pod {
        if json["spec"]["containers"].as_array().is_none_or(Vec::is_empty) {
            json["spec"]["containers"] = json!([{"name": "none"}]);
        }
        for container in json["spec"]["containers"].as_array_mut().into_iter().flatten() {
            if container["image"].is_null() {
                container["image"] = "none".into();
            }
        }
    }
    json
}
