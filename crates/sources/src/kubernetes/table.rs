//! The objects of one kind, compared with the events of its watch. Produces a [`ChangeSet`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::schema::Definition;
use config::{AnyObject, ChangeSet, Diagnostic, Kind, ObjectKey, Observed, ParseOptions};
use serde_json::Value;

use super::event::Raw;
use super::revision::{Revision, Selection};
use super::trim::Texts;

/// Status fields written by control planes. They do not affect the mesh, so they are excluded from the content hash; except
/// the condition `Healthy` of WorkloadEntries.
const STATUS_FIELDS: [&str; 4] = ["observedGeneration", "conditions", "proxies", "validationMessages"];

/// The context for parsing an object.
pub(crate) struct ReadContext<'a> {
    pub(crate) options: &'a ParseOptions,
    pub(crate) revision: Option<&'a Revision>,
    pub(crate) texts: &'a mut Texts,
    pub(crate) cluster: &'a Arc<str>,
}

/// The state of one object.
#[derive(Clone, Debug)]
struct Entry {
    /// Hash of the content on the server ([`Table::content`]).
    hash: u128,
    /// The last valid version. `None` if there is none, or if only another revision uses the object.
    object: Option<AnyObject>,
    /// Validation results. Boxed, because few objects have any and this is one word per object.
    #[allow(clippy::box_collection, reason = "a boxed slice is two words in every row")]
    diagnostics: Option<Box<Vec<Diagnostic>>>,
    /// The revision that selects the object.
    selection: Selection,
    /// The last list that contained it.
    round: u32,
}

