//! The objects of one kind: what was seen of each, and what that changes.

mod gathered;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::schema::Definition;
use config::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions};
use serde_json::Value;

use super::Seen;
use super::event::Raw;
use super::revision::Revision;
use super::trim::Texts;
pub(crate) use gathered::Gathered;

/// Fields of a status that control planes write about an object, and that mean nothing to a mesh.
const TOLD: [&str; 4] = ["observedGeneration", "conditions", "proxies", "validationMessages"];

/// What reading an object needs.
pub(crate) struct Reading<'a> {
    pub(crate) options: &'a ParseOptions,
    pub(crate) revision: Option<&'a Revision>,
    pub(crate) texts: &'a mut Texts,
    pub(crate) cluster: &'a Arc<str>,
}

/// What is known of one object.
#[derive(Clone, Debug)]
struct Known {
    /// Of what it means, as the server has it.
    hash: u128,
    /// Its last good version; none: there was none, or it is not for us.
    object: Option<AnyObject>,
    /// What is wrong with it; one pointer, for it is rare and objects are many.
    #[allow(clippy::box_collection, reason = "a boxed slice is two words in every row")]
    problems: Option<Box<Vec<Diagnostic>>>,
    chosen: bool,
    /// The list in which it was seen last.
    round: u32,
}

/// The objects of a kind.
#[derive(Debug)]
pub(crate) struct Table {
    kind: Kind,
    definition: &'static Definition,
    known: BTreeMap<ObjectKey, Known>,
    /// Counts lists.
    round: u32,
    pending: Gathered,
    /// Whether any object ever chose a revision.
    labelled: bool,
}

