//! One API with the source that reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use config::{AnyObject, ChangeSet, Kind, ObjectKey, ParseOptions, Timestamp};
use http::Method;
use kube::Client;
use serde_json::json;
use sources::SourceChange;
use sources::kubernetes::Report;
use tokio::sync::{mpsc, watch};

use super::Document;
use super::markers::{self, Awaited, MARKER, TURN};
use super::writer::{Writer, done};

/// The maximum time until the source has reported an edit.
const PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of the ConfigMap with the mesh settings.
const SETTINGS: &str = "/api/v1/namespaces/scenario-marker/configmaps";

/// Receives the changes of a source.
pub(super) struct Inbox {
    changes: mpsc::Receiver<SourceChange>,
    /// The report of a Kubernetes source.
    report: Option<watch::Receiver<Report>>,
}

impl Inbox {
    pub(super) fn new(changes: mpsc::Receiver<SourceChange>, report: Option<watch::Receiver<Report>>) -> Inbox {
        Inbox { changes, report }
    }

    async fn next(&mut self) -> Option<ChangeSet> {
        self.changes.recv().await.map(|received| received.change)
    }

    /// Details for the error message about a source that sends nothing.
    fn details(&self) -> String {
        let report = |report: &watch::Receiver<Report>| format!("; its report: {:?}", *report.borrow());
        self.report.as_ref().map(report).unwrap_or_default()
    }
}

/// An API and its source.
pub(super) struct Cluster {
    id: Arc<str>,
    writer: Writer,
    inbox: Inbox,
    /// Objects that existed before, which are left out.
    initial: BTreeSet<ObjectKey>,
    /// The existing namespaces.
    namespaces: BTreeSet<Arc<str>>,
    /// The objects that the scenario wrote, with their ages in the file.
    written: BTreeMap<ObjectKey, Option<Timestamp>>,
    /// The texts of the settings, by their keys in the ConfigMap.
    settings: BTreeMap<&'static str, String>,
    /// The number of markers that were written.
    turn: u64,
}

impl Cluster {
    /// Starts with the first changes of the source.
    pub(super) async fn start(id: &str, client: Client, mut inbox: Inbox) -> Result<Cluster> {
        let writer = Writer::new(client);
        let first = tokio::time::timeout(PATIENCE, inbox.next()).await;
        let first = first.with_context(|| format!("the source does not begin{}", inbox.details()))?;
        let first = first.context("the source ended")?;
        let mut cluster = Cluster {
            id: id.into(),
            writer,
            inbox,
            initial: first.upserts.into_keys().collect(),
            namespaces: BTreeSet::new(),
            written: BTreeMap::new(),
            settings: BTreeMap::new(),
            turn: 0,
        };
        cluster.need_namespace(MARKER).await?;
        Ok(cluster)
    }

    /// Makes an edit. Returns the changes that the source reports.
    pub(super) async fn edit(&mut self, puts: &[Document], gone: &[ObjectKey]) -> Result<ChangeSet> {
        let mut awaited = Awaited::default();
        let keys = puts.iter().map(|put| &put.key).chain(gone);
        let mut kinds: BTreeSet<Kind> = keys.map(|key| key.kind).collect();
        for key in gone {
            match setting(key.kind) {
                Some(name) => {
                    self.settings.remove(name);
                    awaited.setting(key.kind, None);
                }
                None => self.writer.delete(key).await?,
            }
            if key.kind == Kind::Namespace {
                self.namespaces.remove(&key.name);
                awaited.deletion(key.clone());
            }
        }
        for put in puts {
            if let Some(name) = setting(put.key.kind) {
                self.settings.insert(name, put.json["spec"].to_string());
                awaited.setting(put.key.kind, setting_of(put));
                continue;
            }
            if !put.key.namespace.is_empty() {
                self.need_namespace(&put.key.namespace).await?;
            }
            if put.key.kind == Kind::Namespace {
                self.namespaces.insert(put.key.name.clone());
            }
            self.written.insert(put.key.clone(), put.age());
            self.writer.put(put).await?;
        }
        if kinds.extract_if(.., |kind| setting(*kind).is_some()).count() > 0 {
            self.write_settings().await?;
        }
        for kind in kinds {
            let (key, turn) = self.mark(kind).await?;
            awaited.marker(key, turn);
        }
        let change = self.settle(awaited).await?;
        Ok(self.projected(change))
    }