/// The objects of a kind.
#[derive(Debug)]
pub(crate) struct Table {
    kind: Kind,
    definition: &'static Definition,
    entries: BTreeMap<ObjectKey, Entry>,
    /// Counts lists.
    round: u32,
    /// Changes since the last [`Table::take`].
    pending: ChangeSet,
    /// Whether any object ever had a revision label.
    labelled: bool,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(kind: Kind, definition: &'static Definition) -> Table {
        Table { kind, definition, entries: BTreeMap::new(), round: 0, pending: ChangeSet::default(), labelled: false }
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether any object ever had a revision label.
    pub(crate) fn is_labelled(&self) -> bool {
        self.labelled
    }

    /// Whether it has objects of one of these namespaces.
    pub(crate) fn has_objects_in(&self, namespaces: &BTreeSet<Arc<str>>) -> bool {
        self.entries.keys().any(|key| namespaces.contains(&key.namespace))
    }

    /// Whether [`Table::take`] would return changes.
    pub(crate) fn has_changes(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the changes since the last call.
    pub(crate) fn take(&mut self) -> ChangeSet {
        std::mem::take(&mut self.pending)
    }

    /// The objects in effect, each with the hash of its content on the server.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u128, &AnyObject)> {
        self.entries.values().filter_map(|entry| Some((entry.hash, entry.object.as_ref()?)))
    }

    /// Adds an object from a snapshot. It stays in effect until the server reports a different one.
    pub(crate) fn seed(&mut self, hash: u128, object: AnyObject) {
        let key = object.key();
        let entry =
            Entry { hash, object: Some(object), diagnostics: None, selection: Selection::All, round: self.round };
        self.entries.insert(key, entry);
    }

    /// Starts a list.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Ends a list and deletes the objects that it did not contain.
    pub(crate) fn listed(&mut self) {
        let deleted = self.entries.iter().filter(|(_, entry)| entry.round != self.round);
        let deleted: Vec<ObjectKey> = deleted.map(|(key, _)| key.clone()).collect();
        deleted.into_iter().for_each(|key| self.remove(&key));
    }

    /// Deletes all objects.
    pub(crate) fn clear(&mut self) {
        self.begin();
        self.listed();
    }

    /// Handles a deletion event.
    pub(crate) fn delete(&mut self, namespace: &Arc<str>, name: &Arc<str>, cluster: &Arc<str>) {
        let key = self.key(namespace, name, cluster);
        self.remove(&key);
    }

    fn key(&self, namespace: &Arc<str>, name: &Arc<str>, cluster: &Arc<str>) -> ObjectKey {
        ObjectKey::new(self.kind, namespace.clone(), name.clone()).in_cluster(cluster.clone())
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.remove(key) else { return };
        // Without a version in effect, a pending deletion of an earlier version must stay.
        if entry.object.is_some() {
            self.pending.delete(key.clone());
        }
        if entry.diagnostics.is_some() {
            self.pending.report(file(key), Vec::new());
        }
        self.pending.observed.insert(key.clone(), None);
    }

    /// Handles an event that adds or updates an object.
    pub(crate) fn upsert(&mut self, raw: Raw, context: &mut ReadContext<'_>) {
        let key = self.key(&raw.namespace, &raw.name, context.cluster);
        let labels = &raw.value["metadata"]["labels"];
        let mut selection = Selection::All;
        if Revision::applies_to(self.kind) {
            self.labelled |= labels.get("istio.io/rev").is_some();
            if let Some(revision) = context.revision {
                selection = revision.select(self.kind, &raw.namespace, labels);
            }
        }
        let (value, hash) = self.content(raw);
        if let Some(entry) = self.entries.get_mut(&key)
            && entry.hash == hash
            && entry.selection == selection
        {
            entry.round = self.round;
            let diagnostics = entry.diagnostics.as_deref().cloned().unwrap_or_default();
            self.observe(&key, &value, selection, diagnostics);
            return;
        }
        match selection != Selection::Other || Revision::shares(self.kind) {
            true => self.read(key, value, (hash, selection), context),
            false => self.skip(key, hash),
        }
    }

    /// Handles an object that only another revision uses.
    fn skip(&mut self, key: ObjectKey, hash: u128) {
        self.remove(&key);
        let entry = Entry { hash, object: None, diagnostics: None, selection: Selection::Other, round: self.round };
        self.entries.insert(key, entry);
    }

    fn read(
        &mut self,
        key: ObjectKey,
        value: Value,
        (hash, selection): (u128, Selection),
        context: &mut ReadContext<'_>,
    ) {
        let read = config::read_object(&value, context.options);
        let before = self.entries.remove(&key);
        let had_diagnostics = before.as_ref().is_some_and(|entry| entry.diagnostics.is_some());
        // If the new version is invalid, the last valid one stays in effect.
        let mut object = before.and_then(|entry| entry.object);
        let mut key = key;
        if let Some(new) = read.object {
            let new = context.texts.trim(new, context.cluster);
            key = new.key();
            if object.as_ref() != Some(&new) {
                self.pending.upsert(new.clone());
            }
            object = Some(new);
        }
        let mut diagnostics = read.diagnostics;
        diagnostics.shrink_to_fit();
        if had_diagnostics || !diagnostics.is_empty() {
            self.pending.report(file(&key), diagnostics.clone());
        }
        if selection == Selection::Other {
            self.pending.observed.insert(key.clone(), None);
        }
        self.observe(&key, &value, selection, diagnostics.clone());
        let entry = Entry {
            hash,
            object,
            diagnostics: (!diagnostics.is_empty()).then(|| Box::new(diagnostics)),
            selection,
            round: self.round,
        };
        self.entries.insert(key, entry);
    }

    /// Records the object for the status writer, unless another revision writes the status.
    fn observe(&mut self, key: &ObjectKey, value: &Value, selection: Selection, diagnostics: Vec<Diagnostic>) {
        if selection == Selection::Other || !self.definition.status || !self.kind.is_complete() {
            return;
        }
        let meta = &value["metadata"];
        let is_rejected = diagnostics.iter().any(Diagnostic::is_error);
        self.pending.observe(Observed {
            key: key.clone(),
            uid: meta["uid"].as_str().unwrap_or_default().into(),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            assigned: selection == Selection::Own,
            parents: if is_rejected { config::parents_of(key.kind, value) } else { Vec::new() },
            diagnostics,
            status: value.get("status").cloned(),
            original: None,
        });
    }

    /// The object as it is parsed, and a hash of its content, excluding its resource version and the status fields that
    /// control planes write.
    fn content(&self, raw: Raw) -> (Value, u128) {
        let mut value = raw.value;
        let Some(fields) = value.as_object_mut() else {
            return (value, 0);
        };
        let status = match self.kind.is_complete() {
            true => fields.remove("status"),
            false => None,
        };
        let version =
            fields.get_mut("metadata").and_then(Value::as_object_mut).and_then(|meta| meta.remove("resourceVersion"));
        // Items of a list have no type fields.
        fields.insert("apiVersion".into(), self.definition.api_version().into());
        fields.insert("kind".into(), self.definition.kind.into());
        let mut text = value.to_string();
        if self.kind.is_istio()
            && let Some(Value::Object(status)) = &status
        {
            let mut others = status.iter().filter(|(field, _)| !STATUS_FIELDS.contains(&field.as_str())).peekable();
            if others.peek().is_some() {
                others.for_each(|(field, value)| text.push_str(&format!("{field}:{value}")));
            }
            if self.kind == Kind::WorkloadEntry {
                let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
                let health = conditions.filter(|one| one["type"] == "Healthy").map(|one| one["status"].to_string());
                text.extend(health);
            }
        }
        let hash = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        if let Some(fields) = value.as_object_mut() {
            fields.extend(status.map(|status| ("status".to_owned(), status)));
        }
        if self.kind.is_complete()
            && let (Some(version), Some(meta)) = (version, value["metadata"].as_object_mut())
        {
            meta.insert("resourceVersion".into(), version);
        }
        (value, hash)
    }
}

/// The file name under which diagnostics of an object are reported.
fn file(key: &ObjectKey) -> Arc<str> {
    key.to_string().into()
}