impl Table {
    /// No objects yet.
    pub(crate) fn new(kind: Kind, definition: &'static Definition) -> Table {
        Table {
            kind,
            definition,
            known: BTreeMap::new(),
            round: 0,
            pending: Gathered::default(),
            labelled: false,
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether any object ever chose a revision.
    pub(crate) fn is_labelled(&self) -> bool {
        self.labelled
    }

    /// Whether anything is to be said by now.
    pub(crate) fn has_news(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is to be said by now.
    pub(crate) fn take(&mut self) -> Gathered {
        std::mem::take(&mut self.pending)
    }

    /// The objects that are in force, each with the hash of what the server had.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u128, &AnyObject)> {
        self.known
            .values()
            .filter_map(|known| Some((known.hash, known.object.as_ref()?)))
    }

    /// Begins with an object from an earlier life, which counts until the server says otherwise.
    pub(crate) fn seed(&mut self, hash: u128, object: AnyObject) {
        let key = object.key();
        let known = Known {
            hash,
            object: Some(object),
            problems: None,
            chosen: true,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// A list is complete: what was not in it is gone.
    pub(crate) fn listed(&mut self) {
        let gone = self.known.iter().filter(|(_, known)| known.round != self.round);
        let gone: Vec<ObjectKey> = gone.map(|(key, _)| key.clone()).collect();
        gone.into_iter().for_each(|key| self.remove(&key));
    }

    /// Everything is gone.
    pub(crate) fn clear(&mut self) {
        self.begin();
        self.listed();
    }

    /// The object of an event is gone.
    pub(crate) fn gone(&mut self, raw: &Raw, reading: &Reading<'_>) {
        let key = self.key(raw, reading);
        self.remove(&key);
    }

    fn key(&self, raw: &Raw, reading: &Reading<'_>) -> ObjectKey {
        ObjectKey::new(self.kind, raw.namespace.clone(), raw.name.clone()).in_cluster(reading.cluster.clone())
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(known) = self.known.remove(key) else { return };
        if known.object.is_some() {
            self.pending.remove(key.clone());
        } else {
            // What was to be said of it is over; nobody else ever heard of it.
            self.pending.changed.remove(key);
        }
        if known.problems.is_some() {
            self.pending.say(file(key), Vec::new());
        }
        self.pending.seen.insert(key.clone(), None);
    }

    /// The object of an event is so now.
    pub(crate) fn put(&mut self, raw: Raw, reading: &mut Reading<'_>) {
        let key = self.key(&raw, reading);
        let labels = &raw.value["metadata"]["labels"];
        let mut chosen = true;
        if Revision::chooses(self.kind) {
            self.labelled |= labels.get("istio.io/rev").is_some();
            chosen = reading.revision.is_none_or(|revision| revision.admits(labels));
        }
        let (value, hash) = self.meaning(raw);
        if let Some(known) = self.known.get_mut(&key)
            && known.hash == hash
            && known.chosen == chosen
        {
            known.round = self.round;
            if chosen {
                let problems = known.problems.as_deref().cloned().unwrap_or_default();
                self.see(&key, &value, problems);
            }
            return;
        }
        match chosen {
            true => self.read(key, value, hash, reading),
            false => self.pass_over(key, hash),
        }
    }

    /// An object that is meant for another control plane.
    fn pass_over(&mut self, key: ObjectKey, hash: u128) {
        self.remove(&key);
        let known = Known {
            hash,
            object: None,
            problems: None,
            chosen: false,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    fn read(&mut self, key: ObjectKey, value: Value, hash: u128, reading: &mut Reading<'_>) {
        let read = config::read_object(&value, reading.options);
        let before = self.known.remove(&key);
        let had_problems = before.as_ref().is_some_and(|known| known.problems.is_some());
        // One that became invalid keeps its last good version in force, as a file does.
        let mut object = before.and_then(|known| known.object);
        let mut key = key;
        if let Some(new) = read.object {
            let new = reading.texts.trim(new, reading.cluster);
            key = new.key();
            if object.as_ref() != Some(&new) {
                self.pending.put(new.clone());
            }
            object = Some(new);
        }
        let mut problems = read.diagnostics;
        problems.shrink_to_fit();
        if had_problems || !problems.is_empty() {
            self.pending.say(file(&key), problems.clone());
        }
        self.see(&key, &value, problems.clone());
        let known = Known {
            hash,
            object,
            problems: (!problems.is_empty()).then(|| Box::new(problems)),
            chosen: true,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    /// Notes the object for whoever writes its status.
    fn see(&mut self, key: &ObjectKey, value: &Value, diagnostics: Vec<Diagnostic>) {
        if !self.definition.status || !self.kind.is_complete() {
            return;
        }
        let meta = &value["metadata"];
        let seen = Seen {
            key: key.clone(),
            uid: meta["uid"].as_str().unwrap_or_default().into(),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            diagnostics,
            status: value.get("status").cloned(),
        };
        self.pending.seen.insert(key.clone(), Some(seen));
    }

    /// The object as it is read, and the hash of what it means: without its version, and without what control planes say of
    /// it in its status.
    fn meaning(&self, raw: Raw) -> (Value, u128) {
        let mut value = raw.value;
        let Some(fields) = value.as_object_mut() else {
            return (value, 0);
        };
        let status = match self.kind.is_complete() {
            true => fields.remove("status"),
            false => None,
        };
        let version = fields
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .and_then(|meta| meta.remove("resourceVersion"));
        // Items of a list do not say what they are.
        fields.insert("apiVersion".into(), self.definition.api_version().into());
        fields.insert("kind".into(), self.definition.kind.into());
        let mut text = value.to_string();
        if self.kind.is_istio()
            && let Some(Value::Object(status)) = &status
        {
            let mut others = status
                .iter()
                .filter(|(field, _)| !TOLD.contains(&field.as_str()))
                .peekable();
            if others.peek().is_some() {
                others.for_each(|(field, value)| text.push_str(&format!("{field}:{value}")));
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

/// What diagnostics of an object stand below.
fn file(key: &ObjectKey) -> Arc<str> {
    format!("kubernetes: {key}").into()
}