    /// Deletes everything that edits created.
    pub(super) async fn clear(&mut self) -> Result<()> {
        let there = self.writer.there().filter(|key| &*key.name != MARKER).cloned();
        let (namespaces, mut gone): (Vec<_>, Vec<_>) = there.partition(|key| key.kind == Kind::Namespace);
        // Namespaces stay, because deleting one needs the controllers of a real cluster.
        let bare = namespaces.into_iter().map(|key| Document {
            json: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &*key.name}}),
            text: String::new(),
            key,
        });
        let bare: Vec<Document> = bare.collect();
        for (kind, name) in [(Kind::MeshConfig, "mesh"), (Kind::MeshNetworks, "meshNetworks")] {
            if self.settings.contains_key(name) {
                gone.push(ObjectKey::new(kind, "", ""));
            }
        }
        self.edit(&bare, &gone).await?;
        bare.iter().for_each(|bare| self.writer.forget(&bare.key));
        self.written.clear();
        Ok(())
    }

    async fn need_namespace(&mut self, name: &str) -> Result<()> {
        if !self.namespaces.insert(name.into()) {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match self.writer.send(Method::POST, "/api/v1/namespaces", &namespace).await? {
            (409, _) => Ok(()),
            answer => done(answer).map(drop),
        }
    }

    /// Writes the ConfigMap with the mesh settings.
    async fn write_settings(&self) -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MARKER}, "data": self.settings});
        let one = format!("{SETTINGS}/{MARKER}");
        match self.writer.send(Method::POST, SETTINGS, &map).await? {
            (409, _) => done(self.writer.send(Method::PUT, &one, &map).await?).map(drop),
            answer => done(answer).map(drop),
        }
    }

    /// Changes the marker of a kind. Returns its key and the new value of its label.
    async fn mark(&mut self, kind: Kind) -> Result<(ObjectKey, String)> {
        let mut json = markers::content(kind).with_context(|| format!("there is no marker of the kind {kind}"))?;
        let namespace = if kind.is_namespaced() { MARKER } else { "" };
        let key = ObjectKey::new(kind, namespace, MARKER).in_cluster(self.id.clone());
        self.turn += 1;
        let turn = self.turn.to_string();
        let labels = json!({TURN: turn});
        if kind == Kind::Namespace {
            let path = format!("/api/v1/namespaces/{MARKER}");
            let patch = json!({"metadata": {"labels": labels}});
            done(self.writer.send(Method::PATCH, &path, &patch).await?)?;
            return Ok((key, turn));
        }
        json["apiVersion"] = kind.api_version().into();
        json["kind"] = kind.name().into();
        json["metadata"] = json!({"name": MARKER, "labels": labels});
        self.writer.put(&Document { key: key.clone(), text: String::new(), json }).await?;
        Ok((key, turn))
    }

    /// The changes of the source up to these.
    async fn settle(&mut self, mut awaited: Awaited) -> Result<ChangeSet> {
        let mut sum = ChangeSet::default();
        let end = tokio::time::sleep(PATIENCE);
        tokio::pin!(end);
        while !awaited.is_complete() {
            let change = tokio::select! {
                change = self.inbox.next() => change.context("the source ended")?,
                () = &mut end => bail!("the source does not report {awaited:?}{}", self.inbox.details()),
            };
            awaited.take(&change);
            sum.merge(change);
        }
        Ok(sum)
    }

    /// The changes of the scenario's objects, with their ages in the file.
    fn projected(&self, mut sum: ChangeSet) -> ChangeSet {
        let ours = |key: &ObjectKey| {
            let scaffold = self.initial.contains(key) || key.kind == Kind::Namespace || &*key.name == MARKER;
            self.written.contains_key(key) || !scaffold
        };
        sum.upserts.retain(|key, _| ours(key));
        sum.deletes.retain(ours);
        for (key, object) in &mut sum.upserts {
            if let Some(age) = self.written.get(key) {
                object.meta_mut().creation_timestamp = *age;
            }
        }
        sum
    }
}

/// The name of a setting in the ConfigMap, if the kind is one.
fn setting(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::MeshConfig => Some("mesh"),
        Kind::MeshNetworks => Some("meshNetworks"),
        _ => None,
    }
}

/// The content of a setting as the source reports it.
fn setting_of(document: &Document) -> Option<serde_json::Value> {
    let read = config::parse_documents(document.text.as_bytes(), "mesh", &ParseOptions::default());
    read.objects.first().map(AnyObject::spec_json)
}
